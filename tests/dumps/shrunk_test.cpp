#include "assay/dumps/io/shrunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::shrunk_test {
namespace {

using testing::HasSubstr;

std::string npy(std::size_t elements) {
  std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(elements) + ",), }";
  header.append(128 - 10 - 1 - header.size(), ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + std::string(4 * elements, '\x01');
}

// What is cut off while the file is mapped reads as zeros; that it happened is an error afterwards, and stays
// one for every tensor of that file. Others are not blamed.
TEST(Shrunk, AFileThatBecomesShorterIsAnError) {
  const Scratch folder;
  const auto path = folder.write("x.npy", npy(100'000));
  const auto other = folder.write("y.npy", npy(100'000));
  const auto dump = open_dump(path), sound = open_dump(other);
  const auto tensors = logical_tensors(*dump);
  const Merged merged = merge(*dump, tensors[0]);
  EXPECT_NO_THROW(check_not_shrunk(*dump, tensors[0]));
  std::filesystem::resize_file(path, 5000);
  double sum = 0;
  merged.tensor.for_each_window([&](const Tensor& window, std::int64_t) {
    for (const double v : window.values()) sum += v;
  });
  EXPECT_GT(sum, 0);
  for (int again = 0; again < 2; ++again) {
    try {
      check_not_shrunk(*dump, tensors[0]);
      ADD_FAILURE();
    } catch (const Error& problem) {
      EXPECT_THAT(problem.what(), HasSubstr("x.npy: became shorter while it was read"));
    }
  }
  EXPECT_NO_THROW(check_not_shrunk(*sound, logical_tensors(*sound)[0]));
}

TEST(ShrunkDeathTest, OtherBusErrorsStillEndTheProgram) {
  const Scratch folder;
  const auto dump = open_dump(folder.write("x.npy", npy(10)));  // the handler is there now
  EXPECT_DEATH(raise(SIGBUS), "");                              // under sanitizers by their handler
}

}  // namespace
}  // namespace assay::shrunk_test
