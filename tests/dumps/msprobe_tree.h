#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>

#include "assay/dumps/npy_writer.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "scratch.h"

/// Dumps of msprobe, written by hand.
namespace assay {

inline constexpr std::string_view f32 = R"("type":"torch.Tensor","dtype":"torch.float32")";

inline std::string leaf(std::string_view shape, std::string_view more = "", std::string_view head = f32) {
  return fmt::format(R"({{{},"shape":{}{}}})", head, shape, more);
}

inline std::string data_name(std::string_view name) {
  return fmt::format(R"(,"data_name":"{}")", name);
}

inline std::string dump_json(std::string_view entries) {
  return fmt::format(R"({{"task":"tensor","level":"L0","framework":"pytorch","data":{{{}}}}})", entries);
}

inline std::string forward(std::string_view name, std::string_view output) {
  return fmt::format(R"("{}":{{"input_args":[],"input_kwargs":{{}},"output":[{}]}})", name, output);
}

/// A tree in the making: run/step0/rank0/..
struct Tree {
  Scratch scratch;
  std::filesystem::path root() const { return scratch.path() / "run"; }
  void rank(std::string_view folder, std::string_view entries) const { raw(folder, dump_json(entries)); }
  void raw(std::string_view folder, std::string_view json) const {
    scratch.write(fmt::format("run/{}/dump.json", folder), json);
  }
  void npy(const std::string& file, const std::vector<double>& values, Shape shape,
           DType dtype = DType::float32) const {
    const auto path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    write_npy(path, Tensor::from_values(dtype, std::move(shape), values));
  }
  std::unique_ptr<Dump> open() const { return open_dump(root()); }
};

inline std::string only_left_out(const Dump& dump) {
  EXPECT_THAT(dump.left_out, testing::SizeIs(1)) << testing::PrintToString(dump.left_out);
  return dump.left_out.empty() ? "" : dump.left_out[0];
}

inline void expect_no_dump(const std::filesystem::path& path, std::string_view part) {
  EXPECT_THAT([&] { open_dump(path); }, testing::ThrowsMessage<Error>(testing::HasSubstr(part)));
}

inline void expect_unreadable(const Dump& dump, std::size_t index, std::string_view part) {
  EXPECT_THAT([&] { dump.read(index); }, testing::ThrowsMessage<Error>(testing::HasSubstr(part)));
}

}  // namespace assay
