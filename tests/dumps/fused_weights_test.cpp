// Weights of all experts on one side, of each expert on the other.
#include "assay/dumps/layout/fused_weights.h"

#include "merged_dump.h"

namespace assay::fused_weights_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<double>;

std::unique_ptr<Fake> of(int ranks = 1) {
  return std::make_unique<Fake>(Mesh{{"dp"}, {ranks}});
}

void put(Fake& dump, const std::string& module, const std::string& arg, const Shape& shape,
         const Values& values, int rank = 0, DType dtype = DType::float32) {
  dump.add(rank, {replicate}, shape, shape, values, {}, dtype);
  dump.records.back().id = {0, -1, Phase::forward, module, "param", arg, 0};
}

std::unique_ptr<Fake> fused() {
  auto dump = of();
  put(*dump, "l.experts", "gate_up_proj", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  put(*dump, "l.experts", "down_proj", {2, 2, 1}, {1, 2, 3, 4});
  return dump;
}

Values values(const Dump& dump, const std::string& arg) {
  for (const LogicalTensor& t : logical_tensors(dump)) {
    if (t.id.module == "l.experts" && t.id.arg == arg) {
      const Merged merged = merge(dump, t);
      EXPECT_THAT(merged.replicas, IsEmpty());
      return merged.tensor.whole().values();
    }
  }
  return {};
}

void expect_fused(std::unique_ptr<Dump> own) {
  std::unique_ptr<Dump> reference = fused();
  fuse_weights(own, reference);
  EXPECT_THAT(values(*own, "gate_up_proj"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(values(*own, "down_proj"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(own->notes, ElementsAre(HasSubstr("2 weights of all experts are put together")));
  for (const Record& r : own->records) EXPECT_EQ(r.within, r.id.module != "l.experts") << to_string(r.id);
}

TEST(FusedWeights, OfEachExpert) {
  for (const int ranks : {1, 2}) {  // the second has the first's copies
    auto dump = of(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      put(*dump, "l.experts.0.gate_proj", "weight", {1, 2}, {1, 2}, rank);
      put(*dump, "l.experts.0.up_proj", "weight", {1, 2}, {3, 4}, rank);
      put(*dump, "l.experts.0.down_proj", "weight", {2, 1}, {1, 2}, rank);
      put(*dump, "l.experts.1.gate_proj", "weight", {1, 2}, {5, 6}, rank);
      put(*dump, "l.experts.1.up_proj", "weight", {1, 2}, {7, 8}, rank);
      put(*dump, "l.experts.1.down_proj", "weight", {2, 1}, {3, 4}, rank);
    }
    expect_fused(std::move(dump));
  }
}

TEST(FusedWeights, OfEachRankItsExperts) {
  auto dump = of(2);
  for (const int e : {0, 1}) {
    const std::string expert = "l.experts." + std::to_string(e);
    put(*dump, expert + ".w1", "weight", {1, 2}, e == 0 ? Values{1, 2} : Values{5, 6}, e);
    put(*dump, expert + ".w3", "weight", {1, 2}, e == 0 ? Values{3, 4} : Values{7, 8}, e);
    put(*dump, expert + ".w2", "weight", {2, 1}, e == 0 ? Values{1, 2} : Values{3, 4}, e);
  }
  expect_fused(std::move(dump));
}

TEST(FusedWeights, OfEachMatrix) {
  auto dump = of();
  put(*dump, "l.experts.*.gate_proj", "weight", {2, 1, 2}, {1, 2, 5, 6});
  put(*dump, "l.experts.*.up_proj", "weight", {2, 1, 2}, {3, 4, 7, 8});
  put(*dump, "l.experts.*.down_proj", "weight", {2, 2, 1}, {1, 2, 3, 4});
  expect_fused(std::move(dump));
}

TEST(FusedWeights, WhatIsNotWholeStaysAsItIs) {
  const auto expect_alone = [](std::unique_ptr<Dump> own) {
    std::unique_ptr<Dump> reference = fused();
    const std::size_t count = own->records.size();
    fuse_weights(own, reference);
    EXPECT_EQ(own->records.size(), count);
    EXPECT_THAT(own->notes, IsEmpty());
  };
  const auto one = [](const std::string& expert, const Shape& up, DType dtype) {
    auto dump = of();
    put(*dump, "l.experts." + expert + ".gate_proj", "weight", {1, 2}, {1, 2});
    put(*dump, "l.experts." + expert + ".up_proj", "weight", up,
        Values(static_cast<std::size_t>(element_count(up))), 0, dtype);
    return dump;
  };
  expect_alone(one("1", {1, 2}, DType::float32));  // expert 0 lacks
  expect_alone(one("-1", {1, 2}, DType::float32));
  auto huge = of();
  for (const char* part : {"gate_proj", "up_proj"})
    put(*huge, std::string("l.experts.*.") + part, "weight", {0, std::int64_t{1} << 62, 1}, {});
  expect_alone(std::move(huge));
  expect_alone(one("0", {2, 2}, DType::float32));
  expect_alone(one("0", {2}, DType::float32));
  expect_alone(one("0", {1, 2}, DType::bfloat16));
  auto cut = one("0", {1, 2}, DType::float32);
  cut->records.back().global_shape = {2, 2};
  expect_alone(std::move(cut));
}

}  // namespace
}  // namespace assay::fused_weights_test
