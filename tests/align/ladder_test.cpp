// The ladder: its stages, how it is climbed, what is found at a failing one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "assay/align/faults/fault.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/align/ladder/walk.h"
#include "assay/golden/error.h"

namespace assay::align::ladder_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using State = RungResult::State;

// A dense layer and one of experts.
const std::string model = ASSAY_TEST_DATA "/models/latent.toml,layers=2";

Work small_work(const std::string& precision = "fp32") {
  Work w;
  w.model = model;
  w.precision = precision;
  w.length = 8;
  w.steps = 1;
  return w;
}

std::filesystem::path fresh_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<std::string> names_of(const std::vector<Rung>& rungs) {
  std::vector<std::string> names;
  for (const Rung& r : rungs) names.push_back(r.name);
  return names;
}

LadderResult climb(const LadderPlan& plan, Provider& subject, Provider& reference) {
  const CheckOptions options = {.folder = fresh_folder(),
                                .policies = {load_policy("telechat3")},
                                .rules = {},
                                .threads = 1,
                                .keep = false};
  return walk(plan, {subject, reference}, options, [](const Rung&, const RungResult*) {});
}

// Without the larger ones, which show nothing new here.
std::vector<Rung> small_ladder(const Work& work, const Parallel& target) {
  std::vector<Rung> rungs = ladder_of(work, target);
  std::erase_if(rungs, [](const Rung& r) { return r.kind == Rung::Kind::larger; });
  return rungs;
}

LadderResult climb(const std::string& target, const std::string& fault) {
  const Parallel parallel = parse_parallel(target);
  const auto subject = replay_provider(fault), reference = replay_provider("");
  return climb({small_ladder(small_work(), parallel)}, *subject, *reference);
}

std::vector<State> states_of(const LadderResult& result) {
  std::vector<State> states;
  for (const RungResult& r : result.rungs) states.push_back(r.state);
  return states;
}

TEST(Switches, AStrategyIsTakenApartAndPutTogether) {
  const Parallel p =
      parse_parallel("tp=2,sp=1,dp=4,zero=1,pp=2,vpp=2,schedule=interleaved,ep=2,recompute=full");
  const SwitchSet on = switches_of(p);
  EXPECT_EQ(to_string(on), "tp + sp + dp + zero + pp + schedule + ep + recompute");
  EXPECT_EQ(with_only(p, on), p);
  EXPECT_EQ(to_string(with_only(p, {"tp", "ep"})), "tp=2,ep=2");
  EXPECT_EQ(supported({"sp", "zero", "schedule", "dp"}), (SwitchSet{"dp", "zero"}));
  EXPECT_EQ(dimensions_of(p).size(), 5u);
  EXPECT_EQ(to_string(SwitchSet{}), "a single device");
}

TEST(Ladder, EachDimensionAloneThenPairsThenAll) {
  EXPECT_THAT(names_of(ladder_of(small_work(), parse_parallel("tp=2,sp=1,dp=2,pp=2"))),
              ElementsAre("single device", "tp", "tp + sp", "dp", "pp", "tp + sp + dp", "tp + sp + pp",
                          "dp + pp", "tp + sp + dp + pp", "full, more steps", "full, more tokens",
                          "full, more ranks", "full, more layers"));
  // Experts lie over the ranks of another dimension.
  EXPECT_THAT(names_of(ladder_of(small_work(), parse_parallel("dp=2,ep=2"))),
              ElementsAre("single device", "dp", "dp + ep", "full, more steps", "full, more tokens",
                          "full, more ranks", "full, more layers"));
}

TEST(Ladder, AStrategyThatDoesNotGoWithTheModelIsRefused) {
  EXPECT_THROW(ladder_of(small_work(), parse_parallel("tp=3")), Error);
}

TEST(Ladder, TheUsualMicroBatchesAreAtLeastTwoOfEachRank) {
  EXPECT_EQ(usual_micro_batches(small_work(), parse_parallel("dp=4")), 8);
  EXPECT_EQ(usual_micro_batches(small_work(), {}), 3);
}

TEST(Walk, WhatIsRightPassesInExactArithmeticBitForBit) {
  const Parallel target = parse_parallel("tp=2,dp=2");
  const auto subject = replay_provider(""), reference = replay_provider("");
  const LadderResult result = climb({small_ladder(small_work("exact"), target)}, *subject, *reference);
  EXPECT_EQ(result.exit_status(), 0) << ladder_text(result, {});
  EXPECT_TRUE(result.divergences.empty());
  for (const RungResult& r : result.rungs) EXPECT_EQ(r.rule, "bitwise");
}

TEST(Walk, TheSmallestFailingSetIsFoundAndWhatContainsItHeld) {
  const LadderResult result = climb("tp=2,sp=1,dp=2", "F001");
  ASSERT_EQ(result.divergences.size(), 1u) << ladder_text(result, {});
  const Divergence& d = result.divergences.front();
  EXPECT_EQ(to_string(d.strategies), "tp + sp");
  EXPECT_EQ(d.tensor, "model.norm grad weight (step 0, backward)");
  EXPECT_EQ(d.phase, "backward");
  EXPECT_THAT(d.cause, HasSubstr("the all-reduce over tp is missing"));
  ASSERT_TRUE(d.diagnosis);
  EXPECT_TRUE(is_named(find_fault("F001").answer, *d.diagnosis));
  EXPECT_FALSE(is_named(find_fault("F131").answer, *d.diagnosis)) << "of dp";
  ASSERT_EQ(d.behind.size(), 1u);
  EXPECT_EQ(d.behind.front().what, "sum of the gradient");
  EXPECT_EQ(d.behind.front().axis, Axis::tp);
  EXPECT_THAT(states_of(result),
              ElementsAre(State::passed, State::passed, State::failed, State::passed, State::held));
  EXPECT_EQ(result.exit_status(), 1);
}

TEST(Walk, InExactArithmeticTheCauseIsNamedToo) {
  const Parallel target = parse_parallel("tp=2,sp=1");
  const auto subject = replay_provider("F001"), reference = replay_provider("");
  const LadderResult result = climb({small_ladder(small_work("exact"), target)}, *subject, *reference);
  ASSERT_EQ(result.divergences.size(), 1u);
  EXPECT_EQ(result.divergences.front().tensor, "model.norm grad weight (step 0, backward)");
  EXPECT_THAT(result.divergences.front().cause, HasSubstr("the all-reduce over tp is missing"));
}

// Adam turns a rounding of a gradient near zero into one of the size of a step.
TEST(Walk, AmplifiedRoundingIsNoDivergence) {
  Rung rung = {
      .name = "tp", .kind = Rung::Kind::stated, .work = small_work(), .parallel = parse_parallel("tp=2")};
  rung.work.model = ASSAY_TEST_DATA "/models/latent.toml";
  rung.work.sequences = 2;
  rung.work.seed = 1;
  const auto subject = replay_provider(""), reference = replay_provider("");
  const LadderResult result = climb({{rung}}, *subject, *reference);
  EXPECT_EQ(result.exit_status(), 0) << ladder_text(result, {});
  EXPECT_THAT(result.rungs.front().notes, testing::Contains(HasSubstr("by amplified rounding")));
}

// Between scores that roundings cannot tell apart.
TEST(Walk, AnotherChoiceIsNoDivergence) {
  Rung rung = {.name = "tp",
               .kind = Rung::Kind::stated,
               .work = small_work("bf16"),
               .parallel = parse_parallel("tp=2")};
  rung.work.sequences = 2;
  const auto subject = replay_provider(""), reference = replay_provider("");
  const LadderResult result = climb({{rung}}, *subject, *reference);
  EXPECT_EQ(result.exit_status(), 0) << ladder_text(result, {});
  EXPECT_THAT(result.rungs.front().exempt, HasSubstr("by legal tie"));
}

// Four numbers fit the steps of four elements exactly, whatever the rounding: an epsilon of 1.7e-8 for 1e-8.
TEST(Walk, AParameterOfFourElementsDoesNotSayTheEpsilon) {
  Rung rung = {.name = "tp",
               .kind = Rung::Kind::stated,
               .work = small_work("bf16"),
               .parallel = parse_parallel("tp=2")};
  rung.work.model = ASSAY_TEST_DATA "/models/grouped.toml";
  rung.work.sequences = 2;
  const auto subject = replay_provider(""), reference = replay_provider("");
  const LadderResult result = climb({{rung}}, *subject, *reference);
  EXPECT_EQ(result.exit_status(), 0) << ladder_text(result, {});
}

// Half of a weight has scales of its own, and an expert's tokens of two micro-batches share theirs.
TEST(Walk, OtherBlocksOfFp8AreNoDivergence) {
  std::vector<Rung> rungs;
  for (const char* parallel : {"tp=2", "dp=2,ep=2"}) {
    Rung rung = {.name = parallel,
                 .kind = Rung::Kind::stated,
                 .work = small_work("fp8"),
                 .parallel = parse_parallel(parallel)};
    rung.work.sequences = 2;
    rungs.push_back(rung);
  }
  const auto subject = replay_provider(""), reference = replay_provider("");
  const LadderResult result = climb({rungs}, *subject, *reference);
  EXPECT_EQ(result.exit_status(), 0) << ladder_text(result, {});
}

TEST(Walk, WhereBitsAreAskedForRoundingIsNoExcuse) {
  const Rung rung = {
      .name = "tp", .kind = Rung::Kind::stated, .work = small_work(), .parallel = parse_parallel("tp=2")};
  const auto subject = replay_provider(""), reference = replay_provider("");
  const CheckOptions options = {.folder = fresh_folder(), .policies = {load_policy("bitwise")}, .rules = {}};
  const LadderResult result =
      walk({{rung}}, {*subject, *reference}, options, [](const Rung&, const RungResult*) {});
  EXPECT_EQ(result.rungs.front().state, State::failed);
}

TEST(Walk, WhatSomebodyRecordedIsNotDeleted) {
  const std::filesystem::path dump = fresh_folder() / "tp" / "dump";
  const Rung rung = {.name = "tp", .kind = Rung::Kind::stated, .work = small_work(), .parallel = {}};
  const auto reference = replay_provider("");
  std::filesystem::create_directories(dump.parent_path());
  ASSERT_EQ(reference->run({rung, dump.parent_path()}).state, RunResult::State::finished);
  const auto subject = dump_provider(dump.string());
  const CheckOptions options = {
      .folder = dump.parent_path().parent_path(), .policies = {load_policy("telechat3")}, .rules = {}};
  const LadderResult result =
      walk({{rung}}, {*subject, *reference}, options, [](const Rung&, const RungResult*) {});
  EXPECT_EQ(result.exit_status(), 0);
  EXPECT_TRUE(std::filesystem::exists(dump / "manifest.json"));
}

// A command that takes no number of steps would do the same again.
TEST(Ladder, WhatASubjectCannotTellFromTheFullStrategyIsNoStage) {
  const Parallel target = parse_parallel("dp=2");
  std::vector<Rung> rungs = ladder_of(small_work(), target);
  const auto command = command_provider({.line = "train --dp {dp} --sequences {sequences} --dump {dump}"});
  drop_repeats(rungs, *command);
  EXPECT_THAT(names_of(rungs), ElementsAre("single device", "dp", "full, more tokens", "full, more ranks"));
}

// The plan has only the full strategy: what it is reduced to must be run.
TEST(Walk, StrategiesAreTakenBackWhereOnlyTheFullOneIsPlanned) {
  const Parallel target = parse_parallel("tp=2,sp=1,dp=2");
  Rung full = {.name = "all", .kind = Rung::Kind::stated, .work = small_work(), .parallel = target};
  const auto subject = replay_provider("F001"), reference = replay_provider("");
  const LadderResult result = climb({{full}}, *subject, *reference);
  ASSERT_EQ(result.divergences.size(), 1u);
  EXPECT_EQ(to_string(result.divergences.front().strategies), "tp + sp");
  EXPECT_THAT(result.divergences.front().passes, HasSubstr("tp"));
}

TEST(Walk, AFaultOfOneDeviceNeedsNoStrategy) {
  const LadderResult result = climb("dp=2", "F125");
  ASSERT_EQ(result.divergences.size(), 1u);
  EXPECT_TRUE(result.divergences.front().strategies.empty());
  EXPECT_THAT(result.divergences.front().tensor, StartsWith("model.layers.0.self_attn output"));
  EXPECT_THAT(states_of(result), ElementsAre(State::failed, State::held));
}

TEST(Walk, ALayerThatIsNotComputedIsNamed) {
  const LadderResult result = climb("pp=2", "F075");
  ASSERT_EQ(result.divergences.size(), 1u);
  EXPECT_THAT(result.divergences.front().tensor, StartsWith("model.layers."));
  EXPECT_THAT(result.divergences.front().cause, HasSubstr("the layer was not computed"));
  EXPECT_EQ(result.divergences.front().diagnosis.value().cause, Cause::missing_layer);
}

TEST(Walk, ThreeFaultsAtOnceAreThreeDivergences) {
  const LadderResult result = climb("tp=2,sp=1,dp=2,pp=2", "F001,F131,F032");
  std::map<std::string, std::string> found;
  for (const Divergence& d : result.divergences) found[to_string(d.strategies)] = d.tensor;
  using testing::Pair;
  EXPECT_THAT(found, testing::UnorderedElementsAre(Pair("tp + sp", StartsWith("model.norm grad weight")),
                                                   Pair("dp", HasSubstr(" grad ")),
                                                   Pair("pp", HasSubstr("grad_output"))));
}

TEST(Walk, WhatPassedIsNotRunAgain) {
  const std::filesystem::path cache = fresh_folder() / "passed";
  const Parallel target = parse_parallel("dp=2");
  LadderPlan plan = {small_ladder(small_work(), target), cache};
  const auto subject = replay_provider(""), faulty = replay_provider("F131"), reference = replay_provider("");
  CheckOptions options = {.folder = cache.parent_path(), .policies = {load_policy("telechat3")}, .rules = {}};
  const auto quiet = [](const Rung&, const RungResult*) {};
  const LadderResult first = walk(plan, {*subject, *reference}, options, quiet),
                     second = walk(plan, {*subject, *reference}, options, quiet),
                     other = walk(plan, {*faulty, *reference}, options, quiet);
  plan.judged_by = "stricter rules";
  const LadderResult stricter = walk(plan, {*subject, *reference}, options, quiet);
  for (const RungResult& r : first.rungs) EXPECT_FALSE(r.from_cache);
  for (const RungResult& r : second.rungs) EXPECT_TRUE(r.from_cache);
  EXPECT_EQ(other.exit_status(), 1);
  for (const RungResult& r : stricter.rungs) EXPECT_FALSE(r.from_cache);
}

// A subject that does something else with its dump.
class Subject : public Provider {
 public:
  using Run = std::function<RunResult(Provider& replay, const RunOrder&)>;
  explicit Subject(Run run) : run_(std::move(run)) {}
  RunResult run(const RunOrder& order) override { return run_(*replay_, order); }
  std::string content(const Rung&) const override { return ""; }
  std::string text() const override { return "a subject"; }

 private:
  std::unique_ptr<Provider> replay_ = replay_provider("");
  Run run_;
};

LadderResult climb_with(const Subject::Run& run) {
  const Parallel target = parse_parallel("tp=2,dp=2");
  Subject subject(run);
  const auto reference = replay_provider("");
  return climb({small_ladder(small_work(), target)}, subject, *reference);
}

TEST(Walk, OtherStagesGoOnAfterOneThatCrashed) {
  const LadderResult result = climb_with([](Provider& replay, const RunOrder& order) {
    if (order.rung.name == "tp")
      return RunResult{RunResult::State::crashed, "exited with status 3", {}, {}, 0};
    return replay.run(order);
  });
  EXPECT_THAT(states_of(result), ElementsAre(State::passed, State::trouble, State::passed, State::passed));
  EXPECT_EQ(result.exit_status(), 2);
  EXPECT_THAT(rung_line(result.rungs[1]), HasSubstr("trouble: crashed: exited with status 3"));
}

TEST(Walk, HalfADumpIsTrouble) {
  const LadderResult result = climb_with([](Provider& replay, const RunOrder& order) {
    RunResult r = replay.run(order);
    if (order.rung.name == "dp") std::filesystem::remove(r.dump / "rank00001.h5");
    return r;
  });
  EXPECT_EQ(result.rungs[2].state, State::trouble) << rung_line(result.rungs[2]);
  EXPECT_EQ(result.rungs[1].state, State::passed);
}

TEST(Walk, AnEmptyDumpIsTrouble) {
  const LadderResult result = climb_with([](Provider& replay, const RunOrder& order) {
    RunResult r = replay.run(order);
    std::filesystem::remove_all(r.dump);
    std::filesystem::create_directories(r.dump);
    return r;
  });
  EXPECT_EQ(result.rungs[0].state, State::trouble);
  EXPECT_EQ(result.exit_status(), 2);
}

TEST(Commands, PlaceholdersAreFilledIn) {
  const Rung rung = {.name = "tp + sp",
                     .kind = Rung::Kind::stated,
                     .work = small_work(),
                     .parallel = parse_parallel("tp=2,sp=1,dp=2")};
  EXPECT_EQ(filled_in("run -n {ranks} --tp {tp} {{x}} --dump {dump} {stage}", {rung, "/w"}),
            "run -n 4 --tp 2 {x} --dump /w/dump tp-sp");
  EXPECT_THROW(filled_in("{tq}", {rung, "/w"}), Error);
  EXPECT_THROW(command_provider({.line = "train.sh"}), Error);
}

RunResult run_command(const std::string& line, std::int64_t seconds = 60) {
  const Rung rung = {.name = "single device"};
  const auto provider = command_provider({.line = line, .timeout = std::chrono::seconds(seconds)});
  return provider->run({rung, fresh_folder()});
}

TEST(Commands, WhatBecomesOfThemIsSaid) {
  const RunResult crashed = run_command("echo out of memory; exit 3; {dump}");
  EXPECT_EQ(crashed.state, RunResult::State::crashed);
  EXPECT_THAT(crashed.problem, HasSubstr("exited with status 3; its last line: out of memory"));
  const RunResult killed = run_command("kill -9 $$; {dump}");
  EXPECT_THAT(killed.problem, HasSubstr("signal 9"));
  EXPECT_EQ(run_command("true {dump}").state, RunResult::State::no_dump);
  EXPECT_EQ(run_command("mkdir {dump}").state, RunResult::State::finished);
}

TEST(Commands, OneThatHangsIsEndedWithAllThatItStarted) {
  const RunResult hung = run_command("sleep 1000 & echo $! > {dump}.pid; sleep 1000", 1);
  EXPECT_EQ(hung.state, RunResult::State::timed_out);
  EXPECT_THAT(hung.problem, HasSubstr("did not end within 1 s"));
  std::ifstream in(hung.dump.string() + ".pid");
  int pid = 0;
  in >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(pid) + "/status") &&
               std::system(("grep -q '^State:.*[SR]' /proc/" + std::to_string(pid) + "/status").c_str()) ==
                   0);
}

std::string problem_of(const std::string& text) {
  const std::filesystem::path file = fresh_folder() / "plan.toml";
  std::ofstream(file) << text;
  try {
    load_plan(file.string());
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(PlanFiles, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(problem_of("model = 'telechat3-105b-tiny'\nparallel = 'tp=2'\n"), "");
  EXPECT_THAT(problem_of("parallel = 'tp=2'\n"), HasSubstr("has no 'model', which a replay needs"));
  EXPECT_THAT(problem_of("model = 'x'\nsteps = 0\n"),
              HasSubstr(":2: 'steps' is something else; expected an integer from 1"));
  EXPECT_THAT(problem_of("model = 'x'\n\nstep = 1\n"), HasSubstr(":3: has a key 'step'; expected one of"));
  EXPECT_THAT(problem_of("model = 'x'\n[subject]\ndump = 'a'\ncommand = 'b {dump}'\n"),
              HasSubstr("a command, a dump and a replay at once"));
  const std::string start = "model = 'qwen3-moe-tiny'\n[[stage]]\n";
  EXPECT_THAT(problem_of(start + "name='a b'\n[[stage]]\nname='a-b'\n"),
              HasSubstr(":4: the stages 'a b' and 'a-b' would both write to a folder 'a-b'"));
  EXPECT_EQ(problem_of(start + "name='单机'\n[[stage]]\nname='张量'\n"), "");
  EXPECT_THAT(problem_of(start + "name=\"a\\n::error::b\"\n"), HasSubstr("has control characters"));
  EXPECT_THAT(problem_of(start + "parallel='dp=2,ep=3'\n"), HasSubstr(":2: stage 'dp + ep': ep 3"));
  EXPECT_THAT(problem_of("[subject]\ndump='d'\ntimeout=3\n"), HasSubstr("which are of a command"));
  EXPECT_THAT(problem_of("model = [\n"), HasSubstr("expected a plan in TOML"));
  EXPECT_THAT(problem_of("model = \"x\"\n[ \n"),
              HasSubstr(":2: a table without a name; expected a plan in TOML"));
}

TEST(Configurations, OtherWeightsAreNamedBeforeTheNumbers) {
  Subject subject([](Provider& replay, const RunOrder& order) {
    Rung other = order.rung;
    other.work.seed = 7;
    return replay.run({other, order.folder});
  });
  const auto reference = replay_provider("");
  const LadderResult result =
      climb({{{.name = "single device", .kind = Rung::Kind::single, .work = small_work(), .parallel = {}}}},
            subject, *reference);
  std::map<std::string, bool> passed;
  for (const ConfigurationCheck& c : result.rungs.front().configuration) passed[c.what] = c.passed;
  EXPECT_EQ(passed, (std::map<std::string, bool>{{"hyper-parameters", false},
                                                 {"vocabulary", true},
                                                 {"architecture", true},
                                                 {"initial weights", false},
                                                 {"mixed precision", true},
                                                 {"data", false}}));
}

}  // namespace
}  // namespace assay::align::ladder_test
