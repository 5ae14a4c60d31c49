#include "trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "assay/align/ladder/walk.h"
#include "assay/align/model/model.h"
#include "assay/align/replay/replay_run.h"
#include "assay/dumps/record/glob.h"
#include "assay/golden/error.h"
#include "rivals.h"

namespace assay::bench {
namespace {

using align::Fault;
using std::filesystem::path;

constexpr std::int64_t length = 16, steps = 2;

align::Work work_of(const Fault& f, const std::string& precision) {
  const align::FaultConditions& c = f.conditions;
  align::Work w;
  w.model = c.model;
  w.precision = precision.empty() ? std::string(c.precision) : precision;
  w.optimizer = c.optimizer;
  w.loss_average = c.loss_average;
  w.prompt = c.prompt;
  w.steps = steps;
  w.micro_batches = c.micro_batches;
  w.sequences = c.sequences;
  w.length = length;
  return w;
}

// Any of the globs between bars.
bool is_right(std::string_view globs, const std::string& tensor) {
  if (globs.empty()) return true;
  for (std::size_t begin = 0; begin <= globs.size();) {
    const std::size_t end = std::min(globs.find('|', begin), globs.size());
    if (end > begin && glob_match(globs.substr(begin, end - begin), tensor)) return true;
    begin = end + 1;
  }
  return false;
}

// Modules that are blamed before the right one, and that.
int window_of(const Fault& f, const align::LadderResult& result) {
  std::set<std::string> modules;
  for (std::size_t k = 0; k < result.divergences.size(); ++k) {
    const Report& report = *result.rungs[result.failing[k]].report;
    std::vector<std::size_t> roots = {result.divergences[k].finding};
    const auto& others = result.divergences[k].others;
    roots.insert(roots.end(), others.begin(), others.end());
    for (const std::size_t root : roots) {
      const Finding& blamed = report.findings[root];
      modules.insert(blamed.id.module);
      if (is_right(f.answer.tensor, blamed.name)) return static_cast<int>(modules.size());
    }
  }
  return 0;
}

// A sum over the dimension, or a factor of its size.
bool is_along(const Diagnosis& d, std::string_view dimension) {
  return d.parameters.axis == dimension ||
         std::ranges::any_of(d.parameters.factor_names, [&](const std::string& name) {
           return name.find(dimension) != std::string::npos;
         });
}

void score(Record& r, const Fault& f, const align::LadderResult& result) {
  r.found = !result.divergences.empty();
  if (!r.found) return;
  const align::Divergence& d = result.divergences.front();
  r.phase = f.answer.phase == d.phase;
  r.tensor = is_right(f.answer.tensor, d.tensor);
  const std::optional<Diagnosis>& told = d.diagnosis ? d.diagnosis : d.diagnosis_of_other;
  r.dimension = f.answer.dimension.empty() || d.strategies.contains(f.answer.dimension) ||
                (told && is_along(*told, f.answer.dimension));
  r.named = f.answer.causes.empty() || (told && is_named(f.answer, *told));
  if (told) r.told = name(told->cause);
  r.window = window_of(f, result);
  r.got = fmt::format("{} | {} | {}", align::to_string(d.strategies), d.tensor, d.cause);
}

align::CheckOptions check_in(const path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return {.folder = folder, .policies = {load_policy("telechat3")}, .rules = {}, .threads = 2, .keep = true};
}

// TTrace perturbs the model's input by a machine epsilon.
align::PlantFault perturb_embedding() {
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

// A kernel scales before it stores: what it is given is scaled, in float32.
align::PlantFault scale_gradient(const std::string& module, double factor) {
  return [=](const align::FaultScene&) {
    align::FaultSites sites;
    sites.before_call = [=](const align::Moment& moment, const align::Machine::Node& node,
                            align::FaultSites::Tensors& inputs, Attributes&) {
      if (node.module != module || moment.pass != align::Moment::Pass::backward) return;
      for (NamedTensor& input : inputs) {
        if (input.name != "grad_y") continue;
        std::vector<double> values = input.tensor.values();
        for (double& v : values) v *= factor;
        const DType wide = input.tensor.dtype() == DType::float64 ? DType::float64 : DType::float32;
        input.tensor = Tensor::from_values(wide, input.tensor.shape(), values);
      }
    };
    return sites;
  };
}

void run_alone(const align::Work& w, align::PlantFault fault, const path& dump) {
  std::filesystem::remove_all(dump);
  align::ReplayOrder order;
  order.model = w.model;
  order.settings.batch = {w.sequences, w.length, w.prompt};
  order.settings.seed = w.seed;
  order.settings.micro_batches = w.micro_batches;
  order.settings.precision = align::parse_precision(w.precision);
  order.settings.optimizer = align::parse_optimizer(w.optimizer);
  order.settings.loss_average = align::parse_loss_average(w.loss_average);
  order.settings.fault = std::move(fault);
  order.steps = w.steps;
  order.dump = dump.string();
  align::ReplayRun(std::move(order)).run([](std::int64_t, const align::StepResult&) {});
}

Report compared(const path& actual, const path& reference) {
  const auto a = open_dump(actual.string()), g = open_dump(reference.string());
  DiffOptions options;
  options.policies = {load_policy("telechat3"), load_policy("torch")};
  options.explain = false;
  options.threads = 2;
  return diff(*a, *g, options);
}

}  // namespace

Trials::Trials(path work) : work_(std::move(work)) {
  std::filesystem::create_directories(work_);
}

Record Trials::fault(const Fault& f, const std::string& precision) {
  const align::Work work = work_of(f, precision);
  align::LadderPlan plan = {ladder_of(work, align::parse_parallel(f.conditions.parallel))};
  std::erase_if(plan.rungs, [](const align::Rung& r) { return r.kind == align::Rung::Kind::larger; });
  const auto subject = align::replay_provider(std::string(f.id)), reference = align::replay_provider("");
  const align::CheckOptions check = check_in(work_ / std::string(f.id));
  const align::LadderResult result =
      walk(plan, {*subject, *reference}, check, [](const align::Rung&, const align::RungResult*) {});
  Record r;
  r.name = precision.empty() ? std::string(f.id) : fmt::format("{} {}", f.id, precision);
  r.is_closed = !f.answer.causes.empty();
  r.is_of_optimizer = f.answer.phase == "optimizer";
  r.seconds = result.seconds;
  score(r, f, result);
  const auto shows = result.failing.empty() ? std::ranges::find_if(
                                                  result.rungs.rbegin(), result.rungs.rend(),
                                                  [](const align::RungResult& rung) {
                                                    return !rung.subject.empty();
                                                  }).base() -
                                                  result.rungs.begin() - 1
                                            : static_cast<std::ptrdiff_t>(result.failing.front());
  if (shows >= 0) {
    const align::RungResult& rung = result.rungs[static_cast<std::size_t>(shows)];
    r.rivals = ask_rivals(rung.subject, rung.reference, work, f.answer.tensor);
  }
  std::filesystem::remove_all(check.folder);
  return r;
}

Record Trials::scale(const align::Work& work, int layer, double factor) {
  const std::string module = fmt::format("model.layers.{}.input_layernorm", layer);
  const path right = work_ / "right", wrong = work_ / "wrong";
  run_alone(work, {}, right);
  run_alone(work, scale_gradient(module, factor), wrong);
  const auto actual = open_dump(wrong.string()), reference = open_dump(right.string());
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  options.threads = 2;
  const Report end_to_end = diff(*actual, *reference, options);
  const Report isolated = diff(*actual, *reference, options);
  const auto first = std::ranges::find_if(isolated.findings, [](const Finding& f) {
    return f.origin && f.origin->kind == Origin::Kind::created;
  });
  Record r;
  r.kind = Record::Kind::scale;
  r.name = fmt::format("gradients x {:.6g} from layer {} of {} on, {}", factor, layer,
                       align::load_model(work.model).layers, work.precision);
  r.found = first != isolated.findings.end();
  r.tensor = r.found && first->id.module == module;
  r.seconds = isolated.seconds;
  r.got = fmt::format("{}; from end to end {}", r.found ? "first " + first->name : "nothing",
                      align::roots_of(end_to_end).empty() ? "not found" : "found");
  for (const path& dump : {right, wrong}) std::filesystem::remove_all(dump);
  return r;
}

Record Trials::clean(const align::Work& work, const align::Parallel& parallel) {
  const auto replay = align::replay_provider("");
  const align::CheckOptions options = check_in(work_ / "clean");
  align::RungCheck check({*replay, *replay}, options);
  const align::RungResult result = check.run({"clean", align::Rung::Kind::stated, work, parallel});
  Record r;
  r.kind = Record::Kind::clean;
  r.name = fmt::format("{} {} seed {}", to_string(parallel), work.precision, work.seed);
  r.found = result.state != align::RungResult::State::passed;
  r.got = result.reason;
  r.seconds = result.seconds;
  if (!result.subject.empty()) r.rivals = ask_rivals(result.subject, result.reference, work, "");
  std::filesystem::remove_all(options.folder);
  return r;
}

const Trials::Noise& Trials::noise_of(const align::Work& w, const path& reference) {
  const std::string key = fmt::format("{} {} {} {} {} {} {} {}", w.model, w.precision, w.optimizer,
                                      w.loss_average, w.prompt, w.micro_batches, w.sequences, w.seed);
  const auto [at, is_new] = noise_.try_emplace(key);
  if (!is_new) return at->second;
  const path dump = work_ / "perturbed";
  run_alone(w, perturb_embedding(), dump);
  for (Finding& f : compared(dump, reference).findings) at->second.emplace(f.name, std::move(f));
  std::filesystem::remove_all(dump);
  return at->second;
}

std::map<std::string, RivalScore> Trials::ask_rivals(const path& subject, const path& reference,
                                                     const align::Work& work, std::string_view right_tensor) {
  const Noise& noise = noise_of(work, reference);
  const Report report = compared(subject, reference);
  const int layers = static_cast<int>(align::load_model(work.model).layers);
  std::map<std::string, RivalScore> scores;
  for (const Rival& rival : rivals()) {
    RivalScore& s = scores[rival.name];
    bool is_first = true;
    for (const Finding& f : report.findings) {  // in execution order
      const auto at = noise.find(f.name);
      const double score = rival.score(f, at == noise.end() ? nullptr : &at->second, layers);
      s.worst = std::max(s.worst, score);
      if (score <= 1 || !is_first) continue;
      is_first = false;
      s.first_is_right = is_right(right_tensor, f.name);
    }
  }
  return scores;
}

}  // namespace assay::bench
