// A router whose choice no module of its own makes, and experts whose tokens lie one expert after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "isolated.h"

namespace assay::sorted_experts_test {
namespace {

constexpr std::int64_t tokens = 24, width = 16, experts = 8, chosen = 2;
constexpr auto f = Phase::forward, b = Phase::backward;

struct Place {
  std::string module;
  const char *slot, *arg;
};

// The broken place has one other element on the actual side.
class Run {
 public:
  Run(MemoryDump& dump, Place broken) : dump_(dump), broken_(std::move(broken)) {}

  void record() {
    for (micro_batch_ = 0; micro_batch_ < 2; ++micro_batch_) {
      const auto seed = 10 * static_cast<std::uint64_t>(micro_batch_);
      const Tensor x =
          put(f, {"norm", "output", "y"}, normal_tensor(DType::float32, {tokens, width}, seed + 1));
      const Tensor logits = put(f, {"moe.router.gate", "output", "y"},
                                normal_tensor(DType::float32, {tokens, experts}, seed + 2, 2));
      const auto routed =
          compute_golden(find_operator("router_topk"), std::vector<NamedTensor>{{"logits", logits}},
                         {{{"top_k", 2.}}}, Level::fp64);
      const Tensor weights = put(f, {"moe.router", "output", "0"}, single(output_named(routed, "weights")));
      const Tensor index = put(f, {"moe.router", "output", "1"}, output_named(routed, "index"));
      put(f, {"moe.experts", "input", "counts"}, counts_of(index));
      const std::vector<std::int64_t> places = sorted(index);
      Values rows;
      for (const std::int64_t p : places) {
        for (std::int64_t c = 0; c < width; ++c) rows.push_back(x.value(p / chosen * width + c));
      }
      const Shape of_rows{tokens * chosen, width};
      put(f, {"moe.experts", "input", "x"}, Tensor::from_values(DType::float32, of_rows, rows));
      const Tensor made =
          put(f, {"moe.experts", "output", "y"}, normal_tensor(DType::float32, of_rows, seed + 3));
      Values sums(static_cast<std::size_t>(tokens * width));
      for (std::size_t r = 0; r < places.size(); ++r) {
        for (std::int64_t c = 0; c < width; ++c)
          sums[static_cast<std::size_t>(places[r] / chosen * width + c)] +=
              weights.value(places[r]) * made.value(static_cast<std::int64_t>(r) * width + c);
      }
      put(f, {"moe", "output", "y"}, Tensor::from_values(DType::float32, {tokens, width}, sums));
      const Tensor g =
          put(b, {"moe", "grad_output", "y"}, normal_tensor(DType::float32, {tokens, width}, seed + 4));
      Values of_made, of_weights(static_cast<std::size_t>(tokens * chosen));
      for (std::size_t r = 0; r < places.size(); ++r) {
        for (std::int64_t c = 0; c < width; ++c) {
          const double own = g.value(places[r] / chosen * width + c);
          of_made.push_back(weights.value(places[r]) * own);
          of_weights[static_cast<std::size_t>(places[r])] +=
              own * made.value(static_cast<std::int64_t>(r) * width + c);
        }
      }
      put(b, {"moe.experts", "grad_output", "y"}, Tensor::from_values(DType::float32, of_rows, of_made));
      put(b, {"moe.router", "grad_output", "0"},
          Tensor::from_values(DType::float32, {tokens, chosen}, of_weights));
    }
  }

 private:
  Tensor put(Phase phase, const Place& place, Tensor t) {
    if (micro_batch_ == 1 && place.module == broken_.module && std::string(place.slot) == broken_.slot &&
        std::string(place.arg) == broken_.arg)
      t = is_float(t.dtype()) ? with_one_wrong(t) : with_another_choice(t);
    dump_.add({0, micro_batch_, phase, place.module, place.slot, place.arg, 0}, t).op =
        place.module == "moe.router.gate" ? "linear" : "SomeModule";
    return t;
  }
  static Tensor with_another_choice(const Tensor& t) {
    std::vector<std::int64_t> all = t.indices();
    if (t.shape().size() == 1) {
      ++all[0], --all[1];
    } else {
      while (all[4] == all[5] || all[4] == t.indices()[4]) all[4] = (all[4] + 1) % experts;
    }
    return Tensor::from_indices(t.shape(), all);
  }
  static Tensor counts_of(const Tensor& index) {
    std::vector<std::int64_t> counts(experts);
    for (const std::int64_t e : index.indices()) ++counts[static_cast<std::size_t>(e)];
    return Tensor::from_indices({experts}, counts);
  }
  static std::vector<std::int64_t> sorted(const Tensor& index) {
    std::vector<std::int64_t> places(static_cast<std::size_t>(index.size()));
    std::iota(places.begin(), places.end(), 0);
    const std::vector<std::int64_t> of = index.indices();
    std::ranges::stable_sort(places, {}, [&](std::int64_t i) { return of[static_cast<std::size_t>(i)]; });
    return places;
  }

  MemoryDump& dump_;
  Place broken_;
  std::int64_t micro_batch_ = 0;
};

Report run(const Place& broken) {
  return isolated([&](MemoryDump& d, bool is_actual) { Run(d, is_actual ? broken : Place{}).record(); });
}

TEST(SortedExperts, EachIsJudgedByWhatItFollowsFrom) {
  EXPECT_EQ(run({}).exit_status(), 0);
  for (const Place& broken :
       {Place{"moe.router", "output", "0"}, Place{"moe.experts", "input", "x"},
        Place{"moe.experts", "input", "counts"}, Place{"moe", "output", "y"},
        Place{"moe.experts", "grad_output", "y"}, Place{"moe.router", "grad_output", "0"}}) {
    const std::string name = broken.module + " " + broken.slot + " " + broken.arg;
    EXPECT_EQ(created(run(broken)), std::vector<std::string>{name});
  }
}

// Far from a tie: what is chosen instead is no choice of these scores.
TEST(SortedExperts, AChoiceThatTheScoresDoNotAllowIsWrong) {
  const Report report = run({"moe.router", "output", "1"});
  EXPECT_EQ(finding(report, "moe.router", "output").verdict, Verdict::passed) << "its weights";
  EXPECT_EQ(created(report).front(), "moe.router output 1");
}

}  // namespace
}  // namespace assay::sorted_experts_test
