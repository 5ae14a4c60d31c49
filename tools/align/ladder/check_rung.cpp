#include "assay/align/ladder/check_rung.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "assay/align/model/model.h"
#include "assay/align/model/modes.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using State = RungResult::State;

std::string key_of(const Work& w, const std::string& modes) {
  return fmt::format("{} {} {} {} {} steps {} micro-batches {} sequences {} length {} seed {} modes {}",
                     w.model, w.precision, w.optimizer, w.loss_average, w.prompt, w.steps, w.micro_batches,
                     w.sequences, w.length, w.seed, modes);
}

// What a single device does not compute unless it is asked to.
std::string own_modes(const Rung& rung) {
  if (rung.work.model.empty()) return "";
  const Modes modes = modes_of(load_model(rung.work.model), rung.parallel);
  return other_functions(modes).empty() ? "" : to_string(rung.parallel);
}

// Integers say which experts were chosen: where they differ, a legal tie or not, all behind them does.
bool chose_otherwise(const Report& report) {
  return std::ranges::any_of(report.findings, [](const Finding& f) {
    return f.id.phase == Phase::forward && f.id.slot == "output" && f.id.arg == "index" &&
           f.verdict != Verdict::passed && f.verdict != Verdict::ignored;
  });
}

const std::string& first_other(const Report& report) {
  return std::ranges::find_if(report.findings, [](const Finding& f) { return !is_fine(f.verdict); })->name;
}

}  // namespace

std::string_view name(State state) {
  constexpr std::array<std::string_view, 5> names = {"passed", "failed", "trouble", "held", "left out"};
  return names[static_cast<std::size_t>(state)];
}

std::filesystem::path RungCheck::reference_for(const Rung& rung) {
  const std::string modes = own_modes(rung),
                    key = key_of(rung.work, modes) +
                          (opponents_.reference.depends_on_name() ? " stage " + rung.name : "");
  const std::lock_guard lock(mutex_);  // who comes while it runs waits for it
  if (const auto known = references_.find(key); known != references_.end()) {
    log_of(options_.folder / folder_of(rung)).debug("judged by the reference in {}", known->second.string());
    return known->second;
  }
  if (const auto known = no_references_.find(key); known != no_references_.end())
    throw Error("{}", known->second);
  const std::size_t number = references_.size() + no_references_.size() + 1;
  const RunResult result = run_reference(rung, options_.folder / fmt::format("reference.{}", number), 0);
  if (result.state != RunResult::State::finished) {
    no_references_[key] = fmt::format("the reference {}: {}", name(result.state), result.problem);
    throw Error("{}", no_references_[key]);
  }
  return references_[key] = result.dump;
}

// Its lines name the folder of a run or of a stage, below that of all: "tp-sp", "reference.1/rerun-1".
Log RungCheck::log_of(const std::filesystem::path& folder) const {
  return options_.log.of_stage(folder.lexically_relative(options_.folder).string());
}

RunResult RungCheck::run_side(Provider& side, RunOrder order) const {
  order.log = log_of(order.folder);
  const std::string strategy = to_string(order.rung.parallel);
  order.log.debug("runs {} on {}{}", side.text(), strategy.empty() ? "a single device" : strategy,
                  order.routing.empty() ? "" : ", choices of experts from " + order.routing);
  RunResult result = side.run(order);
  order.log.info("{} in {:.3f} s{}", name(result.state), result.seconds,
                 result.problem.empty() ? "" : ": " + result.problem);
  return result;
}

bool RungCheck::runs_reference() {
  return !std::unique_lock(mutex_, std::try_to_lock).owns_lock();
}

RunResult RungCheck::run_reference(const Rung& rung, const std::filesystem::path& folder,
                                   std::int64_t rerun) {
  Rung single = rung;
  single.parallel = {};
  std::filesystem::create_directories(folder);
  RunOrder order = {single, folder};
  order.modes_of = own_modes(rung);
  order.rerun = rerun;
  return run_side(opponents_.reference, std::move(order));
}

// What a rerun does not give is no noise: the comparison stays as sharp as it was.
const RerunNoise& RungCheck::noise_for(const Rung& rung) {
  const std::filesystem::path first = reference_for(rung);
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = noises_.try_emplace(first);
  for (std::int64_t k = 1; is_new && k <= options_.reruns; ++k) {
    const std::filesystem::path folder = first.parent_path() / fmt::format("rerun-{}", k);
    const RunResult run = run_reference(rung, folder, k);
    const auto trouble = trouble_in([&] {
      if (run.state == RunResult::State::finished) add_rerun(at->second, difference(run.dump, first));
    });
    if (trouble) log_of(folder).debug("gives no noise: {}", *trouble);
    std::error_code ignored;
    if (!options_.keep) std::filesystem::remove_all(run.dump, ignored);
  }
  return at->second;
}

// Of two runs of one side, nothing explained.
Report RungCheck::difference(const std::filesystem::path& a, const std::filesystem::path& b) const {
  const Log log = log_of(a.parent_path());
  auto actual = open_dump(a.string(), {.log = log}), reference = open_dump(b.string(), {.log = log});
  apply_layouts(actual, reference, options_.rules.layout());
  return bitwise_difference(*actual, *reference, options_.rules, options_.threads, log);
}

// A program that is not deterministic has no bits to compare, and a fault of it may come and go.
void RungCheck::check_determinism(RungResult& result, const std::string& routing) {
  const std::filesystem::path folder = options_.folder / folder_of(result.rung) / "again";
  std::filesystem::create_directories(folder);
  const RunResult again = run_side(opponents_.subject, {result.rung, folder, routing});
  ConfigurationCheck check = {"determinism", true, ""};
  try {
    if (again.state != RunResult::State::finished) throw Error("{}: {}", name(again.state), again.problem);
    const Report report = difference(again.dump, result.subject);
    const std::int64_t other =
        std::ssize(report.findings) - std::ranges::count_if(report.findings, is_fine, &Finding::verdict);
    const std::string all = grouped(report.compared());
    check.found = other == 0 ? fmt::format("the same bits in {} tensors on a rerun", all)
                             : fmt::format("other bits in {} of {} tensors on a rerun, first {}",
                                           grouped(other), all, first_other(report));
    check.differs = other > 0;
    check.accepted = other > 0 && options_.accepts_other_bits;
    check.passed = other == 0 || check.accepted;
  } catch (const std::exception& e) {
    check.passed = false;
    check.found = fmt::format("a rerun {}", e.what());
  }
  log_of(folder).info("{}", check.found);
  result.configuration.push_back(std::move(check));
  std::error_code ignored;
  if (!options_.keep) std::filesystem::remove_all(folder, ignored);
}

RungResult RungCheck::run(const Rung& rung) {
  const auto begin = std::chrono::steady_clock::now();
  RungResult result = {.rung = rung};
  const auto is_referred = [&] {
    if (!result.reference.empty()) return true;
    try {
      result.reference = reference_for(rung);
    } catch (const Error& e) {
      result.state = State::trouble;
      result.reason = e.what();
    }
    return !result.reference.empty();
  };
  // A stage beside this one that runs the reference is not waited for before it must be.
  if (!runs_reference() && !is_referred()) return result;
  const std::filesystem::path folder = options_.folder / folder_of(rung);
  std::filesystem::create_directories(folder);
  RunOrder order = {rung, folder};
  const auto run_once = [&] {
    result.report.reset();
    result.reason.clear();
    result.notes.clear();
    result.exempt.clear();
    const RunResult ran = run_side(opponents_.subject, order);
    result.subject = ran.dump;
    if (!is_referred()) return;
    if (ran.state == RunResult::State::finished) {
      judge(result);
    } else {
      result.state = State::trouble;
      result.reason = fmt::format("{}: {}", name(ran.state), ran.problem);
    }
  };
  run_once();
  const Log log = log_of(folder);
  if (result.state == State::failed && result.report && chose_otherwise(*result.report) &&
      opponents_.subject.takes_routing() && !is_bitwise(rung)) {
    log.info("routers chose other experts: runs again with the reference's choices");
    order.routing = result.reference.string();
    result.pinned = true;
    run_once();
    result.notes.push_back("routers chose other experts: judged with the reference's choices");
  }
  const bool is_judged = result.state == State::passed || result.state == State::failed;
  if (is_judged && rung.kind == Rung::Kind::single && opponents_.subject.may_vary() && options_.reruns > 0)
    check_determinism(result, order.routing);
  if (result.report) {
    result.page = folder / "report.html";
    write_whole(result.page, to_html(*result.report));
  }
  if (result.state == State::passed && !options_.keep && opponents_.subject.makes_dumps()) {
    std::error_code ignored;
    std::filesystem::remove_all(result.subject, ignored);
    result.subject.clear();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace assay::align
