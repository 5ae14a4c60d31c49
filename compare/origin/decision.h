#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "assay/compare/result/finding.h"

namespace assay {

/// Within its rule in the units of the reference, which are not its own.
inline bool is_scaled(const Finding& f) {
  return f.verdict == Verdict::exempt && f.exemption->kind == Exemption::Kind::scale_by_convention;
}

/// Outside its rule for certain: what is computed from it may be outside, too.
inline bool is_off(const Finding& f) {
  if (is_scaled(f)) return false;
  return f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
         f.verdict == Verdict::inherited || f.verdict == Verdict::undecided || f.verdict == Verdict::exempt;
}

/// Outside its rule for another reason than a mistake, as far as anybody knows.
inline bool is_without_blame(const Finding& f) {
  return f.verdict == Verdict::exempt || f.verdict == Verdict::undecided;
}

inline std::string_view what_it_does(const Finding& f) {
  return f.verdict == Verdict::exempt ? "is outside of its rule" : "fails";
}

/// Its rule could not judge it; an earlier failure explains that.
inline bool is_beyond_rules(const Finding& f) {
  return f.verdict == Verdict::mistrusted || f.verdict == Verdict::no_rule ||
         f.verdict == Verdict::not_comparable;
}

inline constexpr double no_ratio = std::numeric_limits<double>::quiet_NaN();

/// Made here, or nobody knows where.
/// @param local_ratio  as Origin has it
inline Origin created_here(std::string reason, double local_ratio = no_ratio) {
  return {Origin::Kind::created, local_ratio, std::move(reason), ""};
}
inline Origin made_anywhere(std::string reason, double local_ratio = no_ratio) {
  return {Origin::Kind::unknown, local_ratio, std::move(reason), ""};
}

/// It follows from finding `from`.
struct Inherited {
  std::size_t from;
  std::string reason;
  double local_ratio = no_ratio;
};

/// Why nobody can say where a difference comes from: finding `root` was not judged by what it was made of.
struct Undecided {
  std::size_t root;
  std::string reason;
  double local_ratio = no_ratio;
};

/// Where a difference comes from, or why it is none.
using Decision = std::variant<Origin, Inherited, Exemption, Undecided>;

}  // namespace assay
