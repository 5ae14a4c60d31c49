#include "assay/compare/causes/optimizer/name_mistake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/case_writer.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// What a setting is called in a sentence: of a list its singular and the number.
std::string called(const StepRule& r, const StepSetting& s) {
  if (!std::holds_alternative<std::vector<double>>(r.value(s))) return std::string(s.attribute);
  return fmt::format("{}{}", s.attribute.substr(0, s.attribute.size() - 1), s.at + 1);
}

// Whether the decay joins the gradient.
bool is_l2(const StepRule& r, const StepSetting& decay) {
  return decay.shows_in != r.op->step->updated;
}

// Times which the right number is; no right number: the number.
std::string ratio(double used, double right) {
  return fmt::format("x {:.4g}", right == 0 ? used : used / right);
}

class Names {
 public:
  explicit Names(const MadeBy& m) : m_(m) {}

  std::vector<StepFault> all() {
    if (m_.used.times != 1)
      return {fault(Cause::not_updated, "twice",
                    "the step is taken twice: its states took the gradient in two times")};
    if (!m_.used.lost.empty()) return {of_lost()};
    if (m_.used.other) return {of_gradient()};
    std::optional<StepFault> of_decay;
    for (const StepSetting& s : settings_of(*m_.used.op, StepNumber::decay)) of_decay = decay(s);
    const std::optional<StepFault> main = of_settings();
    if (!main) return of_decay ? std::vector{*of_decay} : std::vector<StepFault>();
    return of_decay && !decays_along_ ? std::vector{*main, *of_decay} : std::vector{*main};
  }

 private:
  StepFault fault(Cause cause, std::string key, std::string text) const {
    return {cause, std::move(key), std::move(text), m_.residual};
  }
  StepFault fault(Cause cause, std::string key, std::string text, double value, double reference) const {
    return {cause, std::move(key), std::move(text), m_.residual, value, reference};
  }

  StepFault of_lost() const {
    std::string list;
    for (const std::size_t k : m_.used.lost)
      list += (list.empty() ? "" : ", ") + std::string(m_.used.op->step->states[k].before);
    return fault(Cause::step_stale, "reset " + list,
                 list + " starts from zero at this step: what it was before is lost");
  }

  StepFault of_gradient() const {
    std::string amount;
    for (const StepSetting& s : settings_of(*m_.used.op, StepNumber::gradient)) {
      const double times = m_.used.number(s) / m_.right.number(s);
      if (times != 1) amount = fmt::format("{:.6g} x ", times);
    }
    if (m_.used.adds)
      return fault(Cause::step_stale, "added " + m_.of_gradient,
                   fmt::format("to the gradient that is used {} is added", m_.of_gradient));
    return fault(Cause::step_stale, "instead " + m_.of_gradient,
                 fmt::format("the gradient that is used is {}{}, not the reduced one of this step", amount,
                             m_.of_gradient));
  }

  std::optional<StepFault> decay(const StepSetting& s) const {
    const double used = m_.used.number(s), right = m_.right.number(s);
    const bool is_other = m_.used.op != m_.right.op;
    if (used == right && !is_other) return {};
    if (is_l2(m_.used, s) || is_other) return l2(used, right, is_l2(m_.used, s), is_other);
    const std::string text =
        used == 0    ? fmt::format("weight decay is missing: the reference has {:.4g}", right)
        : right == 0 ? fmt::format("weight decay {:.6g} where the reference has none", used)
                     : fmt::format("weight decay is {:.6g}, the reference's {:.4g}", used, right);
    return fault(Cause::weight_decay, fmt::format("decay {:.4g} {:.4g}", used, right), text, used, right);
  }

  StepFault l2(double used, double right, bool joins_gradient, bool is_other) const {
    std::string text;
    if (!joins_gradient)
      text = fmt::format(
          "weight decay {:.4g} is taken from the parameter, where the reference adds it to the gradient (L2)",
          used);
    else if (is_other && right != 0)
      text = fmt::format(
          "weight decay {:.4g} is added to the gradient (L2), where the reference takes it from the "
          "parameter",
          used);
    else if (used == 0)
      text = fmt::format("weight decay {:.4g} is not added to the gradient (L2) as in the reference", right);
    else
      text = fmt::format("weight decay {:.4g} is added to the gradient (L2); the reference adds {}", used,
                         right == 0 ? "none" : fmt::format("{:.4g}", right));
    return fault(Cause::l2_decay, fmt::format("l2 {:.3g} {:.3g}", used, right), text, used, right);
  }

  // The one that says most; what else is another is said beside it.
  std::optional<StepFault> of_settings() {
    if (m_.used.op != m_.right.op) return {};
    std::optional<StepFault> first;
    for (const StepNumber kind :
         {StepNumber::gradient, StepNumber::kept, StepNumber::correction, StepNumber::count,
          StepNumber::place, StepNumber::form, StepNumber::epsilon, StepNumber::rate}) {
      for (const StepSetting& s : settings_of(*m_.used.op, kind)) {
        const auto next = of_setting(s);
        if (!next) continue;
        if (!first) {
          first = next;
          continue;
        }
        first->key += ", " + next->key;
        first->text += "; and " + next->text;
      }
    }
    return first;
  }

  std::optional<StepFault> of_setting(const StepSetting& s) {
    const AttributeValue a = m_.used.value(s), b = m_.right.value(s);
    if (a == b) return {};
    if (s.is == StepNumber::place || s.is == StepNumber::form) return form(s, a, b);
    const double used = m_.used.number(s), right = m_.right.number(s);
    if (used == right) return {};
    const std::string name = called(m_.used, s);
    switch (s.is) {
      case StepNumber::gradient:
        return gradient(s, used, right);
      case StepNumber::kept:
        return fault(Cause::betas, fmt::format("{} {:.6g}", name, used),
                     fmt::format("{} is {:.6g}, the reference's {:.4g}", name, used, right), used, right);
      case StepNumber::correction:
        return fault(Cause::bias_correction, name,
                     used == 0 ? "the moments' bias is not corrected"
                               : "the moments' bias is corrected; the reference's is not");
      case StepNumber::count:
        return fault(Cause::bias_correction, name,
                     fmt::format("the moments' bias is corrected as at step {}, where this is step {}",
                                 used + 1, right + 1),
                     used + 1, right + 1);
      case StepNumber::epsilon:
        return fault(Cause::epsilon, fmt::format("epsilon {:.3g}", used),
                     fmt::format("epsilon is {:.3g}, the reference's {:.3g}", used, right), used, right);
      default:
        return rate(used, right);
    }
  }

  StepFault gradient(const StepSetting& s, double used, double right) const {
    if (used == -right)
      return fault(Cause::step_sign, "sign of gradient", "the gradient enters with the other sign");
    if (!m_.alone.empty() && used == 1 && s.shows_in != m_.alone)
      return fault(Cause::clip, m_.alone + " not clipped",
                   "a state takes the gradient as it was before clipping", used, right);
    return fault(Cause::clip, "coefficient",
                 fmt::format("gradients are multiplied by {:.6g}, where the reference's rule gives {:.6g}",
                             used, right),
                 used, right);
  }

  StepFault form(const StepSetting& s, const AttributeValue& used, const AttributeValue& right) const {
    const std::string own = attribute_text(used);
    std::string who;
    for (const Seen& row : m_.used.op->seen) {
      if (row.attribute == s.attribute && parse_attribute(row.value) == used)
        who = fmt::format(" ({})", row.who);
    }
    const Cause cause = s.is == StepNumber::place ? Cause::epsilon : Cause::attribute;
    StepFault f =
        fault(cause, fmt::format("{} {}", s.attribute, own),
              fmt::format("{} is {}{}, the reference's {}", s.attribute, own, who, attribute_text(right)));
    if (cause == Cause::attribute)
      f.parameters = {.op = std::string(m_.used.op->name),
                      .actual_attributes = differences(*m_.used.op, m_.used.variant, m_.right.variant),
                      .reference_attributes = differences(*m_.used.op, m_.right.variant, m_.used.variant),
                      .attribute = std::string(s.attribute)};
    return f;
  }

  // The decay is multiplied by the rate: that of an update with another length or sign is its own.
  StepFault rate(double used, double right) {
    double decay = 0, right_decay = 0;
    for (const StepSetting& s : settings_of(*m_.used.op, StepNumber::decay)) {
      decay = m_.used.number(s);
      right_decay = m_.right.number(s);
    }
    if (used == -right && decay == -right_decay) {
      decays_along_ = true;
      return fault(Cause::step_sign, "sign of update", "the update has the other sign");
    }
    if (used == 2 * right) return fault(Cause::not_updated, "update twice", "the update is applied twice");
    return fault(Cause::learning_rate, "lr " + ratio(used, right),
                 fmt::format("the learning rate is {:.6g}, the reference's {:.6g} ({:.6g} times)", used,
                             right, used / right),
                 used, right);
  }

  const MadeBy& m_;
  bool decays_along_ = false;
};

}  // namespace

std::vector<StepFault> name_mistake(const MadeBy& made) {
  return Names(made).all();
}

std::optional<StepFault> unchanged_elements(const TensorSource& after, const TensorSource& before,
                                            const std::string& what, const StepErrors& over) {
  std::int64_t old = 0, inside = 0;
  for_each_element({&after, &before}, [&](std::int64_t at, const double* x) {
    if (x[0] != x[1]) return;
    ++old;
    inside += at >= over.first && at <= over.last ? 1 : 0;
  });
  const std::int64_t size = after.size(), range = over.last - over.first + 1;
  if (old == size)
    return StepFault{Cause::not_updated, what + " not updated",
                     what + " is not updated: it is what it was before the step", 0};
  // One element may be what it was by chance or without a gradient; so may be the ends of a part.
  const double ends = 2 * std::log2(static_cast<double>(size));
  if (inside != range || !proves(over.bits, ends)) return {};
  const bool is_part = size % range == 0 && over.first % range == 0;
  const std::string part = is_part ? fmt::format(" (part {} of {})", over.first / range, size / range) : "";
  return StepFault{
      Cause::not_updated, what + " not updated in part",
      fmt::format("{} is not updated in elements {}..{} of {}{}: they are what they were before the step",
                  what, over.first, over.last, size, part),
      0};
}

}  // namespace assay
