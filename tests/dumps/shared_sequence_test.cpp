// Ranks that share out a sequence, of which no recorder says how it lies over them.
#include <algorithm>
#include <string>
#include <vector>

#include "assay/dumps/layout/layout_rules.h"
#include "merged_dump.h"

namespace assay::shared_sequence_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using Values = std::vector<double>;

constexpr auto f = Phase::forward, b = Phase::backward;

// Of two ranks over cp, or of one with the whole.
class Shared : public Fake {
 public:
  explicit Shared(bool is_shared) : Fake({{"cp"}, {is_shared ? 2 : 1}}) {}

  // In the order of execution. Parts that differ are unplaced.
  void put(Phase phase, const std::string& module, const char* slot, const std::vector<Values>& parts,
           Shape shape, DType dtype = DType::float32) {
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_size); ++rank) {
      Shape own = shape;
      if (own.size() > 1) own[0] = std::ssize(parts[rank]) / (element_count(shape) / shape[0]);
      add(static_cast<int>(rank), {replicate}, own, own, parts[rank], {}, dtype);
      Record& r = records.back();
      r.id = {0, 0, phase, module, slot, "x", 0};
      r.seq = seq_;
      if (parts.size() > 1 && parts[0] != parts[1]) r.unplaced = {0};
    }
    ++seq_;
  }
  Merged merged(const std::string& module, const char* slot) const {
    for (const LogicalTensor& t : logical_tensors(*this)) {
      if (t.id.module == module && t.id.slot == slot) return merge(*this, t);
    }
    ADD_FAILURE() << module << " " << slot;
    return {};
  }
  Values values(const std::string& module, const char* slot) const {
    return merged(module, slot).tensor.whole().values();
  }

 private:
  std::int64_t seq_ = 0;
};

TEST(SharedSequence, TokensSayThatItIsSharedOutInAZigzag) {
  Shared parts(true), whole(false);
  const Values tokens = {10, 11, 12, 13, 14, 15, 16, 17};
  whole.put(f, "", "input", {tokens}, {8}, DType::int64);
  parts.put(f, "", "input", {{10, 11, 16, 17}, {12, 13, 14, 15}}, {4}, DType::int64);
  // Results are off by roundings, and lie as the tokens do.
  whole.put(f, "norm", "output", {{0, 1, 2, 3, 4, 5, 6, 7}}, {8});
  parts.put(f, "norm", "output", {{0.5, 1, 6, 7}, {2, 3, 4, 5}}, {4});
  apply_layouts(parts, whole, {});
  EXPECT_THAT(parts.left_out, IsEmpty());
  EXPECT_EQ(parts.values("", "input"), tokens);
  EXPECT_THAT(parts.values("norm", "output"), ElementsAre(0.5, 1, 2, 3, 4, 5, 6, 7));
}

TEST(SharedSequence, CountsOfTokensAreAddedUp) {
  for (const bool is_right : {true, false}) {
    Shared parts(true), whole(false);
    whole.put(f, "", "input", {{10, 11, 12, 13}}, {4}, DType::int64);
    parts.put(f, "", "input", {{10, 11}, {12, 13}}, {2}, DType::int64);
    whole.put(f, "experts", "input", {{3, 1}}, {2}, DType::int64);
    parts.put(f, "experts", "input", {{1, 1}, {is_right ? 2. : 1, 0}}, {2}, DType::int64);
    apply_layouts(parts, whole, {});
    const Merged merged = parts.merged("experts", "input");
    EXPECT_EQ(merged.replicas.empty(), is_right);
    if (is_right) {
      EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(3, 1));
    }
  }
}

// Each token has two experts, and each rank sorts its own tokens by them.
TEST(SharedSequence, RowsOfExpertsAreThoseOfTheirTokens) {
  Shared parts(true), whole(false);
  const std::vector<Values> tokens = {{1, 2}, {3, 4}, {5, 6}, {7, 8}},
                            ours = {{1, 2}, {3, 5}, {5, 6}, {7, 8}};
  const auto rows = [](const std::vector<Values>& of, const std::vector<std::size_t>& which,
                       double factor = 1) {
    Values all;
    for (const std::size_t i : which) {
      for (const double v : of[i]) all.push_back(factor * v);
    }
    return all;
  };
  whole.put(f, "norm", "output", {rows(tokens, {0, 1, 2, 3})}, {4, 2});
  parts.put(f, "norm", "output", {rows(ours, {0, 1}), rows(ours, {2, 3})}, {2, 2});
  // Expert 0 has tokens 0, 2 and 3, expert 1 all but 3, expert 2 the last two of them once more.
  const std::vector<std::size_t> sorted = {0, 2, 3, 0, 1, 2, 1, 3}, first = {0, 0, 1, 1},
                                 second = {2, 3, 2, 3};
  for (const char* slot : {"input", "output"}) {
    const double factor = slot[0] == 'i' ? 1 : 2;
    whole.put(f, "experts", slot, {rows(tokens, sorted, factor)}, {8, 2});
    parts.put(f, "experts", slot, {rows(ours, first, factor), rows(ours, second, factor)}, {4, 2});
  }
  apply_layouts(parts, whole, {});
  EXPECT_THAT(parts.left_out, IsEmpty());
  EXPECT_EQ(parts.values("experts", "input"), rows(ours, sorted));
  EXPECT_EQ(parts.values("experts", "output"), rows(ours, sorted, 2));
}

// Ranks that share experts' weights hand back addends of a gradient; behind the module around them they agree
// again.
TEST(SharedSequence, AddendsOfAGradientAreAddedUpWhereRanksAgreeBehindThem) {
  for (const bool is_reduced : {true, false}) {
    Shared parts(true), whole(false);
    const auto put = [&](Phase phase, const char* module, const char* slot, const Values& all,
                         const std::vector<Values>& own) {
      whole.put(phase, module, slot, {all}, {2});
      parts.put(phase, module, slot, own, {2});
    };
    put(f, "moe.experts", "input", {1, 2}, {{1, 2}, {1, 2}});
    put(f, "moe", "output", {4, 6}, {{4, 6}, {4, 6}});
    put(b, "moe.experts", "grad_input", {5, 7}, {{2, 8}, {3, -1}});
    const std::vector<Values> own = {{2, 8}, {3, -1}};
    put(b, "norm", "grad_output", {5, 7}, is_reduced ? std::vector<Values>{{5, 7}, {5, 7}} : own);
    apply_layouts(parts, whole, {});
    const Merged merged = parts.merged("moe.experts", "grad_input");
    EXPECT_EQ(merged.replicas.empty(), is_reduced);
    if (is_reduced) {
      EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(5, 7));
    }
  }
}

}  // namespace
}  // namespace assay::shared_sequence_test
