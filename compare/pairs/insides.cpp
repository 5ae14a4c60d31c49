#include "assay/compare/pairs/insides.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "assay/compare/pairs/scale_convention.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/json.h"

namespace assay {
namespace {

// A call of a module in a micro-batch, in its forward pass or backward.
using Key = std::tuple<std::int64_t, std::int64_t, Phase, std::string_view>;

// Recorders name a function after the module that calls it: "layers.0.mlp.silu()".
bool is_function(const LogicalTensor& t) {
  return t.within && t.id.module.ends_with("()");
}

Key caller_of(const LogicalTensor& t) {
  const std::string_view module = t.id.module;
  const std::size_t dot = module.rfind('.');
  return {t.id.step, t.id.micro_batch, t.id.phase,
          dot == std::string_view::npos ? "" : module.substr(0, dot)};
}

// What each module calls, in its order.
std::map<Key, std::string> calls(const std::vector<LogicalTensor>& tensors) {
  std::map<Key, std::string> all;
  for (const LogicalTensor& t : tensors) {
    if (is_function(t) && !t.id.slot.starts_with("grad_")) {
      all[caller_of(t)] +=
          fmt::format("{} {} {} {} {};", t.id.module, t.id.call, t.id.slot, t.id.arg, to_string(t.shape));
    }
  }
  return all;
}

std::set<Identity> identities(const std::vector<LogicalTensor>& tensors) {
  std::set<Identity> all;
  for (const LogicalTensor& t : tensors) all.insert(t.id);
  return all;
}

// What a rank or micro-batch adds to a gradient.
bool is_share(const Identity& id) {
  return id.arg.ends_with(unreduced);
}

bool is_replay(const Dump& dump) {
  if (dump.producer.empty()) return false;
  const Json producer = parse_json(dump.producer, "manifest");
  const Json* program = producer.find("program");
  return program != nullptr && program->string(dump.path.string() + ": manifest: program") == "assay replay";
}

}  // namespace

std::string leave_out_other_insides(std::vector<LogicalTensor>& actual,
                                    std::vector<LogicalTensor>& reference) {
  const auto is_within = [](const LogicalTensor& t) { return t.within; };
  if (std::ranges::none_of(actual, is_within) && std::ranges::none_of(reference, is_within)) return {};
  // Copies: the names lie in the tensors that are erased.
  std::set<std::tuple<std::int64_t, std::int64_t, Phase, std::string>> differing;
  const std::map<Key, std::string> ours = calls(actual), theirs = calls(reference);
  for (const auto* side : {&ours, &theirs}) {
    const auto& other = side == &ours ? theirs : ours;
    for (const auto& [key, text] : *side) {
      const auto found = other.find(key);
      if (found == other.end() || found->second != text)
        differing.emplace(std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key));
    }
  }
  const std::set<Identity> of_actual = identities(actual), of_reference = identities(reference);
  std::size_t left_out = 0;
  const auto prune = [&](std::vector<LogicalTensor>& tensors, const std::set<Identity>& other) {
    left_out += std::erase_if(tensors, [&](const LogicalTensor& t) {
      if (!t.within) return false;
      if (!is_function(t)) return !other.contains(t.id);
      const auto [step, micro_batch, phase, caller] = caller_of(t);
      const std::string name(caller);  // gradients follow from the forward pass
      return differing.contains({step, micro_batch, phase, name}) ||
             differing.contains({step, micro_batch, Phase::forward, name}) || !other.contains(t.id);
    });
  };
  prune(actual, of_reference);
  prune(reference, of_actual);
  return left_out == 0
             ? ""
             : fmt::format("{} tensors within modules are left out: the two sides make them differently",
                           left_out);
}

std::string leave_out_operators_of_replay(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                                          const Dump& reference,
                                          std::vector<LogicalTensor>& reference_tensors) {
  const bool is_actual = is_replay(actual);
  if (is_actual == is_replay(reference)) return {};
  std::vector<LogicalTensor>& replay = is_actual ? actual_tensors : reference_tensors;
  std::vector<LogicalTensor>& program = is_actual ? reference_tensors : actual_tensors;
  const std::set<Identity> of_replay = identities(replay), of_program = identities(program);
  const auto is_activation = [](const LogicalTensor& t) {
    return t.id.slot != "param" && t.id.slot != "state" && (t.id.slot != "grad" || is_share(t.id));
  };
  // A recorder of modules knows no buffers: weights that no gradient moves.
  std::set<std::pair<std::string, std::string>> moved;
  for (const LogicalTensor& t : replay) {
    if (t.id.slot == "grad") moved.emplace(t.id.module, t.id.arg);
  }
  const auto is_buffer = [&](const LogicalTensor& t) {
    return t.id.slot == "param" && !moved.contains({t.id.module, t.id.arg});
  };
  const std::size_t of_operators = std::erase_if(replay, [&](const LogicalTensor& t) {
    return !of_program.contains(t.id) && (is_activation(t) || is_buffer(t));
  });
  const std::size_t of_modules = std::erase_if(
      program, [&](const LogicalTensor& t) { return !of_replay.contains(t.id) && is_activation(t); });
  if (of_operators + of_modules == 0) return {};
  return fmt::format(
      "{} tensors of the program's modules are no operator's of the replay, and {} of the replay's operators "
      "no module's: they are not compared",
      grouped(static_cast<std::int64_t>(of_modules)), grouped(static_cast<std::int64_t>(of_operators)));
}

std::string leave_out_steps(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                            const Dump& reference, std::vector<LogicalTensor>& reference_tensors) {
  if (actual.has_steps == reference.has_steps) return {};
  const Dump& without = actual.has_steps ? reference : actual;
  const std::size_t count = std::erase_if(
      actual.has_steps ? actual_tensors : reference_tensors,
      [](const LogicalTensor& t) { return t.id.slot == "loss" || t.id.phase == Phase::optimizer; });
  if (count == 0) return {};
  return fmt::format("{} losses, stepped weights and states of optimizers are not compared: {} records none",
                     grouped(static_cast<std::int64_t>(count)), without.format);
}

}  // namespace assay
