#include "assay/compare/flow/hidden_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// The gradient of the operator's first input.
std::string gradient_name(const Operator& op) {
  const auto input = std::ranges::find(op.args, Role::input, &Arg::role);
  return "grad_" + std::string(input->name);
}

}  // namespace

// The class of each row whose gradient is lowest: the target's, from whose probability 1 is taken. -1 if all
// are 0.
std::vector<double> HiddenLosses::lowest_classes(const std::vector<double>& gradient, const Shape& shape) {
  const auto width = static_cast<std::size_t>(shape.empty() ? 0 : shape.back());
  std::vector<double> classes;
  for (std::size_t begin = 0; begin + width <= gradient.size() && width > 0; begin += width) {
    const auto row = std::span(gradient).subspan(begin, width);
    const bool is_zero = std::ranges::all_of(row, [](double v) { return v == 0; });
    classes.push_back(is_zero ? -1 : static_cast<double>(std::ranges::min_element(row) - row.begin()));
  }
  return classes;
}

HiddenLosses::Loss::Share HiddenLosses::Loss::share_in(const Identity& frame) const {
  const auto own = shares.find({frame.step, frame.micro_batch});
  return own == shares.end() ? Share{factor, reach} : own->second;
}

std::optional<DerivedValue> HiddenLosses::gradient_of(const Loss& loss, const SideValues& side,
                                                      const RecordedCalls& calls, const Name& value,
                                                      const Identity& frame) {
  const LogicalTensor* t = side.find(at(record_of(value), frame.step, frame.micro_batch));
  if (t == nullptr) return {};
  const auto made = call_of(loss, side, calls, *t, gradient_name(*loss.op));
  if (!made || made->call.is_too_large()) return {};
  const auto compared = made->call.expected(made->variant, false);
  if (!compared || compared->allowed.empty()) return {};
  const double factor = loss.share_in(frame).factor * side.scale_of(assay::gradient_of(value, frame));
  DerivedValue e;
  const std::vector<double> golden = compared->golden.values();
  const auto part = [&](const std::vector<double>& all) {
    const auto begin = all.begin() + made->begin;
    return std::vector<double>(begin, begin + element_count(t->shape));
  };
  e.values = part(golden);
  e.error = part(compared->allowed);
  e.roundoff = unit_roundoff(t->dtype);
  for (std::size_t i = 0; i < e.values.size(); ++i) {
    e.values[i] *= factor;
    // The factor was fitted, and rounded where it was multiplied.
    e.error[i] = e.error[i] * std::abs(factor) + 2 * unit_roundoff(DType::float32) * std::abs(e.values[i]);
  }
  return e;
}

std::string HiddenLosses::describe(const Name& value, const Identity& frame) const {
  const Loss loss = in_frame(known_.at(value), frame);
  const std::string attributes = differences(*loss.op, loss.variant, {});
  return fmt::format("{:.6g} times the gradient of {}{}", loss.share_in(frame).factor, loss.op->name,
                     attributes.empty() ? "" : fmt::format(" with {}", attributes));
}

const LogicalTensor* HiddenLosses::index_of(const SideValues& side, const Name& value,
                                            const Identity& frame) const {
  const auto found = known_.find(value);
  return found == known_.end() || !found->second.index
             ? nullptr
             : side.find(at(*found->second.index, frame.step, frame.micro_batch));
}

// With all integers of the micro-batch for the tokens: as they are, and each place with the token behind it.
// Last with targets that were given to no module.
std::vector<HiddenLosses::Loss> HiddenLosses::concluding(const SideValues& side, const LogicalTensor& value) {
  std::vector<Loss> all;
  std::set<Name> seen;
  for (const LogicalTensor& t : side.tensors()) {
    const bool is_near = t.id.step == value.id.step && t.id.micro_batch == value.id.micro_batch &&
                         t.id.phase == Phase::forward;
    if (!is_near || is_float(t.dtype) || value.shape.empty() || side.find(t.id) != &t ||
        element_count(t.shape) * value.shape.back() != element_count(value.shape) ||
        !seen.insert(name_of(t.id)).second)
      continue;
    for (const Operator* op : operators()) {
      if (!op->concludes) continue;
      for (const CallVariant& variant : variants_of(*op)) {
        for (const int ahead : {1, 0}) {
          all.push_back({.op = op, .variant = variant, .factor = 1, .index = name_of(t.id), .ahead = ahead});
        }
      }
    }
  }
  for (const Operator* op : operators()) {
    if (!op->concludes) continue;
    for (const CallVariant& variant : variants_of(*op)) all.push_back({op, variant, 1});
  }
  return all;
}

std::optional<DerivedValue> HiddenLosses::gradient(const SideValues& side, const RecordedCalls& calls,
                                                   const Name& value, const Identity& frame) const {
  const auto found = known_.find(value);
  if (found == known_.end()) return {};
  const Loss loss = in_frame(found->second, frame);
  auto e = gradient_of(loss, side, calls, value, frame);
  if (!e) return e;
  const Loss::Share share = loss.share_in(frame);
  for (std::size_t i = 0; i < e->values.size(); ++i)
    e->error[i] += share.reach / std::abs(share.factor) * std::abs(e->values[i]);
  return e;
}

// Of few rows, each of which has its own gradient up to the factor. What they are divided by is another
// number then, whose roundings are far within twice what is allowed.
bool HiddenLosses::may_fit(const Loss& loss, const SideValues& side, const RecordedCalls& calls,
                           const LogicalTensor& value, const std::vector<double>& missing,
                           const std::vector<double>& allowed) {
  constexpr std::int64_t enough = 64;
  if (!loss.concludes()) return true;
  const auto made = call_of(loss, side, calls, value, gradient_name(*loss.op), nullptr, enough);
  if (!made || made->step == 1) return true;
  const auto compared = made->call.expected(made->variant, false);
  if (!compared || compared->allowed.empty()) return true;
  DerivedValue unit;
  unit.values = compared->golden.values();
  unit.error = compared->allowed;
  for (double& e : unit.error) e *= 2;
  std::vector<double> some_missing, some_allowed;
  const std::int64_t width = value.shape.back();
  for (std::int64_t i = 0; i < std::ssize(unit.values); ++i) {
    const auto at = static_cast<std::size_t>(i / width * made->step * width + i % width);
    some_missing.push_back(missing[at]);
    some_allowed.push_back(2 * allowed[at]);
  }
  return factors(1, unit, some_missing, some_allowed) || factors(-1, unit, some_missing, some_allowed);
}

// With an attribute that the gradient itself shows, and steps that are stored.
std::vector<HiddenLosses::Loss> HiddenLosses::solved(const Loss& loss, const SideValues& side,
                                                     const RecordedCalls& calls, const LogicalTensor& value,
                                                     const std::vector<double>& gradient) {
  std::vector<Loss> all;
  const auto made = call_of(loss, side, calls, value, gradient_name(*loss.op), &gradient);
  if (!made) return all;
  const bool is_narrow = unit_roundoff(value.dtype) > unit_roundoff(DType::float32);
  for (CallVariant& variant : made->call.with_candidates(loss.variant)) {
    Loss other = loss;
    ++other.numbers;
    other.variant = std::move(variant);
    all.push_back(other);
    other.stores = true;
    if (is_narrow) all.push_back(std::move(other));
  }
  return all;
}

bool HiddenLosses::fit(const SideValues& side, const RecordedCalls& calls, const Name& value,
                       const Identity& frame, const std::vector<double>& missing,
                       const std::vector<double>& allowed, bool is_all) {
  constexpr int most_tries = 3;
  const LogicalTensor* t = side.find(at(record_of(value), frame.step, frame.micro_batch));
  if (t == nullptr) return false;
  std::vector<Loss> tried, more;
  if (const auto known = known_.find(value); known != known_.end()) {
    if (!known->second.concludes()) return false;
    tried.push_back(known->second);
    tried.front().shown[{frame.step, frame.micro_batch}] = lowest_classes(missing, t->shape);
  } else if (tries_[value]++ < most_tries) {
    if (is_all) tried = concluding(side, *t);
    for (Loss& loss : tried) {
      loss.shown[{frame.step, frame.micro_batch}] = lowest_classes(missing, t->shape);
      if (!loss.variant.attributes.values().empty()) continue;
      (void)trouble_in(
          [&] { std::ranges::move(solved(loss, side, calls, *t, missing), std::back_inserter(more)); });
    }
    // A loss that keeps its steps in the narrow dtype is off by more, so that it comes behind those that do
    // not.
    if (unit_roundoff(t->dtype) > unit_roundoff(DType::float32)) {
      for (std::size_t i = 0, plain = tried.size(); i < plain; ++i) {
        tried.push_back(tried[i]);
        tried.back().stores = true;
      }
    }
    std::ranges::move(more, std::back_inserter(tried));
    for (const Operator* op : operators()) {
      if (!op->regularizes || is_all) continue;
      for (const CallVariant& variant : variants_of(*op)) {
        tried.push_back({op, variant, 1});
        tried.push_back({.op = op, .variant = variant, .factor = 1, .of_all_layers = true});
      }
    }
  }
  std::optional<Loss> best;
  for (Loss& loss : tried) {
    std::map<Frame, Loss::Share> shares = std::move(loss.shares);
    loss.shares.clear();
    loss.factor = 1;
    std::optional<DerivedValue> unit;
    double choices = std::log2(static_cast<double>(tried.size()));
    if (const auto shown = loss.shown.find({frame.step, frame.micro_batch});
        shown != loss.shown.end() && !shown->second.empty()) {
      if (const auto all = targets(loss, side, frame, std::ssize(shown->second), 0))
        choices += static_cast<double>(all->shown) * std::log2(static_cast<double>(t->shape.back()));
    }
    (void)trouble_in([&] {
      if (missing.size() != static_cast<std::size_t>(element_count(t->shape)) ||
          may_fit(loss, side, calls, *t, missing, allowed))
        unit = gradient_of(loss, side, calls, value, frame);
    });
    if (!unit || unit->values.size() != missing.size() || !fit_factor(loss, *unit, missing, allowed, choices))
      continue;
    loss.shares = std::move(shares);
    if (loss.concludes())
      loss.shares[{frame.step, frame.micro_batch}] = {loss.factor, loss.reach};
    else if (const Loss* whole = model())
      loss.of_model = whole->share_in(frame);
    // Of those that fit, the one whose factor is least of an accident.
    if (!best || loss.bits > best->bits) best = std::move(loss);
    if (best->bits > hint_bits) break;
  }
  if (!best) return false;
  // Whether or not the reference did so, the other side may store its steps.
  best->stores = unit_roundoff(t->dtype) > unit_roundoff(DType::float32);
  known_[value] = std::move(*best);
  return true;
}

}  // namespace assay
