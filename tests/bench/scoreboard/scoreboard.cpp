// The fault catalogue, found and named by alignment, and by the rules that others use on the same dumps.
//   bench_scoreboard [--faults F001,F005] [--clean N] [--work DIR] [--precision fp32]
// Runs each fault under its own conditions: `align` from a single device up, and one comparison at the top
// for the rules, with the clean run of the same conditions beside it. A rule detects at zero false alarms
// what is above everything that it says of the clean runs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "assay/align/faults/fault.h"
#include "assay/align/ladder/walk.h"
#include "assay/align/model.h"
#include "assay/align/replay_run.h"
#include "assay/dumps/glob.h"
#include "assay/golden/error.h"
#include "rivals.h"

namespace assay::bench {
namespace {

using align::Fault;

constexpr std::int64_t length = 16, steps = 2;

struct Options {
  std::set<std::string, std::less<>> faults;
  std::filesystem::path work = "scoreboard";
  std::string precision;
};

align::Work work_of(const Fault& f, const Options& options) {
  const align::FaultConditions& c = f.conditions;
  align::Work w;
  w.model = c.model;
  w.precision = options.precision.empty() ? std::string(c.precision) : options.precision;
  w.optimizer = c.optimizer;
  w.loss_average = c.loss_average;
  w.prompt = c.prompt;
  w.steps = steps;
  w.micro_batches = c.micro_batches;
  w.sequences = c.sequences;
  w.length = length;
  return w;
}

// Any of the alternatives between bars.
bool matches(std::string_view alternatives, const auto& one) {
  if (alternatives.empty()) return true;
  for (std::size_t begin = 0; begin <= alternatives.size();) {
    const std::size_t end = std::min(alternatives.find('|', begin), alternatives.size());
    if (end > begin && one(alternatives.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

struct Score {
  bool found = false, phase = false, module = false, dimension = false, named = false;
};

Score score_of(const Fault& f, const align::LadderResult& result) {
  Score s;
  s.found = !result.divergences.empty();
  if (!s.found) return s;
  const align::Divergence& d = result.divergences.front();
  s.phase = f.answer.phase == d.phase;
  s.module = matches(f.answer.tensor, [&](std::string_view p) { return glob_match(p, d.tensor); });
  s.dimension = f.answer.dimension.empty() || d.strategies.contains(f.answer.dimension) ||
                d.cause.find(f.answer.dimension) != std::string::npos;
  s.named = matches(f.answer.says,
                    [&](std::string_view words) { return d.cause.find(words) != std::string::npos; });
  return s;
}

align::LadderResult climb(const Fault& f, const Options& options) {
  const align::Work work = work_of(f, options);
  const align::Parallel target = align::parse_parallel(f.conditions.parallel);
  align::LadderPlan plan = {ladder_of(work, target)};
  std::erase_if(plan.rungs, [](const align::Rung& r) { return r.kind == align::Rung::Kind::larger; });
  const auto subject = align::replay_provider(std::string(f.id)), reference = align::replay_provider("");
  align::CheckOptions check = {.folder = options.work / std::string(f.id),
                               .policies = {load_policy("telechat3")},
                               .rules = {},
                               .threads = 2};
  std::filesystem::create_directories(check.folder);
  return walk(plan, {*subject, *reference}, check, [](const align::Rung&, const align::RungResult*) {});
}

// A replay of the conditions, once for each.
class Runs {
 public:
  explicit Runs(const Options& options) : options_(options) {}

  std::filesystem::path run(const Fault& f, const align::Parallel& parallel, const std::string& fault,
                            bool perturbed) {
    const align::Work w = work_of(f, options_);
    const std::string key =
        fmt::format("{} {} {} {} {} {} {} {} {} {}", w.model, w.precision, w.optimizer, w.loss_average,
                    w.prompt, w.micro_batches, w.sequences, to_string(parallel), fault, perturbed);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const std::filesystem::path dump = options_.work / fmt::format("run{}", known_.size());
    std::filesystem::remove_all(dump);
    align::ReplayOrder order;
    order.model = w.model;
    order.settings.batch = {w.sequences, w.length, w.prompt};
    order.settings.micro_batches = w.micro_batches;
    order.settings.precision = align::parse_precision(w.precision);
    order.settings.optimizer = align::parse_optimizer(w.optimizer);
    order.settings.loss_average = align::parse_loss_average(w.loss_average);
    order.settings.parallel = parallel;
    if (perturbed) order.settings.fault = perturb_embedding();
    order.steps = w.steps;
    order.dump = dump.string();
    order.fault = fault;
    align::ReplayRun replay(std::move(order));
    replay.run([](std::int64_t, const align::StepResult&) {});
    return known_[key] = dump;
  }

 private:
  // TTrace perturbs the model's input by a machine epsilon.
  static align::PlantFault perturb_embedding() {
    return [](const align::FaultScene&) {
      align::FaultSites sites;
      sites.parameter = [](const align::Moment&, const std::string& name, Tensor& piece) {
        if (name != "model.embed_tokens.weight") return;
        std::vector<double> x = piece.values();
        for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i % 2 == 0 ? 1 + 0x1p-23 : 1 - 0x1p-23;
        piece = Tensor::from_values(piece.dtype(), piece.shape(), x);
      };
      return sites;
    };
  }

  const Options& options_;
  std::map<std::string, std::filesystem::path> known_;
};

Report compared(const std::filesystem::path& actual, const std::filesystem::path& reference) {
  const auto a = open_dump(actual.string()), g = open_dump(reference.string());
  DiffOptions options;
  options.policies = {load_policy("telechat3"), load_policy("torch")};
  options.explain = false;
  options.threads = 2;
  return diff(*a, *g, options);
}

struct RivalScore {
  double worst = 0;
  std::string first;  // tensor over the rule, in execution order
};

RivalScore judge(const Rival& rival, const Report& report,
                 const std::map<std::string, const Finding*>& perturbed, int layers, double multiplier) {
  RivalScore s;
  for (const Finding& f : report.findings) {
    const auto at = perturbed.find(f.name);
    const double score = rival.score(f, at == perturbed.end() ? nullptr : at->second, layers);
    if (score > s.worst) s.worst = score;
    if (score > multiplier && s.first.empty()) s.first = f.name;
  }
  return s;
}

std::map<std::string, const Finding*> by_name(const Report& report) {
  std::map<std::string, const Finding*> all;
  for (const Finding& f : report.findings) all[f.name] = &f;
  return all;
}

std::string share(std::int64_t n, std::size_t of) {
  return fmt::format("{} of {} ({:.0f} %)", n, of,
                     of == 0 ? 0 : 100 * static_cast<double>(n) / static_cast<double>(of));
}

class Scoreboard {
 public:
  explicit Scoreboard(Options options) : options_(std::move(options)), runs_(options_) {}

  void run() {
    for (const Fault& f : align::fault_catalogue()) {
      if (!options_.faults.empty() && !options_.faults.contains(f.id)) continue;
      try {
        run(f);
      } catch (const std::exception& e) {
        fmt::print("{}  trouble: {}\n", f.id, e.what());
        ++trouble_;
      }
      std::fflush(stdout);
    }
    print();
  }

 private:
  void run(const Fault& f) {
    const align::LadderResult result = climb(f, options_);
    const Score s = score_of(f, result);
    ++faults_;
    found_ += s.found;
    phase_ += s.phase;
    module_ += s.module;
    dimension_ += s.dimension;
    const bool closed = f.kind != align::FaultKind::none && !f.answer.says.empty();
    closed_ += closed;
    named_ += closed && s.named && s.dimension;
    const std::string got =
        result.divergences.empty()
            ? "nothing"
            : fmt::format("{} | {} | {}", align::to_string(result.divergences.front().strategies),
                          result.divergences.front().tensor, result.divergences.front().cause);
    fmt::print("{}  {}{}{}{}{}  {:.0f} s  {}\n", f.id, s.found ? 'F' : '-', s.phase ? 'P' : '-',
               s.module ? 'M' : '-', s.dimension ? 'D' : '-', s.named ? 'N' : '-', result.seconds, got);
    ask_rivals(f);
    std::error_code ignored;
    std::filesystem::remove_all(options_.work / std::string(f.id), ignored);
  }

  void ask_rivals(const Fault& f) {
    const align::Parallel target = align::parse_parallel(f.conditions.parallel);
    const auto right = runs_.run(f, {}, "", false), perturbed = runs_.run(f, {}, "", true),
               clean = runs_.run(f, target, "", false),
               faulty = runs_.run(f, target, std::string(f.id), false);
    const int layers = static_cast<int>(align::load_model(std::string(f.conditions.model)).layers);
    const Report noise = compared(perturbed, right);
    const auto known = by_name(noise);
    if (clean != right && clean_.insert(clean.string()).second) {
      const Report report = compared(clean, right);
      for (std::size_t k = 0; k < rivals().size(); ++k) {
        const double worst = judge(rivals()[k], report, known, layers, 1).worst;
        false_alarms_[k] += worst > 1;
        quiet_[k] = std::max(quiet_[k], worst);
      }
    }
    const Report report = compared(faulty, right);
    std::filesystem::remove_all(faulty);
    for (std::size_t k = 0; k < rivals().size(); ++k) {
      const RivalScore s = judge(rivals()[k], report, known, layers, 1);
      worst_[k].push_back(s.worst);
      right_module_[k] += !s.first.empty() && matches(f.answer.tensor, [&](std::string_view p) {
        return glob_match(p, s.first);
      });
    }
  }

  void print() const {
    const auto n = static_cast<std::size_t>(faults_);
    fmt::print(
        "\n| rule | found | at zero false alarms | first tensor right | phase | dimension | named | false "
        "alarms |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    fmt::print("| assay align | {0} | {0} | {1} | {2} | {3} | {4} | - |\n", share(found_, n),
               share(module_, n), share(phase_, n), share(dimension_, n),
               share(named_, static_cast<std::size_t>(closed_)));
    for (std::size_t k = 0; k < rivals().size(); ++k) {
      const double multiplier = std::max(1.0, quiet_[k]);
      const auto over = [&](double m) {
        return std::ranges::count_if(worst_[k], [m](double w) { return w > m; });
      };
      fmt::print("| {} | {} | {} | {} | - | - | - | {} |\n", rivals()[k].name,
                 share(over(1), worst_[k].size()), share(over(multiplier), worst_[k].size()),
                 share(right_module_[k], worst_[k].size()), share(false_alarms_[k], clean_.size()));
    }
    if (trouble_ > 0) fmt::print("{} faults could not be run\n", trouble_);
  }

  const Options options_;
  Runs runs_;
  std::int64_t faults_ = 0, found_ = 0, phase_ = 0, module_ = 0, dimension_ = 0, named_ = 0, closed_ = 0,
               trouble_ = 0;
  std::set<std::string> clean_;
  std::array<std::vector<double>, 7> worst_;
  std::array<double, 7> quiet_ = {};
  std::array<std::int64_t, 7> false_alarms_ = {}, right_module_ = {};
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--work") options.work = value;
    if (key == "--precision") options.precision = value;
    if (key == "--faults") {
      for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        options.faults.insert(value.substr(begin, end - begin));
        begin = end + 1;
      }
    }
  }
  std::filesystem::create_directories(options.work);
  return options;
}

}  // namespace
}  // namespace assay::bench

int main(int argc, char** argv) {
  assay::bench::Scoreboard(assay::bench::options_of(argc, argv)).run();
}
