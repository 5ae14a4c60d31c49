#include "assay/compare/causes/optimizer/other_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>
#include <string_view>

#include "assay/compare/result/metrics.h"
#include "assay/dumps/io/json.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

using StateNames = std::set<std::string>;

// "exp_avg" of "weight.exp_avg": as optimizers call them.
StateNames states_of(const Dump& dump) {
  StateNames known, found;
  for (const Operator* op : operators()) {
    if (op->step == nullptr) continue;
    for (const StepState& s : op->step->states) known.emplace(s.before);
  }
  for (const Record& t : dump.records) {  // arguments of other names may have met by now
    const std::size_t dot = t.id.arg.rfind('.');
    if (t.id.phase != Phase::optimizer || t.id.slot != "state" || dot == std::string::npos) continue;
    if (std::string state = t.id.arg.substr(dot + 1); known.contains(state)) found.insert(std::move(state));
  }
  return found;
}

// What the manifest calls the optimizer; empty: nothing.
std::string named_in(const Dump& dump) {
  if (dump.producer.empty()) return {};
  const Json producer = parse_json(dump.producer, "manifest");
  const Json* name = producer.find("optimizer");
  return name != nullptr && name->is_string() ? name->string("manifest") : std::string();
}

std::string plain(std::string_view name) {
  std::string all(name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1));
  std::ranges::transform(all, all.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return all;
}

// An optimizer of that name that keeps no states, or may keep none.
const Operator* stateless(std::string_view named) {
  const std::string name = plain(named.substr(0, named.find(',')));
  for (const Operator* op : operators()) {
    const bool is_it =
        plain(op->name) == name ||
        std::ranges::any_of(op->aliases, [&](std::string_view alias) { return plain(alias) == name; });
    if (op->step != nullptr && (op->step->stateless || op->step->states.empty()) && is_it) return op;
  }
  return nullptr;
}

bool are_disjoint(const StateNames& a, const StateNames& b) {
  return std::ranges::none_of(a, [&](const std::string& name) { return b.contains(name); });
}

// A side whose states are not recorded keeps none only where its optimizer may.
bool may_be_of_other(const StateNames& own, const std::string& named, const StateNames& others) {
  if (!own.empty()) return are_disjoint(own, others);
  const Operator* op = named.empty() ? nullptr : stateless(named);
  return op != nullptr && std::ranges::none_of(op->step->states, [&](const StepState& s) {
           return others.contains(std::string(s.before));
         });
}

std::string told(const std::string& named, const StateNames& states) {
  return !named.empty() ? named : fmt::format("one with {}", *states.begin());
}

}  // namespace

std::optional<OtherOptimizer> other_optimizer(const Sides& sides) {
  const StateNames actual = states_of(sides.actual), reference = states_of(sides.reference);
  if (actual.empty() && reference.empty()) return {};
  const std::string of_actual = named_in(sides.actual), of_reference = named_in(sides.reference);
  const bool is_other = actual.empty() ? may_be_of_other(actual, of_actual, reference)
                                       : may_be_of_other(reference, of_reference, actual);
  if (!is_other) return {};
  return OtherOptimizer{told(of_actual, actual), told(of_reference, reference)};
}

StepOrigins explain_other_optimizer(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                    const OtherOptimizer& other) {
  StepOrigins origins;
  std::optional<std::size_t> root;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Finding& f = findings[i];
    if (f.id.phase != Phase::optimizer || f.id.slot != "param" || !f.metrics ||
        f.metrics->different_bits == 0)
      continue;
    origins[i] = {infinity, "another optimizer's step", root};
    if (root) continue;
    root = i;
    f.diagnoses.push_back(
        {Cause::optimizer,
         {.step = f.id.step,
          .how = fmt::format("the optimizers differ: {} on the actual side, {} in the reference; "
                             "what they step cannot agree",
                             other.actual, other.reference)},
         infinity});
  }
  return origins;
}

}  // namespace assay
