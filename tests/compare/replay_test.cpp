#include "assay/compare/replay/replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "recorded_pair.h"

namespace assay {
namespace {

// y = rms_norm(x) with weights of one, and one element of it that is off.
struct RecordedNorm {
  static constexpr std::int64_t columns = 256;
  MemoryDump dump{"norm"};
  std::vector<LogicalTensor> tensors;

  RecordedNorm(std::int64_t rows, std::int64_t fault_at) {
    const Tensor x = normal_tensor(DType::float32, {rows, columns}, 1);
    const Tensor weight = Tensor::from_values(DType::float32, {columns}, Values(columns, 1));
    const Operator& op = find_operator("rms_norm");
    Values y = compute_golden(op, std::vector<NamedTensor>{{"x", x}, {"weight", weight}}, {}, Level::fp64)
                   .front()
                   .tensor.values();
    y[static_cast<std::size_t>(fault_at)] += 0.5;
    dump.add("x", x);
    dump.add("weight", weight);
    dump.add("y", Tensor::from_values(DType::float32, {rows, columns}, y));
    tensors = logical_tensors(dump);
  }

  const LogicalTensor* tensor(std::string_view module) const {
    return &*std::ranges::find_if(tensors, [&](const LogicalTensor& t) { return t.id.module == module; });
  }

  Replay replay(std::int64_t worst) const {
    const RecordedCall call{
        &find_operator("rms_norm"), "y", {{"x", tensor("x")}, {"weight", tensor("weight")}}};
    return Replay(dump, {call}, merge(dump, *tensor("y")).tensor.whole(), worst);
  }
};

// Work of some 300 * 256^2 terms is above what is replayed whole: rows are left out, but never the worst.
TEST(Replay, TheRowOfTheWorstElementIsReplayed) {
  constexpr std::int64_t rows = 300;
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, std::int64_t{150}, rows - 2, rows - 1}) {
    const std::int64_t fault = row * RecordedNorm::columns + 7;
    const auto ratio = RecordedNorm(rows, fault).replay(fault).ratio({});
    ASSERT_TRUE(ratio) << row;
    EXPECT_GT(*ratio, 1) << row;
  }
}

TEST(Replay, ALargeResultIsReplayedInSomeRowsOnly) {
  const Replay large = RecordedNorm(3000, 0).replay(0), small = RecordedNorm(100, 0).replay(0);
  EXPECT_LE(large.work(), 0x1p24);
  EXPECT_GT(large.work(), small.work());
}

}  // namespace
}  // namespace assay
