#include "assay/compare/causes/optimizer/explain_clip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "assay/compare/causes/optimizer/least_squares.h"
#include "assay/compare/causes/values/factor_names.h"

namespace assay {
namespace {

// Coefficients that were fitted: adam_rule.cpp, a few roundings each and 1 - beta.
double error_of_clip(const ReferenceRule& r, double u) {
  return 16 * u + error_of_rest(r.rule.beta1, u);
}

class Clips {
 public:
  Clips(const std::vector<ClipFault>& faults, const ReferenceRule& r, const ClipOfStep& s)
      : faults_(faults), r_(r), s_(s), error_(error_of_clip(r, s.u)) {}

  void explain() {
    std::vector<std::vector<ClipFault>> groups;  // of one coefficient
    for (const ClipFault& f : faults_) {
      const auto same = std::ranges::find_if(groups, [&](const auto& g) {
        return std::abs(*g.front().fault->value - *f.fault->value) <= 2 * error_ * std::abs(*f.fault->value);
      });
      if (same != groups.end())
        same->push_back(f);
      else
        groups.push_back({f});
    }
    if (by_own_norms(groups)) return;
    for (const auto& group : groups) {
      const auto [key, text] = cause_of(group);
      for (const ClipFault& f : group) {
        f.fault->key = key;
        f.fault->text = text;
      }
    }
  }

 private:
  using KeyAndText = std::pair<std::string, std::string>;

  static std::set<std::string> names(const std::vector<ClipFault>& group) {
    std::set<std::string> all;
    for (const ClipFault& f : group) all.insert(f.name);
    return all;
  }

  bool has_limit() const { return r_.max_norm > 0 && std::isfinite(r_.max_norm); }
  double norm_behind(double clip) const { return r_.max_norm / clip - r_.clip_epsilon; }

  // Several coefficients, each of which is that of the gradients that have it.
  bool by_own_norms(const std::vector<std::vector<ClipFault>>& groups) const {
    if (!has_limit()) return false;
    std::string list;
    for (const auto& group : groups) {
      const double own = s_.squares.norm_of(names(group)), error = s_.squares.error(s_.u) + error_;
      const double clip = std::min(1.0, r_.max_norm / (own + r_.clip_epsilon));
      if (names(group).size() == s_.squares.by_parameter.size() ||
          std::abs(clip - *group.front().fault->value) > error * clip)
        return false;
      constexpr std::size_t most = 3;
      if (&group - groups.data() < static_cast<std::ptrdiff_t>(most))
        list += fmt::format("{}{:.6g} of {}", list.empty() ? "" : ", ", own,
                            describe_parameters(names(group), s_.squares.parameters));
    }
    for (const ClipFault& f : faults_) {
      f.fault->key = "clip by own norms";
      f.fault->text =
          fmt::format("gradients are clipped by the norms of groups, not by that of all, {:.6g}: {}{}",
                      s_.norm, list, groups.size() > 3 ? ", .." : "");
    }
    return true;
  }

  KeyAndText cause_of(const std::vector<ClipFault>& group) const {
    const double clip = *group.front().fault->value;
    const std::string used = fmt::format("gradients are multiplied by {:.6g}, not by {:.6g}", clip, s_.right);
    const auto is = [&](double value) { return std::abs(clip - value) <= error_ * std::abs(value); };
    if (is(1)) return {"clip none", used + ": they are not clipped"};
    if (has_limit() && clip > 1 && is(r_.max_norm / (s_.norm + r_.clip_epsilon)))
      return {"clip up", used + fmt::format(": max_norm {:.4g} / norm {:.6g}, though the norm is below it",
                                            r_.max_norm, s_.norm)};
    const double limit = clip * (s_.norm + r_.clip_epsilon);
    // Half the max_norm is a setting rather than all gradients counted four times.
    const double two_digits = std::stod(fmt::format("{:.2g}", limit));
    const bool is_setting = std::abs(two_digits - limit) <= 2 * error_ * limit;
    if (has_limit() && !is_setting) {
      const double norm = norm_behind(clip);
      const auto why = explain_norm(s_.squares, norm, error_ + s_.squares.error(s_.u), s_.sizes);
      if (why)
        return {"clip by " + *why,
                used + fmt::format(": the norm behind it is {:.6g}, not {:.6g}: {}", norm, s_.norm, *why)};
    }
    if (const auto brief = short_number({limit, 0}, 2 * error_ * limit)) {
      const std::string key = fmt::format("max_norm {:.4g}", *brief);
      if (clip > 1)
        return {key, used + fmt::format(": max_norm {:.4g} / norm {:.6g}, though the norm is below it",
                                        *brief, s_.norm)};
      return {key,
              used + fmt::format(": max_norm is {:.4g}{}", *brief,
                                 has_limit() ? fmt::format(", the reference's {:.4g}", r_.max_norm) : "")};
    }
    const double ratio = clip / s_.right;
    for (const NamedFactor& n : factor_names(s_.sizes)) {
      if (std::abs(n.value - ratio) <= error_ * n.value)
        return {fmt::format("clip x {:.6g}", n.value),
                used + fmt::format(", {}", describe_factor(n.value, factor_names(s_.sizes)))};
    }
    return {fmt::format("clip x {:.4g}", ratio), used};
  }

  const std::vector<ClipFault>& faults_;
  const ReferenceRule& r_;
  const ClipOfStep& s_;
  double error_;
};

}  // namespace

void explain_clip(const std::vector<ClipFault>& faults, const ReferenceRule& rule, const ClipOfStep& step) {
  if (!faults.empty()) Clips(faults, rule, step).explain();
}

}  // namespace assay
