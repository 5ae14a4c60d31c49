#include "assay/compare/flow/hidden_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>

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

// Rows of a gradient that are 0: its last dimension are classes.
std::vector<bool> rows_of_zeros(const std::vector<double>& gradient, const Shape& shape) {
  const auto width = static_cast<std::size_t>(shape.back());
  std::vector<bool> zeros;
  for (std::size_t begin = 0; begin + width <= gradient.size() && width > 0; begin += width) {
    const auto row = std::span(gradient).subspan(begin, width);
    zeros.push_back(std::ranges::all_of(row, [](double v) { return v == 0; }));
  }
  return zeros;
}

}  // namespace

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
  return all;
}

std::optional<DerivedValue> HiddenLosses::gradient(const SideValues& side, const RecordedCalls& calls,
                                                   const Name& value, const Identity& frame) const {
  const auto found = known_.find(value);
  if (found == known_.end()) return {};
  const Loss loss = in_frame(found->second, frame);
  auto e = gradient_of(loss, side, calls, value, frame);
  if (!e || !loss.of_model || loss.factor == found->second.factor) return e;
  for (std::size_t i = 0; i < e->values.size(); ++i)
    e->error[i] += loss.reach / std::abs(loss.factor) * std::abs(e->values[i]);
  return e;
}

// The second time it is known how much the errors of the loss itself count.
bool HiddenLosses::fit_factor(Loss& loss, const DerivedValue& unit, const std::vector<double>& missing,
                              const std::vector<double>& allowed, double tried) {
  const auto error = [&](std::size_t i) { return allowed[i] + std::abs(loss.factor) * unit.error[i]; };
  double reach = 0;
  for (int pass = 0; pass < 2; ++pass) {
    double product = 0, square = 0, off = 0;
    if (pass == 0) loss.factor = 0;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const double e = error(i), x = unit.values[i] / e;
      product += missing[i] / e * x;
      square += x * x;
      off += std::abs(x);
    }
    loss.factor = product / square;
    reach = off / square;  // if no equation is off by more than its error
  }
  bool holds = std::isfinite(loss.factor);
  double bits = 0;
  for (std::size_t i = 0; holds && i < missing.size(); ++i) {
    const double given = loss.factor * unit.values[i], slack = error(i) + reach * std::abs(unit.values[i]);
    holds = std::abs(missing[i] - given) <= slack;
    if (std::abs(given) > slack) bits += std::log2(std::abs(given) / slack);
  }
  loss.reach = reach;
  return holds && proves(bits, loss.numbers * bits_of_a_number + std::log2(tried));
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
    if (!known->second.index) return false;
    tried.push_back(known->second);
  } else if (tries_[value]++ < most_tries) {
    if (is_all) tried = concluding(side, *t);
    for (const Loss& loss : tried) {
      if (!loss.variant.attributes.values().empty()) continue;
      (void)trouble_in(
          [&] { std::ranges::move(solved(loss, side, calls, *t, missing), std::back_inserter(more)); });
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
  for (Loss& loss : tried) {
    std::map<Frame, Loss::Share> shares = std::move(loss.shares);
    loss.shares.clear();
    loss.factor = 1;
    if (loss.index && !t->shape.empty())
      loss.unlabelled[{frame.step, frame.micro_batch}] = rows_of_zeros(missing, t->shape);
    std::optional<DerivedValue> unit;
    (void)trouble_in([&] { unit = gradient_of(loss, side, calls, value, frame); });
    if (!unit || unit->values.size() != missing.size() ||
        !fit_factor(loss, *unit, missing, allowed, static_cast<double>(tried.size())))
      continue;
    loss.shares = std::move(shares);
    if (loss.index)
      loss.shares[{frame.step, frame.micro_batch}] = {loss.factor, loss.reach};
    else if (const Loss* whole = model())
      loss.of_model = whole->share_in(frame);
    known_[value] = std::move(loss);
    return true;
  }
  return false;
}

}  // namespace assay
