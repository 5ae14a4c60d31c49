// One side counts calls over the step, the other has micro-batches.
#include "assay/dumps/layout/calls_of_step.h"

#include "merged_dump.h"

namespace assay::calls_of_step_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<double>;

struct Recorded : Fake {
  Recorded() : Fake(Mesh{{}, {}}) {}
  void put(std::int64_t micro_batch, Phase phase, const char* module, const char* slot, std::int64_t call,
           const Values& values = {1}) {
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    add(0, {}, shape, shape, values, {});
    records.back().id = {0, micro_batch, phase, module, slot, "v", call};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Record& r : records) all.push_back(to_string(r.id));
    return all;
  }
  Values values(const char* slot) const {
    for (const LogicalTensor& t : logical_tensors(*this)) {
      if (t.id.slot == slot && t.id.call == 0 && !t.within) return merge(*this, t).tensor.whole().values();
    }
    return {};
  }
};

constexpr auto f = Phase::forward, b = Phase::backward;

TEST(CallsOfStep, AreThoseOfItsMicroBatches) {
  Recorded counted, batches;
  for (int call = 0; call < 4; ++call) counted.put(-1, f, "shared", "output", call);
  for (int call = 0; call < 2; ++call) counted.put(-1, f, "expert", "output", call);
  counted.put(-1, b, "expert", "grad_output", 1);
  counted.put(-1, f, "silu", "output", 1);  // not of the other side
  counted.put(-1, f, "silu", "output", 5);
  for (int batch = 0; batch < 2; ++batch) {
    batches.put(batch, f, "shared", "output", 0);
    batches.put(batch, f, "shared", "output", 1);
  }
  batches.put(1, f, "expert", "output", 0);  // both calls in the second
  batches.put(1, f, "expert", "output", 1);
  number_calls_of_step(batches, counted);
  EXPECT_THAT(counted.names(), ElementsAre("shared output v (step 0, micro-batch 0, forward)",
                                           "shared output v (step 0, micro-batch 0, forward, call 1)",
                                           "shared output v (step 0, micro-batch 1, forward)",
                                           "shared output v (step 0, micro-batch 1, forward, call 1)",
                                           "expert output v (step 0, micro-batch 1, forward)",
                                           "expert output v (step 0, micro-batch 1, forward, call 1)",
                                           "expert grad_output v (step 0, micro-batch 1, backward, call 1)",
                                           "silu output v (step 0, micro-batch 0, forward)",
                                           "silu output v (step 0, micro-batch 1, forward)"));
  EXPECT_THAT(counted.notes, ElementsAre(HasSubstr("calls are counted over the step")));
  EXPECT_THAT(batches.notes, IsEmpty());
}

TEST(CallsOfStep, WhatFitsNoMicroBatchStays) {
  Recorded counted, batches;
  for (int call = 0; call < 3; ++call) counted.put(-1, f, "expert", "output", call);
  for (int batch = 0; batch < 2; ++batch) batches.put(batch, f, "expert", "output", 0);
  const auto before = counted.names();
  number_calls_of_step(counted, batches);
  EXPECT_EQ(counted.names(), before);
  EXPECT_THAT(counted.notes, IsEmpty());
}

TEST(CallsOfStep, AWeightOfEachCallIsOneOfTheStep) {
  for (const bool adds : {true, false}) {
    Recorded counted, other;
    for (int call = 0; call < 3; ++call) {
      counted.put(-1, f, "fc", "param", call, {7, 8});
      const double own = call + 1, all = own * (own + 1) / 2;
      counted.put(-1, b, "fc", "grad", call,
                  adds ? Values{own, -own * own} : Values{all, -all * (2 * own + 1) / 3});
    }
    other.put(-1, f, "fc", "param", 0, {7, 8});
    other.put(-1, b, "fc", "grad", 0, {6, -14});
    number_calls_of_step(counted, other);
    EXPECT_EQ(counted.values("param"), (Values{7, 8}));
    EXPECT_EQ(counted.values("grad"), (Values{6, -14}))
        << (adds ? "each call's own" : "what they were added to");
  }
}

TEST(CallsOfStep, OfBothSidesStayAsTheyAre) {
  Recorded a, r;
  for (Recorded* side : {&a, &r}) {
    for (int call = 0; call < 2; ++call) {
      side->put(-1, f, "fc", "output", call);
      side->put(-1, b, "fc", "grad", call);
    }
  }
  const auto before = a.names();
  number_calls_of_step(a, r);
  EXPECT_EQ(a.names(), before);
  EXPECT_EQ(r.names(), before);
}

}  // namespace
}  // namespace assay::calls_of_step_test
