// Two sides that cut one batch into micro-batches in different ways.
#include "assay/dumps/layout/micro_batches.h"

#include "assay/dumps/layout/layout_rules.h"
#include "merged_dump.h"

namespace assay::micro_batches_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<double>;

// Samples of two numbers each: tokens, what is made of them, and a loss.
struct Batches : Fake {
  explicit Batches(Mesh m) : Fake(std::move(m)) {}
  void put(int rank, std::int64_t micro_batch, Phase phase, const char* slot, const Shape& shape,
           const Values& values, DType dtype = DType::float32) {
    add(rank, std::vector<Placement>(mesh.dims.size(), replicate), shape, shape, values, {}, dtype);
    records.back().id = {0, micro_batch, phase, "m", slot, "v", 0};
  }
  void batch(int rank, std::int64_t micro_batch, const std::vector<int>& samples) {
    Values tokens, y;
    double loss = 0;
    for (const int s : samples) {
      tokens.insert(tokens.end(), {10.0 * s, 10.0 * s + 1});
      y.insert(y.end(), {100.0 * s, 100.0 * s + 1});
      loss += s;
    }
    const auto n = static_cast<std::int64_t>(samples.size());
    put(rank, micro_batch, Phase::forward, "input", {n, 2}, tokens, DType::int64);
    put(rank, micro_batch, Phase::forward, "output", {n, 2}, y);
    put(rank, micro_batch, Phase::forward, "loss", {}, {loss});
    put(rank, micro_batch, Phase::forward, "param", {2}, {7, 8});  // a table, the same in each
  }
  Values values(const char* slot, std::int64_t micro_batch = 0) const {
    for (const LogicalTensor& t : logical_tensors(*this)) {
      if (t.id.slot == slot && t.id.micro_batch == micro_batch)
        return merge(*this, t).tensor.whole().values();
    }
    return {};
  }
};

const Mesh alone = {{}, {}}, two_ranks = {{"dp"}, {2}};

void expect_same(const Batches& parts, const Batches& whole, std::int64_t micro_batch = 0) {
  for (const char* slot : {"input", "output", "loss", "param"})
    EXPECT_EQ(parts.values(slot, micro_batch), whole.values(slot, micro_batch)) << slot << micro_batch;
}

TEST(MicroBatches, OfRanksAreShardsOfALargerOne) {
  Batches parts(two_ranks);
  parts.batch(0, 0, {0, 1});
  parts.batch(1, 1, {2, 3});
  Batches reference(alone);
  reference.batch(0, 0, {0, 1, 2, 3});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.notes,
              ElementsAre(HasSubstr("2 micro-batches of 2 samples each are compared with one of 4")));
  EXPECT_THAT(reference.notes, IsEmpty());
  EXPECT_EQ(logical_tensors(parts).size(), logical_tensors(reference).size());
  expect_same(parts, reference);
}

TEST(MicroBatches, OfOneProcessAreToo) {
  Batches parts(alone);
  parts.batch(0, 0, {0, 1});
  parts.batch(0, 1, {2, 3});
  Batches actual(alone);
  actual.batch(0, 0, {0, 1, 2, 3});
  apply_layouts(actual, parts, {});
  EXPECT_THAT(parts.notes, ElementsAre(HasSubstr("has them one behind the other")));
  expect_same(parts, actual);
}

// As a DistributedSampler deals them out.
TEST(MicroBatches, SamplesInTurnAreStridedShards) {
  Batches parts(two_ranks);
  parts.batch(0, 0, {0, 2});
  parts.batch(1, 1, {1, 3});
  parts.batch(0, 2, {4, 6});
  parts.batch(1, 3, {5, 7});
  Batches reference(alone);
  reference.batch(0, 0, {0, 1, 2, 3});
  reference.batch(0, 1, {4, 5, 6, 7});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.notes, ElementsAre(HasSubstr("has their samples in turn")));
  for (const std::int64_t micro_batch : {0, 1}) expect_same(parts, reference, micro_batch);
}

// A step of two ranks that accumulate gradients.
TEST(MicroBatches, GroupsInTurnLieBehindEachOther) {
  Batches parts(two_ranks);
  parts.batch(0, 0, {0, 2});
  parts.batch(1, 1, {1, 3});
  parts.batch(0, 2, {4, 6});
  parts.batch(1, 3, {5, 7});
  Batches reference(alone);
  reference.batch(0, 0, {0, 1, 2, 3, 4, 5, 6, 7});
  apply_layouts(parts, reference, {});
  EXPECT_EQ(parts.mesh.shape, (Shape{2, 2, 2}));
  expect_same(parts, reference);
}

// Of two gradients of what samples share the sum is that of the whole, averaged or not; a number that a
// module is given is no addend.
TEST(MicroBatches, WhatIsAsLargeInEachIsASumOrTheSame) {
  for (const double factor : {1.0, 0.5}) {
    Batches parts(two_ranks), reference(alone);
    const std::vector<Values> gradients = {{1, 5, -2}, {4, -3, 1}};
    for (const int rank : {0, 1}) {
      parts.batch(rank, rank, {2 * rank, 2 * rank + 1});
      parts.put(rank, rank, Phase::backward, "grad_output", {3}, gradients[static_cast<std::size_t>(rank)]);
      parts.put(rank, rank, Phase::forward, "state", {}, {0.125});
    }
    reference.batch(0, 0, {0, 1, 2, 3});
    reference.put(0, 0, Phase::backward, "grad_output", {3}, {5 * factor, 2 * factor, -1 * factor});
    reference.put(0, 0, Phase::forward, "state", {}, {0.125});
    apply_layouts(parts, reference, {});
    EXPECT_EQ(parts.values("grad_output"), (Values{5, 2, -1})) << factor;
    EXPECT_EQ(parts.values("state"), Values{0.125});
  }
}

TEST(MicroBatches, OfOtherSamplesStayAsTheyAre) {
  for (const std::vector<int>& second : {std::vector<int>{2, 4}, {3, 2}, {2, 2}, {2, 3, 4}}) {
    Batches parts(two_ranks);
    parts.batch(0, 0, {0, 1});
    parts.batch(1, 1, second);
    Batches reference(alone);
    reference.batch(0, 0, {0, 1, 2, 3});
    apply_layouts(parts, reference, {});
    EXPECT_THAT(parts.notes, IsEmpty());
    EXPECT_EQ(parts.mesh.dims, two_ranks.dims);
    EXPECT_EQ(parts.values("input", 0), (Values{0, 1, 10, 11}));
  }
}

TEST(MicroBatches, RowsOfAnExpertLieBehindEachOtherIfTheyFit) {
  const auto placed = [](const Values& second) {
    Batches parts(two_ranks);
    parts.batch(0, 0, {0, 1});
    parts.put(0, 0, Phase::forward, "grad_input", {1, 2}, {5, 6});
    parts.batch(1, 1, {2, 3});
    parts.put(1, 1, Phase::forward, "grad_input", {2, 2}, second);
    Batches reference(alone);
    reference.batch(0, 0, {0, 1, 2, 3});
    reference.put(0, 0, Phase::forward, "grad_input", {3, 2}, {5, 6, -7, 8, 9, -10});
    apply_layouts(parts, reference, {});
    return std::pair(parts.values("grad_input"), why_unplaced(parts));
  };
  EXPECT_EQ(placed({-7, 8, 9, -10.5}).first, (Values{5, 6, -7, 8, 9, -10.5}));
  const auto [values, why] = placed({9, -10, -7, 8});  // in another order: nobody says in which
  EXPECT_EQ(values, Values());
  ASSERT_EQ(why.size(), 1u);
  EXPECT_THAT(why.begin()->second, HasSubstr("compare runs with micro-batches of one size"));
}

}  // namespace
}  // namespace assay::micro_batches_test
