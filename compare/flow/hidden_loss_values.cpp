// Losses that were recorded as numbers only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "assay/compare/flow/hidden_loss.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

std::string output_name(const Operator& op) {
  return std::string(std::ranges::find(op.args, Role::output, &Arg::role)->name);
}

}  // namespace

std::optional<HiddenLosses::Value> HiddenLosses::value_of(const Recorded& r, const SideValues& side,
                                                          const RecordedCalls& calls, const Identity& frame) {
  const LogicalTensor* t = side.find(at(record_of(r.value), frame.step, frame.micro_batch));
  if (t == nullptr) return {};
  const auto call = call_of(r.loss, side, calls, *t, output_name(*r.loss.op));
  if (!call) return {};
  Value value;
  if (r.loss.concludes()) {
    value.sources = {t};
    if (r.loss.index) value.sources.push_back(side.find(at(*r.loss.index, t->id.step, t->id.micro_batch)));
  } else if (r.loss.of_all_layers) {
    value.sources = in_all_layers(side, *t);
  } else {
    for (const RecordedCall::Input& input : calls.of_value(*r.loss.op, *t).inputs)
      value.sources.push_back(input.tensor);
  }
  const auto compared = call->call.expected(call->variant, false);
  if (!compared || compared->allowed.empty()) return {};
  const Loss::Share share = r.loss.share_in(frame);
  const double factor = share.factor * side.scale_of(frame);
  // The factor was fitted, and rounded where it was multiplied.
  double sum = compared->golden.value(0),
         error = compared->allowed.front() + 2 * unit_roundoff(DType::float32) * std::abs(sum);
  value.how = fmt::format("{:.6g} times {} of {}", share.factor, r.loss.op->name, to_string(t->id));
  for (const Recorded& term : r.added) {
    const auto made = value_of(term, side, calls, frame);
    if (!made) return {};
    const double more = made->expected.values[0] / side.scale_of(frame);
    sum += more;
    // What is added is scaled and rounded, and so is the sum.
    error += made->expected.error[0] / side.scale_of(frame) +
             unit_roundoff(DType::float32) * (std::abs(more) + std::abs(sum));
    std::ranges::copy(made->sources, std::back_inserter(value.sources));
    value.how += fmt::format(" and {}", made->how);
  }
  value.expected.values = {sum * factor};
  value.expected.error = {error * std::abs(factor) + std::abs(sum) * share.reach * side.scale_of(frame)};
  value.expected.roundoff = unit_roundoff(DType::float32);
  return value;
}

// What a program adds to the loss in which its model ends, in units of that: as its gradients show it.
std::vector<HiddenLosses::Recorded> HiddenLosses::added_losses() const {
  std::vector<Recorded> all;
  std::set<const Operator*> of_all_layers;
  for (const auto& [value, loss] : known_) {
    if (loss.concludes() || !loss.of_model || loss.of_model->factor == 0) continue;
    if (loss.of_all_layers && !of_all_layers.insert(loss.op).second) continue;  // one number for all
    Recorded added{loss, value, {}};
    added.loss.factor /= loss.of_model->factor;
    added.loss.reach = std::abs(added.loss.factor) * (loss.reach / std::abs(loss.factor) +
                                                      loss.of_model->reach / std::abs(loss.of_model->factor));
    all.push_back(std::move(added));
  }
  return all;
}

// The gradient has proved what the loss is: that its number is that, with the gradient's own share or with
// none, needs no more than a hint. Any other factor is that of the first number, and the others have to prove
// it.
bool HiddenLosses::makes(Recorded& r, const SideValues& side, const RecordedCalls& calls,
                         const std::vector<const LogicalTensor*>& losses, double tried) {
  double bits = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double recorded = side.read(*losses[i])->values.front();
    const auto made = value_of(r, side, calls, losses[i]->id);
    if (!made || made->expected.values[0] == 0) return false;
    if (i == 0 && r.is_factor_free) {
      r.loss.factor = recorded / made->expected.values[0];
      continue;
    }
    const double error =
        made->expected.error[0] + unit_roundoff(side.read(*losses[i])->dtype) * std::abs(recorded);
    if (!(std::abs(recorded - made->expected.values[0]) <= error)) return false;
    bits += std::log2(std::abs(recorded) / error);
  }
  return r.is_factor_free ? proves(bits, std::log2(tried)) : bits >= hint_bits + std::log2(tried);
}

bool HiddenLosses::find_values(const SideValues& side, const RecordedCalls& calls) {
  std::map<Name, std::vector<const LogicalTensor*>> losses;
  std::map<std::string, std::set<Name>> values;  // by module
  for (const LogicalTensor& t : side.tensors()) {
    if (t.id.micro_batch < 0 || t.id.phase != Phase::forward || side.find(t.id) != &t || !is_float(t.dtype))
      continue;
    if (t.id.slot == "loss" && element_count(t.shape) == 1)
      losses[name_of(t.id)].push_back(&t);
    else if (t.id.slot == "output" || t.id.slot == "input")
      values[t.id.module].insert(name_of(t.id));
  }
  bool are_known = true;
  for (const auto& [loss, all] : losses) {
    if (recorded_.contains(loss)) continue;
    std::vector<Recorded> tried;
    for (const Operator* op : operators()) {
      if (!op->regularizes) continue;
      for (const Name& value : values[loss.module]) {
        for (const CallVariant& variant : variants_of(*op))
          tried.push_back({{op, variant, 1}, value, {}, true});
      }
    }
    for (const std::vector<Recorded>& added : {std::vector<Recorded>(), added_losses()}) {
      for (const auto& [value, model] : known_) {
        if (!model.concludes()) continue;
        tried.push_back({model, value, added});
        for (const bool is_free : {false, true}) {
          tried.push_back({model, value, added, is_free});
          Loss& whole = tried.back().loss;
          whole.factor = 1;
          whole.reach = 0;
          whole.shares.clear();
        }
      }
    }
    for (const Recorded& r : tried) {
      // Of steps that the reference did not store the number proves more; the other side may store its own.
      std::optional<Recorded> shown;
      for (const bool stores : {false, true}) {
        Recorded own = r;
        own.loss.stores = stores;
        if (!shown && stores <= r.loss.stores &&
            makes(own, side, calls, all, static_cast<double>(tried.size())))
          shown = std::move(own);
      }
      if (!shown) continue;
      shown->loss.stores = r.loss.stores;
      recorded_.emplace(loss, std::move(*shown));
      break;
    }
    are_known = are_known && recorded_.contains(loss);
  }
  return are_known;
}

std::optional<HiddenLosses::Value> HiddenLosses::value(const SideValues& side, const RecordedCalls& calls,
                                                       const Identity& loss) const {
  const auto found = recorded_.find(name_of(loss));
  return found == recorded_.end() ? std::nullopt : value_of(found->second, side, calls, loss);
}

}  // namespace assay
