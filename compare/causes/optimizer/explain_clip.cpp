#include "assay/compare/causes/optimizer/explain_clip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/least_squares.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Group = std::vector<ClipFault>;  // of one coefficient

class Clips {
 public:
  Clips(const std::vector<ClipFault>& faults, const ClipLimit& limit, const ClipOfStep& s)
      : faults_(faults), limit_(limit), s_(s) {
    for (const ClipFault& f : faults) {
      const auto same = std::ranges::find_if(groups_, [&](const Group& g) {
        return is_near(*g.front().fault->value, *f.fault->value, g.front().error + f.error);
      });
      if (same != groups_.end())
        same->push_back(f);
      else
        groups_.push_back({f});
    }
  }

  void explain() {
    if (by_own_norms()) return;
    for (const Group& group : groups_) {
      StepFault said = *group.front().fault;
      error_ = std::ranges::min(group, {}, &ClipFault::error).error;
      name(said);
      for (const ClipFault& f : group) {
        f.fault->cause = said.cause;
        f.fault->key = said.key;
        f.fault->text = said.text;
        f.fault->value = said.value;
        f.fault->reference = said.reference;
        f.fault->evidence = said.evidence;
      }
    }
  }

 private:
  static bool is_near(double a, double b, double relative) {
    return std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b));
  }
  static std::set<std::string> names(const Group& group) {
    std::set<std::string> all;
    for (const ClipFault& f : group) all.insert(f.name);
    return all;
  }

  // The coefficient is that of these gradients alone.
  bool is_clipped_by(const std::set<std::string>& some, const ClipFault& f) const {
    const double own = std::sqrt(s_.squares.square_of(some));
    return some.size() < s_.squares.by_parameter.size() &&
           is_near(std::min(1.0, limit_.of(own)), *f.fault->value, error_of_norm() + f.error);
  }

  // Several coefficients, each of which is that of the gradients that have it, or of one of them.
  bool by_own_norms() const {
    if (!limit_.is_finite()) return false;
    const bool by_groups = std::ranges::all_of(
        groups_, [&](const Group& group) { return is_clipped_by(names(group), group.front()); });
    // What is below its limit everywhere is not clipped at all.
    const bool one_by_one =
        !by_groups && faults_.size() > 1 &&
        std::ranges::any_of(faults_,
                            [](const ClipFault& f) { return !is_near(*f.fault->value, 1, f.error); }) &&
        std::ranges::all_of(faults_, [&](const ClipFault& f) { return is_clipped_by({f.name}, f); });
    if (!by_groups && !one_by_one) return false;
    std::string list;
    constexpr std::size_t most = 3;  // that are listed
    for (std::size_t i = 0; i < std::min(most, groups_.size()); ++i) {
      const std::set<std::string> some = one_by_one ? std::set{groups_[i].front().name} : names(groups_[i]);
      list += fmt::format("{}{:.6g} of {}", list.empty() ? "" : ", ", std::sqrt(s_.squares.square_of(some)),
                          describe_parameters(some, s_.squares.parameters));
    }
    for (const ClipFault& f : faults_) {
      f.fault->key = "clip by own norms";
      f.fault->text = fmt::format(
          "gradients are clipped by the norms of groups{}, not by that of all, {:.6g}: {}{}",
          one_by_one ? " (each parameter is one)" : "", s_.norm, list, groups_.size() > most ? ", .." : "");
    }
    return true;
  }

  double error_of_norm() const {
    return s_.squares.error(s_.arithmetic) + s_.squares.error_of_storing(s_.arithmetic);
  }

  // Bits by which a number is nearer to the one that was found than one of as few digits is by accident.
  static double bits_of_short(double number, double relative_reach) {
    int digits = 1;
    while (digits < std::numeric_limits<double>::digits10 &&
           fmt::format("{:.{}g}", number, digits) != fmt::format("{:g}", number))
      ++digits;
    return -std::log2(relative_reach) - std::log2(9 * std::pow(10, digits - 1));
  }

  // The norm is named before what it does.
  void name(StepFault& f) const {
    const double clip = *f.value;
    const std::string used = fmt::format("gradients are multiplied by {:.6g}, not by {:.6g}", clip, s_.right);
    const auto say = [&](std::string key, std::string text) {
      f.key = std::move(key);
      f.text = std::move(text);
    };
    if (clip == 0) return say("clip 0", used + ": clipped by a norm that is infinite");
    if (is_near(clip, 1, error_)) return say("clip none", used + ": they are not clipped");
    const std::string below = fmt::format(" / norm {:.6g}, though the norm is below it", s_.norm);
    if (limit_.is_finite() && clip > 1 && is_near(clip, limit_.of(s_.norm), error_ + s_.norm_error))
      return say("clip up", used + fmt::format(": max_norm {:.4g}{}", limit_.max_norm, below));
    // Half the max_norm is a setting rather than all gradients counted four times: what fits better.
    const auto setting = limit_behind({.value = clip, .reach = error_ * std::abs(clip)},
                                      {s_.norm, s_.norm_error}, limit_.epsilons());
    const double of_setting = setting ? bits_of_short(setting->max_norm, error_ + s_.norm_error) : 0;
    if (limit_.is_finite() && name_norm(f, of_setting)) return;
    if (setting && beats_chance(of_setting, 0)) {
      const std::string key = fmt::format("max_norm {:.4g}", setting->max_norm);
      if (clip > 1) return say(key, used + fmt::format(": max_norm {:.4g}{}", setting->max_norm, below));
      return say(key, used + fmt::format(": max_norm is {:.4g}{}", setting->max_norm,
                                         limit_.is_finite()
                                             ? fmt::format(", the reference's {:.4g}", limit_.max_norm)
                                             : ""));
    }
    const double ratio = clip / s_.right;
    const std::vector<NamedFactor> factors = factor_names(s_.sizes);
    for (const NamedFactor& n : factors) {
      if (is_near(n.value, ratio, error_))
        return say(fmt::format("clip x {:.6g}", n.value), used + ", " + describe_factor(n.value, factors));
    }
    say(fmt::format("clip x {:.4g}", ratio), used);
  }

  bool name_norm(StepFault& f, double bits_of_another) const {
    const double norm = limit_.max_norm / *f.value - limit_.epsilon;
    const auto why = explain_norm(s_.squares, norm, error_ + error_of_norm(), s_.sizes);
    if (!why || !beats_chance(why->evidence, bits_of_another)) return false;
    f.key = "norm " + why->text;
    f.text = fmt::format(
        "gradients are clipped by the norm {:.6g}, where that of the recorded gradients is {:.6g}: {}", norm,
        s_.norm, why->text);
    f.evidence = why->evidence;
    // A norm that was recorded and is right was not the one that was used.
    if (s_.has_recorded_norm) return true;
    f.cause = Cause::norm;
    f.value = norm;
    f.reference = s_.norm;
    return true;
  }

  const std::vector<ClipFault>& faults_;
  const ClipLimit& limit_;
  const ClipOfStep& s_;
  std::vector<Group> groups_;
  double error_ = 0;
};

}  // namespace

void explain_clip(const std::vector<ClipFault>& faults, const ClipLimit& limit, const ClipOfStep& step) {
  if (!faults.empty()) Clips(faults, limit, step).explain();
}

}  // namespace assay
