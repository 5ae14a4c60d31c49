#include "assay/compare/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "assay/compare/diagnosis/causes.h"
#include "assay/compare/judge.h"
#include "assay/compare/judge/recorded_side.h"
#include "assay/compare/judge/replicas.h"
#include "assay/compare/pairs/matching.h"
#include "assay/compare/pairs/near_tie.h"
#include "assay/compare/pairs/row_dtype.h"
#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/replay/count.h"
#include "assay/compare/replay/origin.h"
#include "assay/compare/report.h"
#include "assay/dumps/merge.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

double bytes_of(const Pair& pair) {
  double bytes = 0;
  for (const LogicalTensor* t : {pair.actual, pair.reference}) {
    if (pair.actual == nullptr || pair.reference == nullptr) continue;  // nothing to read
    bytes += static_cast<double>(element_count(t->shape)) * static_cast<double>(size_of(t->dtype)) *
             static_cast<double>(t->records.size());
  }
  return bytes;
}

std::string dtypes_of(const Pair& pair) {
  return fmt::format("{} against {}, while most tensors of its kind have one dtype on both sides",
                     name(pair.actual->dtype), name(pair.reference->dtype));
}

class Differ {
 public:
  Differ(const Dump& actual, const Dump& reference, const DiffOptions& options)
      : actual_(actual),
        reference_(reference),
        options_(options),
        actual_tensors_(tensors_of(actual, options.rules, true)),
        reference_tensors_(tensors_of(reference, options.rules, false)),
        reference_by_id_(reference_tensors_),
        count_of_(reference_tensors_) {}

  Report run() {
    const auto start = std::chrono::steady_clock::now();
    Report report;
    report.verb = "diff";
    report.actual = actual_.path.string();
    report.reference = reference_.path.string();
    report.actual_format = actual_.format;
    report.reference_format = reference_.format;
    for (const Policy& p : options_.policies) report.policies.push_back({p.name, p.table_sha256});
    for (const Dump* dump : {&actual_, &reference_}) {
      for (const std::string& note : dump->notes) {
        const std::string path = dump->path.string();
        report.notes.push_back(note.starts_with(path) ? note : path + ": " + note);
      }
    }
    if (is_lone_array(actual_, actual_tensors_) && is_lone_array(reference_, reference_tensors_) &&
        actual_tensors_.front().id != reference_tensors_.front().id) {
      report.notes.push_back(fmt::format("one tensor on each side: '{}' is compared with '{}'",
                                         to_string(actual_tensors_.front().id),
                                         to_string(reference_tensors_.front().id)));
      actual_tensors_.front().id = reference_tensors_.front().id;
    }
    std::vector<Pair> found;  // of report.findings
    const std::vector<Pair> pairs = match(actual_tensors_, reference_tensors_, options_.rules);
    row_dtype_.emplace(pairs);
    report.findings = find_all(pairs, found);
    std::vector<std::string> unused = options_.rules.unused();
    if (options_.team.size > 1 && !collect(report.findings, unused)) return {};
    for (const Dump* dump : {&actual_, &reference_}) {
      const std::string_view side = dump == &actual_ ? "actual" : "reference";
      for (const std::string& what : dump->left_out) {
        leave_out(what, side, Verdict::not_comparable,
                  "it cannot be read as a tensor; an [[ignore]] rule leaves it out with a reason", report);
      }
      for (const std::string& what : dump->unreadable)
        leave_out(what, side, Verdict::unreadable, what, report);
    }
    const Sides sides{actual_, reference_, actual_tensors_, reference_tensors_};
    find_origins(report.findings, found, sides);
    find_causes(report.findings, found, sides, reference_by_id_);
    note_dtypes(report, found);
    if (options_.only.empty()) {
      const std::vector<std::string> own = options_.rules.unused();  // what is left out has rules, too
      std::erase_if(unused,
                    [&](const std::string& rule) { return std::ranges::find(own, rule) == own.end(); });
      for (const std::string& rule : unused) report.notes.push_back("rule without a match: " + rule);
    }
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
  }

 private:
  // All findings in order; those of other processes of the team are still empty.
  std::vector<Finding> find_all(const std::vector<Pair>& pairs, std::vector<Pair>& found) {
    std::vector<Finding> findings;
    std::vector<double> bytes;
    if (options_.only.empty()) findings.reserve(pairs.size());
    std::vector<bool> wanted;
    for (const Pair& pair : pairs) {
      std::string name = to_string(pair.id());
      wanted.push_back(options_.only.empty() || options_.only == name || glob_match(options_.only, name));
      if (!wanted.back()) continue;
      findings.emplace_back();
      findings.back().id = pair.id();
      findings.back().name = std::move(name);
      found.push_back(pair);
      bytes.push_back(bytes_of(pair));
    }
    const std::vector<int> owner = share_out(bytes, options_.team.size);
    double total = 0, done = 0;
    for (std::size_t i = 0; i < owner.size(); ++i) total += is_own(owner[i]) ? bytes[i] : 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (wanted[i] && is_own(owner[at])) {
        Finding& finding = findings[at];
        if (options_.progress) options_.progress(done, total, finding.name);
        done += bytes[at];
        find(finding, pairs[i]);
        if (!options_.repeat.empty() && finding.verdict != Verdict::passed)
          finding.repeat = options_.repeat + only_option(finding.name);
        own_.at.push_back(at);
      }
      at += wanted[i] ? 1 : 0;
      if (!options_.rules.ignored(paths_of(pairs[i].id()))) row_dtype_->see(pairs[i]);
    }
    return findings;
  }

  bool is_own(int owner) const { return owner == options_.team.rank; }

  // What all processes of the team found, in the first one. False in the others.
  bool collect(std::vector<Finding>& findings, std::vector<std::string>& unused) {
    for (const std::size_t i : own_.at) own_.findings.push_back(std::move(findings[i]));
    own_.unused_rules = unused;
    const std::vector<std::string> shares = options_.team.gather(pack(std::exchange(own_, {})));
    for (const std::string& text : shares) {
      Share share = unpack_share(text);
      for (std::size_t i = 0; i < share.at.size(); ++i)
        findings.at(share.at[i]) = std::move(share.findings.at(i));
      std::erase_if(unused, [&](const std::string& rule) {
        return std::ranges::find(share.unused_rules, rule) == share.unused_rules.end();
      });
    }
    int maps = 0;  // each process made as many as one alone would have
    for (Finding& f : findings) {
      if (f.error_map && ++maps > options_.error_maps) f.error_map.reset();
    }
    return !shares.empty();
  }

  // What a reader could not take as a tensor is not compared, and stands in the report like any tensor that
  // is not.
  void leave_out(const std::string& what, std::string_view side, Verdict verdict, const std::string& reason,
                 Report& report) const {
    Finding f;
    f.name = fmt::format("{}: {}", side, what);
    f.id.module = f.name;
    const auto ignored = options_.rules.ignored({f.name, what});
    f.verdict = ignored ? Verdict::ignored : verdict;
    f.reason = ignored ? *ignored : reason;
    if (options_.only.empty()) report.findings.push_back(std::move(f));
  }

  void find(Finding& f, const Pair& pair) {
    const std::vector<std::string> paths = paths_of(f.id);
    if (const auto reason = options_.rules.ignored(paths)) {
      f.verdict = Verdict::ignored;
      f.reason = *reason;
    } else if (pair.actual == nullptr) {
      f.verdict = Verdict::missing_actual;
      f.reason = "only in " + reference_.path.string();
    } else if (pair.reference == nullptr) {
      f.verdict = Verdict::missing_reference;
      f.reason = "only in " + actual_.path.string();
    } else {
      try {
        compare_pair(f, pair, paths);
      } catch (const std::exception& e) {  // bad_alloc included: the other tensors go on
        f.verdict = Verdict::unreadable;
        f.reason = e.what();
      }
    }
  }

  void compare_pair(Finding& f, const Pair& pair, const std::vector<std::string>& paths) {
    f.actual_dtype = pair.actual->dtype;
    f.reference_dtype = pair.reference->dtype;
    f.actual_shape = pair.actual->shape;
    f.reference_shape = pair.reference->shape;
    const bool has_values = without_bits(actual_, *pair.actual) == nullptr &&
                            without_bits(reference_, *pair.reference) == nullptr;
    const Expectation e = expectation(f, pair, paths);
    if (has_values) {
      compare_values(f, pair, e);
    } else {
      compare_recorded(f, pair, e);
    }
    check_not_shrunk(actual_, *pair.actual);
    check_not_shrunk(reference_, *pair.reference);
  }

  Expectation expectation(Finding& f, const Pair& pair, const std::vector<std::string>& paths) const {
    const Policy* by_rule = options_.rules.policy_of(paths);
    Expectation e;
    e.policy = by_rule != nullptr ? by_rule : &options_.policies.front();
    e.threads = options_.threads;
    e.exact_sums = options_.exact_sums;
    if (const auto count = options_.rules.count_of(paths)) {
      e.count = count->count;
      f.count_source = count->source;
    } else if (const auto known = count_of_(*pair.reference)) {
      e.count = known->count;
      f.count_source = known->source;
    }
    const bool deviates = row_dtype_->deviates(pair);
    row_dtype_->apply(e, deviates ? f.reference_dtype : coarser(f.actual_dtype, f.reference_dtype));
    if (deviates) f.notes.push_back(dtypes_of(pair));
    return e;
  }

  // What the other policies say, by the same judge.
  void add_opinions(Finding& f, Expectation e,
                    const std::function<void(Finding&, const Expectation&)>& judge) const {
    e.map_errors = false;
    for (std::size_t i = 1; i < options_.policies.size(); ++i) {
      Finding other;
      e.policy = &options_.policies[i];
      judge(other, e);
      f.others.push_back({e.policy->name, other.verdict, other.ratio});
    }
  }

  void compare_values(Finding& f, const Pair& pair, Expectation e) {
    const Merged actual = merge(actual_, *pair.actual), reference = merge(reference_, *pair.reference);
    e.map_errors = error_maps_ < options_.error_maps;
    judge(f, actual.tensor, reference.tensor, e);
    judge_replicas(f, actual, &reference, reference.tensor, e);
    error_maps_ += f.error_map ? 1 : 0;
    add_opinions(f, e, [&](Finding& other, const Expectation& by) {
      judge(other, actual.tensor, reference.tensor, by);
    });
    if (f.verdict == Verdict::failed && !is_float(actual.tensor.dtype()))
      note_choices(f, actual.tensor.whole(), reference.tensor.whole());
  }

  void compare_recorded(Finding& f, const Pair& pair, const Expectation& e) const {
    const RecordedSide actual = recorded_side(actual_, *pair.actual, "actual");
    const RecordedSide reference = recorded_side(reference_, *pair.reference, "reference");
    const Finding unjudged = f;
    judge_recorded(f, actual, reference, e);
    add_opinions(f, e, [&](Finding& other, const Expectation& by) {
      other = unjudged;
      judge_recorded(other, actual, reference, by);
    });
    if (options_.accept_statistics) accept_statistics(f);
  }

  // Tensors whose dtype is not the reference's where that of most is.
  void note_dtypes(Report& report, const std::vector<Pair>& found) const {
    std::int64_t deviating = 0;
    std::string first;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (report.findings[i].verdict == Verdict::ignored || !row_dtype_->deviates(found[i])) continue;
      if (deviating++ == 0) first = fmt::format("{}, {}", report.findings[i].name, dtypes_of(found[i]));
    }
    if (deviating > 0)
      report.notes.push_back(fmt::format("another dtype in {} tensor{}, first in {}", deviating,
                                         deviating == 1 ? "" : "s", first));
  }

  // Expert indices that differ: were the scores behind them nearly equal?
  void note_choices(Finding& f, const Tensor& actual, const Tensor& reference) const {
    if (f.id.arg != "indices") return;
    Identity id = f.id;
    id.arg = "logits";
    const LogicalTensor* logits = reference_by_id_.with_values(reference_, id);
    if (logits == nullptr) return;
    // The bias that was in force: recorded before the step.
    const Identity bias_id{id.step, -1, Phase::forward, id.module, "state", "expert_bias", 0};
    const LogicalTensor* bias = reference_by_id_.with_values(reference_, bias_id);
    const std::vector<double> values =
        bias == nullptr ? std::vector<double>() : merge(reference_, *bias).tensor.whole().values();
    Expectation e;
    e.policy = &options_.policies.front();
    row_dtype_->apply(e, logits->dtype);
    const auto rows = e.policy->rows_of(e.row_dtype);
    if (rows.empty()) return;
    std::string note =
        explain_choices(actual, reference, merge(reference_, *logits).tensor.whole(), values, rows.front());
    if (!note.empty()) f.notes.push_back(std::move(note));
  }

  const Dump& actual_;
  const Dump& reference_;
  const DiffOptions& options_;
  std::vector<LogicalTensor> actual_tensors_, reference_tensors_;
  TensorsById reference_by_id_;
  CountOf count_of_;
  std::optional<RowDType> row_dtype_;
  int error_maps_ = 0;  ///< made so far
  Share own_;
};

}  // namespace

Report diff(const Dump& actual, const Dump& reference, const DiffOptions& options) {
  return Differ(actual, reference, options).run();
}

}  // namespace assay
