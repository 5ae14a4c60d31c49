#include "assay/compare/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "assay/compare/calls/shared_operators.h"
#include "assay/compare/causes/causes.h"
#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/origin/find_convention.h"
#include "assay/compare/origin/origin.h"
#include "assay/compare/pair_judge.h"
#include "assay/compare/pairs/dump_remarks.h"
#include "assay/compare/pairs/exchanged_rows.h"
#include "assay/compare/pairs/insides.h"
#include "assay/compare/pairs/matching.h"
#include "assay/compare/pairs/meeting.h"
#include "assay/compare/pairs/names_by_values.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/parallel.h"

namespace assay {
namespace {

class Differ {
 public:
  Differ(const Dump& actual, const Dump& reference, const DiffOptions& options)
      : actual_(actual),
        reference_(reference),
        options_(options),
        actual_tensors_(logical_tensors(actual)),
        reference_tensors_(logical_tensors(reference)),
        names_(meet_names(actual_tensors_, reference_tensors_, options.rules)) {
    for (std::string& note : meet_by_values(actual, actual_tensors_, reference, reference_tensors_))
      names_.push_back(std::move(note));
    for (std::string note :
         {leave_out_operators_of_replay(actual, actual_tensors_, reference, reference_tensors_),
          leave_out_steps(actual, actual_tensors_, reference, reference_tensors_),
          leave_out_other_insides(actual_tensors_, reference_tensors_),
          leave_out_exchanged_rows(actual, actual_tensors_, reference, reference_tensors_)}) {
      if (!note.empty()) names_.push_back(std::move(note));
    }
    take_operators(actual_tensors_, options.rules);
    take_operators(reference_tensors_, options.rules);
    share_operators(reference_tensors_, actual_tensors_);
  }

  Report run() {
    const ThreadScope threads(options_.threads);
    const auto start = std::chrono::steady_clock::now();
    Report report;
    report.verb = "diff";
    describe_dumps(report, actual_, reference_);
    for (const Policy& p : options_.policies) report.policies.push_back({p.name, p.table_sha256});
    const std::string lone = match_lone_arrays(actual_, actual_tensors_, reference_, reference_tensors_);
    report.notes.insert(report.notes.end(), names_.begin(), names_.end());
    if (!lone.empty()) report.notes.push_back(lone);
    const std::vector<Pair> found = find_all(report.findings);
    if (options_.only.empty()) {
      add_left_out(report.findings, actual_, "actual", options_.rules);
      add_left_out(report.findings, reference_, "reference", options_.rules);
    }
    std::vector<std::string> unused = options_.rules.unused();
    if (options_.team.size > 1 && !collect(report.findings, unused)) return {};
    Sides sides{actual_, reference_, actual_tensors_, reference_tensors_, options_.sizes};
    sides.convention = scale_convention(report.findings, found, sides);
    if (sides.convention) judge_scaled(report, found, *sides.convention);
    const auto sketched =
        std::ranges::count_if(report.findings, [](const Finding& f) { return f.sketch.has_value(); });
    if (sketched > 0)
      report.notes.push_back(
          fmt::format("{} tensors are compared by sketches: no tensor is judged by what it was made of",
                      grouped(sketched)));
    const StepOrigins steps =
        sketched > 0 ? StepOrigins() : find_optimizer_faults(report.findings, found, beside_, sides);
    explain(report, found, sides, steps);
    for (Finding& f : report.findings) {  // a call that was written as a case is repeated by that
      if (!options_.repeat.empty() && f.verdict != Verdict::passed && f.repeat.empty())
        f.repeat = options_.repeat + only_option(f.name);
    }
    note_deviations(report, found, judge_->row_dtype());
    if (std::string parting = report.parting(); !parting.empty()) report.notes.push_back(std::move(parting));
    if (options_.only.empty()) {
      for (const std::string& rule : unused) report.notes.push_back("rule without a match: " + rule);
    }
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    options_.log.info("{}, in {:.3f} s", report.summary(), report.seconds);
    return report;
  }

 private:
  // All findings in order, and the pairs that they are of; those of other processes of the team are still
  // empty.
  std::vector<Pair> find_all(std::vector<Finding>& findings) {
    const std::vector<Pair> pairs = match(actual_tensors_, reference_tensors_);
    judge_.emplace(Sides{actual_, reference_, actual_tensors_, reference_tensors_}, pairs, options_);
    const std::vector<std::size_t> wanted = begin_findings(pairs, findings);
    options_.log.debug("matched {} tensors of {} with {} of {}: {} pairs, {} of them asked for",
                       actual_tensors_.size(), actual_.path.string(), reference_tensors_.size(),
                       reference_.path.string(), pairs.size(), wanted.size());
    std::vector<Pair> found;
    std::vector<double> bytes;
    for (const std::size_t i : wanted) {
      found.push_back(pairs[i]);
      bytes.push_back(bytes_of(pairs[i]));
    }
    const std::vector<int> owner = share_out(bytes, options_.team.size);
    double total = 0, done = 0;
    for (std::size_t w = 0; w < wanted.size(); ++w) {
      if (owner[w] != options_.team.rank) continue;
      own_.push_back(w);
      total += bytes[w];
    }
    std::size_t seen = 0;
    for (const std::size_t w : own_) {
      for (; seen < wanted[w]; ++seen) judge_->see(pairs[seen]);
      if (options_.progress) options_.progress(done, total, findings[w].name);
      done += bytes[w];
      judge_->judge(findings[w], found[w]);
    }
    return found;
  }

  // A finding for each pair that is asked for; returns which pairs these are.
  std::vector<std::size_t> begin_findings(const std::vector<Pair>& pairs, std::vector<Finding>& findings) {
    std::vector<std::size_t> wanted;
    if (options_.only.empty()) findings.reserve(pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].id().step > options_.last_step) continue;
      std::string name = to_string(pairs[i].id());
      if (!options_.only.empty() && options_.only != name && !glob_match(options_.only, name)) {
        beside_.push_back(pairs[i]);
        continue;
      }
      wanted.push_back(i);
      findings.emplace_back();
      findings.back().id = pairs[i].id();
      findings.back().name = std::move(name);
    }
    return wanted;
  }

  // Compares in the units of the reference what the actual side has in others.
  void judge_scaled(Report& report, const std::vector<Pair>& found, const ScaleConvention& convention) {
    std::int64_t count = 0;
    std::map<std::string, std::int64_t> losses;  // by the factor
    for (std::size_t i = 0; i < found.size(); ++i) {
      Finding& f = report.findings[i];
      if (convention.of(f.id) == 1 || f.asks_for_bits || !(f.metrics || f.sketch)) continue;
      Finding scaled;
      scaled.id = f.id;
      scaled.name = f.name;
      judge_->judge(scaled, found[i], convention);
      const std::string& text = convention.text_of(f.id);
      ++(text == convention.text ? count : losses[text]);
      if (scaled.verdict == Verdict::passed && f.verdict != Verdict::passed) {
        scaled.verdict = Verdict::exempt;
        scaled.exemption = {Exemption::Kind::scale_by_convention, scaled.ratio, 1,
                            fmt::format("divided by {}: error/allowed {:.3g}", text, scaled.ratio)};
      }
      f = std::move(scaled);
    }
    if (count > 0)
      report.notes.push_back(
          fmt::format("scale by convention: losses of the actual side are scaled by {}, and gradients of "
                      "parameters are not; {} tensors are divided by it",
                      convention.text, grouped(count)));
    for (const auto& [text, own] : losses)
      report.notes.push_back(fmt::format(
          "scale by convention: {} losses of the actual side are scaled by {}, and gradients are not; they "
          "are divided by it",
          grouped(own), text));
  }

  // What all processes of the team found, in the first one. False in the others.
  bool collect(std::vector<Finding>& findings, std::vector<std::string>& unused) const {
    if (!gather_findings(options_.team, own_, findings, unused)) return false;
    int maps = 0;  // each process made as many as one alone would have
    for (Finding& f : findings) {
      if (f.error_map && ++maps > options_.error_maps) f.error_map.reset();
    }
    return true;
  }

  // Where each difference comes from, which settles the verdicts, and why.
  void explain(Report& report, const std::vector<Pair>& found, const Sides& sides,
               const StepOrigins& steps) const {
    FailingCases cases(options_.cases);
    const bool isolate = isolates(report);
    if (!isolate && !options_.explain) return;
    const RightValues right = find_origins(report, found, sides, steps,
                                           {.isolate = isolate,
                                            .may_exempt = options_.only.empty(),
                                            .cases = &cases,
                                            .threads = options_.threads,
                                            .progress = options_.judging});
    if (!options_.explain) return;
    find_causes(report.findings, found, sides, right);
    if (options_.noise && has_open_roots(report.findings)) exempt_noise(report.findings, options_.noise());
    if (std::string note = cases.note(); !note.empty()) report.notes.push_back(std::move(note));
  }

  // What has the bits of the reference is made as the reference is. Whoever asks for no explanation asks
  // again where the end-to-end rules refuse something.
  bool isolates(const Report& report) const {
    const auto has_bits = [](const Finding& f) {
      return f.verdict == Verdict::ignored || f.has_equal_bits();
    };
    // Of sketches nothing follows; what small tensors alone make of each other is not all of it.
    const auto by_sketch = [](const Finding& f) { return f.sketch.has_value(); };
    return !options_.end_to_end && std::ranges::none_of(report.findings, by_sketch) &&
           !std::ranges::all_of(report.findings, has_bits) &&
           (options_.explain || std::ranges::all_of(report.findings, is_fine, &Finding::verdict));
  }

  const Dump& actual_;
  const Dump& reference_;
  const DiffOptions& options_;
  std::vector<LogicalTensor> actual_tensors_, reference_tensors_;
  std::vector<std::string> names_;  ///< how names of both sides meet
  std::optional<PairJudge> judge_;
  std::vector<Pair> beside_;      ///< those that are not asked for
  std::vector<std::size_t> own_;  ///< which findings are for this process
};

}  // namespace

Report diff(const Dump& actual, const Dump& reference, const DiffOptions& options) {
  return Differ(actual, reference, options).run();
}

Report bitwise_difference(const Dump& a, const Dump& b, const Rules& rules, int threads, const Log& log) {
  DiffOptions options;
  options.policies = {load_policy("bitwise")};
  options.end_to_end = true;
  options.rules = rules.without_renames();
  options.threads = threads;
  options.explain = false;
  options.log = log;
  return diff(a, b, options);
}

}  // namespace assay
