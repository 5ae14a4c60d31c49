#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/error_map.h"
#include "assay/compare/result/exemption.h"
#include "assay/compare/result/metrics.h"
#include "assay/dumps/record/dump.h"

namespace assay {

enum class Verdict : std::uint8_t {
  passed,
  exempt,     ///< outside its rule, but right: Finding::exemption
  failed,     ///< outside its rule
  inherited,  ///< outside its rule because its inputs were wrong already: Finding::origin
  undecided,  ///< outside its rule, but right by its own inputs, which may hide a fault: Finding::origin
  replicas_differ,  ///< ranks that should hold equal bits hold different bits
  no_rule,  ///< no row decides: the table lacks the dtype, or needs an accumulation count that is unknown
  /// No evidence: the rule would pass zeros as well, or an input is outside the domain of the operator.
  mistrusted,
  not_comparable,  ///< shapes or kinds of dtype differ, or the sides recorded nothing in common
  /// One side has no values, and the statistics of both sides are within the rule. This proves nothing about
  /// the elements.
  statistics_agree,
  /// One side has a sketch only, and the difference of both is within the rule as a whole: elements that are
  /// outside and leave its L2 norm inside are not seen.
  agrees_by_sketch,
  missing_actual,  ///< only the reference has it
  missing_reference,
  unreadable,
  ignored,  ///< by an [[ignore]] rule
};
inline constexpr int verdict_count = 15;
/// "passed", "failed", "replicas differ", .. as reports print it.
std::string_view name(Verdict);
/// Whether values were compared, by a rule: passed, exempt, failed, inherited, undecided, replicas_differ or
/// mistrusted.
bool compared(Verdict);
/// Whether it fails no run: passed, exempt or ignored.
bool is_fine(Verdict);

/// The verdict of another policy on the same pair.
struct Opinion {
  std::string policy;
  Verdict verdict = Verdict::passed;
  double ratio = 0;  ///< largest error / allowed
};

/// A statistic of both sides, and the largest difference that elements within the rule can make.
struct ComparedStatistic {
  std::string name;  ///< "max", "min", "mean", "l2", "sum", "abs sum", "NaN", "Inf"
  double actual = 0, reference = 0;
  double allowed = 0;  ///< inf: no bound holds, as the rounding of the recorder may explain any difference
};

/// The L2 norm of actual - reference, as sketches tell it (golden/sketch.h).
struct ComparedSketch {
  double distance = 0, low = 0, high = 0;  ///< the estimate, and where it lies with 99.9 %
  double allowed = 0;                      ///< what elements within the rule can make; inf: no row decided
  double norm = 0;                         ///< of the reference
  std::int64_t values = 0;                 ///< of a sketch
};

/// The place where a difference was made.
struct Origin {
  enum class Kind : std::uint8_t {
    unknown,    ///< its inputs were not recorded
    created,    ///< made here: a root
    inherited,  ///< follows from `root`
  };
  Kind kind = Kind::unknown;
  /// The largest error / allowed of the result on the actual side's own recorded inputs. Where the call
  /// cannot be judged: against the errors of its inputs. NaN: unknown.
  double local_ratio = std::numeric_limits<double>::quiet_NaN();
  std::string reason;
  std::string root;  ///< the name of the finding that made the difference
};
std::string_view name(Origin::Kind);

struct Finding;
/// Whether the finding follows from another reported failure and says nothing new.
bool is_inherited(const Finding&);

/// Fails a tensor that is wrong by what it was made of, whatever the rule of the whole run says.
void fail_by_inputs(Finding&, const std::string& why);

/// Whether `ratio` was computed, from the elements or from statistics of the whole tensor.
bool is_judged(const Finding&);

/// Everything known about one tensor of the comparison. A difference is a value, never an exception.
struct Finding {
  std::string name;  ///< unique within the report
  Identity id;
  Verdict verdict = Verdict::no_rule;  ///< the value before any judgement
  std::string rule;                    ///< the table row, bound or promise that decided, as a sentence
  std::string row;     ///< the part of `rule` that is common to all tensors judged by one row or bound
  std::string reason;  ///< why it did not pass; empty if it passed
  bool asks_for_bits = false;  ///< the rule demands equal bits: rounding exempts nothing
  bool is_choice = false;      ///< rows that data chose, and no tensor that was recorded says by which rule
  std::optional<Exemption> exemption;  ///< of Verdict::exempt
  std::optional<Origin> origin;        ///< of failures only
  std::vector<Diagnosis> diagnoses;    ///< causes, most specific first
  std::vector<std::string> notes;
  std::string unjudged;   ///< why what it was made of did not judge it; empty if it did, or was not asked to
  bool injected = false;  ///< an output with a planted fault (check --prove): passed if the gate rejected it
  std::optional<std::int64_t> count;  ///< accumulation count
  std::string count_source;

  DType actual_dtype = DType::float32, reference_dtype = DType::float32;
  Shape actual_shape, reference_shape;
  std::optional<Metrics> metrics;             ///< of pairs that were measured
  std::vector<ComparedStatistic> statistics;  ///< of pairs without values on one side
  std::optional<ComparedSketch> sketch;       ///< of pairs that were compared by sketches
  double ratio = 0;                           ///< largest error / allowed under the deciding rule
  double atol = 0, rtol = 0;                  ///< of the deciding row; 0 if no row decided
  /// The smallest tolerance t with |a-g| <= t (1+|g|) that passes; NaN for rules of another form.
  double required = std::numeric_limits<double>::quiet_NaN();
  double actual_value = 0, reference_value = 0;  ///< at worst_element(*metrics)
  std::optional<ErrorMap> error_map;             ///< of pairs that did not pass, if the caller asked for it
  std::vector<Opinion> others;
  std::string repeat;  ///< the command that repeats this tensor alone; empty if it passed

  bool has_equal_bits() const { return metrics && metrics->different_bits == 0; }
};

/// A tolerance policy of a report, and the edition of its table.
struct PolicyUsed {
  std::string name;
  std::string table_sha256;  ///< empty for a policy without a table
};

/// What the row that decided allows beside what the tensor is: a cause is judged so, for an absolute
/// tolerance above all values says nothing of them.
Allowed on_its_own_scale(const Finding&);

/// How many tensors of a comparison were judged by what they were made of.
struct Coverage {
  std::int64_t judged = 0;
  std::int64_t sources = 0;               ///< nothing made them: tokens, parameters before the first step
  std::int64_t unjudged = 0;              ///< the end-to-end rule alone decides
  std::vector<std::string> why_unjudged;  ///< "first loss lm_loss (step 0, forward)", ..
};
/// "6,215 of 6,454 tensors are judged by what they were made of, 199 are sources, 40 are not judged: first
/// .."
std::string sentence(const Coverage&);

/// One run of check or diff.
struct Report {
  std::string verb, actual, reference;          ///< the paths of the compared sides
  std::string actual_format, reference_format;  ///< Dump::format; empty for a side that is no dump
  std::string command;                          ///< the command line; empty for a call from C++
  std::vector<PolicyUsed> policies;             ///< the first one decided
  std::optional<Coverage> coverage;             ///< where tensors were judged by what they were made of
  std::vector<std::string> notes;
  std::vector<Finding> findings;  ///< in execution order
  double seconds = 0;

  std::int64_t count(Verdict) const;
  std::int64_t compared() const;
  bool compared_nothing()
      const;  ///< no pair was judged, agreed by statistics, or was measured without a rule
  std::int64_t not_compared() const;  ///< missing, not comparable, compared by statistics only, unreadable or
                                      ///< without a rule; ignored tensors do not count
  /// The first finding in execution order that was compared and did not pass; without one, the first that is
  /// undecided, that was not compared, or that is inherited from an exempt one.
  const Finding* first_failure() const;
  /// Of several steps the first one in which a tensor fails, and that tensor, as a sentence; empty: none
  /// does, or there is one step only.
  std::string parting() const;
  /// 0: everything on both sides was compared and passed. 2: something is unreadable, or nothing was
  /// compared. 1: anything else.
  int exit_status() const;
  std::string_view verdict() const;  ///< exit_status() in a word: "PASS", "FAIL" or "TROUBLE"
  /// "4,976 compared: 4,970 passed, 6 failed, 0 inherited; 2 not compared": the last line of every report.
  /// Exempt tensors are counted behind those that passed, where there are any.
  std::string summary() const;
};

}  // namespace assay
