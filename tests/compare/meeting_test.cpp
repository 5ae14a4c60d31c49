// How names of both sides meet.
#include "diff_dumps.h"

namespace assay::meeting_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto f = Phase::forward, b = Phase::backward;

Tensor numbers(const Shape& shape, double factor = 1) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i)
    values.push_back(factor * static_cast<double>(i + 1));
  return Tensor::from_values(DType::float32, shape, values);
}

Report compared(const std::vector<Identity>& actual, const std::vector<Identity>& reference,
                std::string_view rules = "") {
  MemoryDump a("a"), r("r");
  for (const Identity& id : actual) a.add(id, numbers({2}));
  for (const Identity& id : reference) r.add(id, numbers({2}));
  return diff(a, r, options(rules));
}

TEST(Meeting, WrappersAreDroppedWhereBothSidesMeetSo) {
  for (const auto& [own, other] :
       {std::pair("module.layers.0.fc", "layers.0.fc"),
        {"layers.0.fc", "_orig_mod.layers.0.fc"},
        {"module._orig_mod.layers.0._checkpoint_wrapped_module.fc", "layers._fsdp_wrapped_module.0.fc"}}) {
    const Report report = compared({identity(f, own, "output", "y")}, {identity(f, other, "output", "y")});
    EXPECT_EQ(report.exit_status(), 0) << own;
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings[0].id.module, other) << "the reference's names are those of the report";
    EXPECT_THAT(report.notes, ElementsAre(HasSubstr("1 tensors are compared without '")));
  }
  const auto id = identity(f, "module.fc", "output", "y");
  EXPECT_THAT(compared({id}, {id}).notes, IsEmpty()) << "both have it";
}

TEST(Meeting, WhatTheReferenceLacksIsToldInItsWords) {
  Identity second = identity(f, "module.expert", "output", "y");
  second.call = 1;
  const Report report =
      compared({identity(f, "module.expert", "output", "y"), second}, {identity(f, "expert", "output", "y")});
  ASSERT_EQ(report.count(Verdict::missing_reference), 1);
  for (const Finding& x : report.findings) EXPECT_EQ(x.id.module, "expert") << x.name;
}

TEST(Meeting, WhatWouldMeetTwoIsLeftAlone) {
  const Report report =
      compared({identity(f, "fc", "output", "y")},
               {identity(f, "module.fc", "output", "y"), identity(f, "_orig_mod.fc", "output", "y")});
  EXPECT_EQ(report.count(Verdict::missing_actual), 2);
}

TEST(Meeting, AProgramsOnlyLossIsTheOther) {
  const Report report =
      compared({identity(f, "loss", "loss", "lm")}, {identity(f, "head", "loss", "cross_entropy")});
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_THAT(report.notes,
              ElementsAre("the loss 'loss lm' is compared with the reference's 'head cross_entropy'"));
  const Report two = compared({identity(f, "loss", "loss", "lm")},
                              {identity(f, "head", "loss", "a"), identity(f, "head", "loss", "b")});
  EXPECT_EQ(two.count(Verdict::missing_actual), 2) << "which?";
}

TEST(Meeting, ArgumentsMeetByPositionAndShape) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    const bool own = d == &a;
    d->add(identity(f, "norm", "input", own ? "input" : "hidden_states"), numbers({2, 3}));
    d->add(identity(b, "norm", "grad_input", own ? "input" : "hidden_states"), numbers({2, 3}));
    d->add(identity(f, "rope", "output", own ? "0" : "cos"), numbers({2, 3}, 2));
    d->add(identity(f, "rope", "output", own ? "1" : "sin"), numbers({2, 3}, 3));
    d->add(identity(f, "fc", "input", own ? "x" : "input"), own ? numbers({4}) : numbers({2, 3}));
  }
  const Report report = diff(a, r, options());
  EXPECT_EQ(at(report, "rope output sin (step 0, micro-batch 0, forward)").verdict, Verdict::passed);
  EXPECT_EQ(at(report, "norm grad_input hidden_states (step 0, micro-batch 0, backward)").verdict,
            Verdict::passed);
  EXPECT_EQ(report.count(Verdict::missing_actual), 1) << "of another shape";
  EXPECT_EQ(report.notes.size(), 3u) << "input, 0, 1";
}

TEST(Meeting, TokenDimensionsMayBeOne) {
  MemoryDump a("a"), r("r");
  a.add(identity(f, "x", "output", "y"), numbers({24, 4}));
  r.add(identity(f, "x", "output", "y"), numbers({2, 12, 4}));
  a.add(identity(f, "z", "output", "y"), numbers({4, 6}));
  r.add(identity(f, "z", "output", "y"), numbers({6, 4}));
  const Report report = diff(a, r, options());
  EXPECT_EQ(at(report, "x output y (step 0, micro-batch 0, forward)").verdict, Verdict::passed);
  EXPECT_EQ(at(report, "z output y (step 0, micro-batch 0, forward)").verdict, Verdict::not_comparable);
}

TEST(Meeting, NothingEqualsAGradientOfZeros) {
  MemoryDump a("a"), r("r");
  const Identity expert = {0, -1, b, "expert", "grad", "w", 0}, other = {0, -1, b, "other", "grad", "w", 0};
  r.add(expert, Tensor::from_values(DType::float32, {2}, std::vector<double>{0, 0}));
  r.add(other, numbers({2}));
  a.add(identity(f, "x", "output", "y"), numbers({2}));
  r.add(identity(f, "x", "output", "y"), numbers({2}));
  const Report report = diff(a, r, options());
  EXPECT_EQ(at(report, to_string(expert)).verdict, Verdict::exempt);
  EXPECT_EQ(at(report, to_string(other)).verdict, Verdict::missing_actual);
}

TEST(Meeting, TheRuleThatIsMissingIsSaid) {
  std::vector<Identity> own, others;
  for (const std::string layer : {"0", "1", "2"}) {
    own.push_back(identity(f, "decoder.layers." + layer + ".fc1", "output", "y"));
    others.push_back(identity(f, "model.encoder.layers." + layer + ".fc1", "output", "y"));
  }
  const Report report = compared(own, others);
  const std::string rule = "[[rename]] from = '^decoder\\.' to = 'model.encoder.'";
  EXPECT_THAT(report.notes, ElementsAre("3 tensors of each side would meet with the rule " + rule));
  EXPECT_EQ(compared(own, others, "[[rename]]\nfrom = '^decoder\\.'\nto = 'model.encoder.'").exit_status(), 0)
      << "and it is right";
}

TEST(Meeting, RulesRenameArgumentsToo) {
  const std::string rule = "[[rename]]\nof='argument'\nfrom='^input\\.(.*)$'\nto='output.$1_0'";
  EXPECT_EQ(
      compared({identity(f, "x", "input", "y")}, {identity(f, "x", "output", "y_0")}, rule).exit_status(), 0);
  EXPECT_THROW(options("[[rename]]\nof='slot'\nfrom='a'\nto='b'"), Error);
}

}  // namespace
}  // namespace assay::meeting_test
