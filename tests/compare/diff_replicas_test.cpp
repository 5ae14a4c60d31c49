#include "diff_dumps.h"

namespace assay::diff_replicas_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Mesh row_of(const char* dim) {
  return {{dim}, {2}};
}

TEST(Diff, ReplicasThatDifferAreAClassOfTheirOwn) {
  MemoryDump a("a"), r("r");
  a.world_size = 2;
  a.mesh = row_of("tp");
  const Identity id = identity(Phase::backward, "norm", "grad", "weight");
  a.add_copy(id, 0, float32({1, 2})), a.add_copy(id, 1, float32({1, 2.00001}));
  r.add(id, float32({1, 2}));
  const Report report = diff(a, r, options("[[count]]\nmatch='*'\ncount=1"));
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.verdict, Verdict::replicas_differ) << "although both are inside the tolerance";
  EXPECT_EQ(f.rule, "replicas: every bit equal");
  EXPECT_THAT(f.reason, HasSubstr("actual: ranks 0 and 1 (tp) should hold the same bits; 1 elements differ"));
  EXPECT_THAT(f.notes, ElementsAre("the copies of the first ranks agree with the reference"));
  EXPECT_THAT(f.diagnoses, IsEmpty());
  EXPECT_EQ(report.exit_status(), 1);
}

TEST(Diff, CopiesThatAddNothingAreNoPartialSums) {
  const Identity id = identity(Phase::backward, "norm", "grad", "weight");
  for (const bool first : {true, false}) {
    MemoryDump a("a"), r("r");
    a.world_size = 2;
    a.mesh = row_of("tp");
    a.add_copy(id, first ? 0 : 1, float32({1, 2})), a.add_copy(id, first ? 1 : 0, float32({1e-5, 0}));
    r.add(id, float32({1, 2}));
    const Report report = diff(a, r, options("[[count]]\nmatch='*'\ncount=1"));
    EXPECT_EQ(report.findings.front().verdict, Verdict::replicas_differ);
    EXPECT_THAT(report.findings.front().diagnoses, IsEmpty()) << "one copy alone is the reference";
  }
}

TEST(Diff, ReplicasWhoseSumIsTheReferenceMissAnAllReduce) {
  MemoryDump a("a"), r("r");
  a.world_size = 2;
  a.mesh = row_of("tp");
  const Identity id = identity(Phase::backward, "norm", "grad", "weight");
  a.add_copy(id, 0, float32({1, -2})), a.add_copy(id, 1, float32({3, 7}));
  r.add(id, float32({4, 5}));
  const Report report = diff(a, r, options("[[count]]\nmatch='*'\ncount=1"));
  EXPECT_EQ(report.findings.front().verdict, Verdict::replicas_differ);
  ASSERT_EQ(report.findings.front().diagnoses.size(), 1U);
  EXPECT_EQ(report.findings.front().diagnoses[0].cause, Cause::partial_sum);
  EXPECT_THAT(report.findings.front().diagnoses[0].parameters.axis, "tp");
  EXPECT_THAT(sentence(report.findings.front().diagnoses[0]),
              AllOf(HasSubstr("their sum is the reference"), HasSubstr("all-reduce over tp is missing")));
}

TEST(Diff, ReplicasOfTheReferenceCountToo) {
  MemoryDump a("a"), r("r");
  r.world_size = 2;
  r.mesh = row_of("dp");
  const Identity id = identity(Phase::backward, "norm", "grad", "weight");
  a.add(id, float32({1}));
  r.add_copy(id, 0, float32({1})), r.add_copy(id, 1, float32({2}));
  const Finding f = diff(a, r, options()).findings.front();
  EXPECT_EQ(f.verdict, Verdict::replicas_differ);
  EXPECT_THAT(f.reason, HasSubstr("reference: ranks 0 and 1 (dp)"));
}

// Three modules in a row whose results two ranks should hold alike.
struct TornChain : MemoryDump {
  explicit TornChain(std::vector<std::string> torn, bool follows = false) : MemoryDump("d") {
    world_size = 2;
    mesh = row_of("tp");
    Tensor given = float32({1, 2}), given_to_other = given;
    for (const char* module : {"one", "two", "three"}) {
      copies(module, "input", "x", given, given_to_other);
      const bool differs = std::ranges::find(torn, module) != torn.end();
      const Tensor y = float32({3, 4});
      const Tensor of_other = differs || (follows && given_to_other.value(0) != 1) ? float32({3, 5}) : y;
      copies(module, "output", "y", y, of_other);
      given = float32({1, 2}), given_to_other = follows && differs ? float32({7, 2}) : given;
    }
  }
  void copies(const char* module, const char* slot, const char* arg, const Tensor& first,
              const Tensor& second) {
    const Identity id{0, 0, Phase::forward, module, slot, arg, 0};
    add_copy(id, 0, first), add_copy(id, 1, second);
  }
};

std::vector<std::string> roots(const Report& report) {
  std::vector<std::string> names;
  for (const Finding& f : report.findings) {
    if (f.verdict == Verdict::replicas_differ) names.push_back(f.id.module + " " + f.id.slot);
  }
  return names;
}

TEST(Diff, EachOfThreeTornResultsIsARoot) {
  const Report report =
      diff(TornChain({"one", "two", "three"}), TornChain({}), options("[[count]]\nmatch='*'\ncount=1"));
  EXPECT_THAT(roots(report), ElementsAre("one output", "two output", "three output"));
}

TEST(Diff, WhatIsMadeOfTornReplicasInheritsFromThem) {
  const Report report =
      diff(TornChain({"one"}, true), TornChain({}), options("[[count]]\nmatch='*'\ncount=1"));
  EXPECT_THAT(roots(report), ElementsAre("one output"));
  for (const Finding& f : report.findings) {
    if (f.verdict != Verdict::inherited) continue;
    EXPECT_EQ(f.origin->root, report.first_failure()->name) << f.name;
  }
  EXPECT_EQ(report.count(Verdict::inherited), 2) << "what is given to two, and what two makes of it";
}

}  // namespace
}  // namespace assay::diff_replicas_test
