#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/error_map.h"
#include "assay/compare/result/metrics.h"
#include "assay/dumps/record/dump.h"

namespace assay {

enum class Verdict : std::uint8_t {
  passed,
  failed,           ///< outside its rule
  inherited,        ///< outside its rule, as what it was computed from was off before: Finding::origin
  replicas_differ,  ///< ranks that should hold the same bits do not
  no_rule,  ///< no row decides: the dtype has none, or the accumulation count would be needed and is unknown
  /// No evidence: the rule would have passed zeros as well, or inputs are outside of the operator's domain.
  mistrusted,
  not_comparable,  ///< shapes or kinds of dtype differ, or nothing was recorded that both sides have
  /// A side has no values, and the statistics that both have are within the rule: of the elements that proves
  /// nothing.
  statistics_agree,
  missing_actual,  ///< only the reference has it
  missing_reference,
  unreadable,
  ignored,  ///< by an [[ignore]] rule
};
inline constexpr int verdict_count = 12;
/// "passed", "failed", "replicas differ", .. as reports print it.
std::string_view name(Verdict);
/// Decided: passed, failed, inherited, replicas_differ or mistrusted.
bool compared(Verdict);

/// What another policy says of the same pair.
struct Opinion {
  std::string policy;
  Verdict verdict = Verdict::passed;
  double ratio = 0;  ///< largest error / allowed
};

/// A number that both sides have of a tensor, and by how much it may differ if every element is within the
/// rule.
struct ComparedStatistic {
  std::string name;  ///< "max", "min", "mean", "l2", "sum", "abs sum", "NaN", "Inf"
  double actual = 0, reference = 0;
  double allowed = 0;  ///< inf: no bound holds, the recorder's rounding may have made any difference
};

/// Where a difference comes from.
struct Origin {
  enum class Kind : std::uint8_t {
    unknown,    ///< nothing that it was computed from was recorded
    created,    ///< here: a root
    inherited,  ///< from `root`
  };
  Kind kind = Kind::unknown;
  /// Error / allowed, the largest: against the golden operator on the actual side's own recorded inputs.
  /// Where the operator cannot be replayed, against what its inputs are off by, or the noise of reruns. NaN:
  /// unknown.
  double local_ratio = std::numeric_limits<double>::quiet_NaN();
  std::string reason;
  std::string root;  ///< name of the finding that it follows from
};
std::string_view name(Origin::Kind);

struct Finding;
/// It follows from a failure that is reported: it says nothing new.
bool is_inherited(const Finding&);

/// Its `ratio` was found: of the elements, or of statistics of the whole.
bool is_judged(const Finding&);

/// All that is known about one tensor of the comparison: a value, never an exception.
struct Finding {
  std::string name;  ///< unique within the report
  Identity id;
  Verdict verdict = Verdict::no_rule;  ///< until something has judged it
  std::string rule;                    ///< the table row, bound or promise that decided, as a sentence
  std::string row;                   ///< the part of `rule` that all tensors judged by one row or bound share
  std::string reason;                ///< why it did not pass; empty if it did
  std::optional<Origin> origin;      ///< of a failure
  std::vector<Diagnosis> diagnoses;  ///< what explains it, most specific first
  std::vector<std::string> notes;
  bool injected = false;  ///< not an output but one with a fault (check --prove): passed if it was rejected
  std::optional<std::int64_t> count;  ///< accumulation count
  std::string count_source;

  DType actual_dtype = DType::float32, reference_dtype = DType::float32;
  Shape actual_shape, reference_shape;
  std::optional<Metrics> metrics;             ///< where the pair was measured
  std::vector<ComparedStatistic> statistics;  ///< where a side has no values
  double ratio = 0;                           ///< largest error / allowed under the deciding rule
  double atol = 0, rtol = 0;                  ///< of the row that decided; 0 where none did
  /// The smallest tolerance t of |a-g| <= t (1+|g|) that would pass; NaN where the rule is of another form.
  double required = std::numeric_limits<double>::quiet_NaN();
  double actual_value = 0, reference_value = 0;  ///< at worst_element(*metrics)
  std::optional<ErrorMap> error_map;             ///< where it was asked for and the pair did not pass
  std::vector<Opinion> others;
  std::string repeat;  ///< the command that repeats just this tensor, if it did not pass
};

/// A tolerance policy of a report, and which edition of its table was used.
struct PolicyUsed {
  std::string name;
  std::string table_sha256;  ///< empty where the policy has no table
};

/// One run of check or diff.
struct Report {
  std::string verb, actual, reference;          ///< what was compared: paths
  std::string actual_format, reference_format;  ///< Dump::format; empty where a side is no dump
  std::string command;                          ///< as it was given; empty where no command was
  std::vector<PolicyUsed> policies;             ///< the first decided
  std::vector<std::string> notes;
  std::vector<Finding> findings;  ///< in execution order
  double seconds = 0;

  std::int64_t count(Verdict) const;
  std::int64_t compared() const;
  bool compared_nothing() const;      ///< not even by statistics, or measured without a rule
  std::int64_t not_compared() const;  ///< missing, not comparable, compared by statistics only, unreadable or
                                      ///< without rule; not the ignored
  /// The first finding in execution order that was compared and did not pass; else the first that was not
  /// compared.
  const Finding* first_failure() const;
  /// 0: everything on both sides was compared and passed; 2: something is unreadable or nothing was compared;
  /// else 1.
  int exit_status() const;
  std::string_view verdict() const;  ///< exit_status() in a word: "PASS", "FAIL" or "TROUBLE"
  /// "4,976 compared: 4,970 passed, 6 failed, 0 inherited; 2 not compared": the last line of every report.
  std::string summary() const;
};

}  // namespace assay
