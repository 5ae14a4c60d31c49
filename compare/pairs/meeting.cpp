#include "assay/compare/pairs/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// What wrappers put around a module: torch's DataParallel, DistributedDataParallel and AveragedModel,
// Megatron and DeepSpeed; torch.compile; torch.utils.checkpoint; FSDP; fairscale.
constexpr std::string_view wrappers[] = {"module", "_orig_mod", "_checkpoint_wrapped_module",
                                         "_fsdp_wrapped_module", "_fpw_module"};

std::vector<std::string_view> parts_of(std::string_view module) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    parts.push_back(module.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_wrapper(std::string_view part) {
  return std::ranges::find(wrappers, part) != std::end(wrappers);
}

std::string unwrapped(std::string_view module) {
  std::vector<std::string_view> parts = parts_of(module);
  std::erase_if(parts, is_wrapper);
  return fmt::format("{}", fmt::join(parts, "."));
}

class Meeting {
 public:
  Meeting(std::vector<LogicalTensor>& actual, const std::vector<LogicalTensor>& reference)
      : actual_(actual), reference_(reference) {
    for (const LogicalTensor& t : reference_) wanted_.insert(t.id);
    update();
  }

  std::vector<std::string> run() {
    for (const auto step : {&Meeting::unwrap, &Meeting::lone_loss, &Meeting::arguments, &Meeting::suggest}) {
      if (lone_actual_.empty() || lone_reference_.empty()) break;
      (this->*step)();
      update();
    }
    return std::move(notes_);
  }

 private:
  // Who has no partner yet, in execution order.
  void update() {
    std::set<Identity> there;
    lone_actual_.clear();
    lone_reference_.clear();
    for (LogicalTensor& t : actual_) {
      there.insert(t.id);
      if (!wanted_.contains(t.id)) lone_actual_.push_back(&t);
    }
    for (const LogicalTensor& t : reference_) {
      if (!there.contains(t.id)) lone_reference_.push_back(&t);
    }
  }

  // Gives a tensor another identity where the reference waits for it.
  bool take(LogicalTensor& t, Identity id) {
    if (t.id == id || !wanted_.contains(id) || !taken_.insert(id).second) return false;
    t.id = std::move(id);
    return true;
  }

  void unwrap() {
    std::map<std::string, std::set<std::string>>
        modules;  // of the reference, by their names without wrappers
    for (const LogicalTensor* t : lone_reference_) modules[unwrapped(t->id.module)].insert(t->id.module);
    std::int64_t count = 0;
    std::set<std::string_view> dropped;
    std::map<std::string, std::string> met;  // modules, by their own names
    for (LogicalTensor* t : lone_actual_) {
      const auto found = modules.find(unwrapped(t->id.module));
      if (found == modules.end() || found->second.size() != 1) continue;
      const std::string own = t->id.module, &other = *found->second.begin();
      Identity id = t->id;
      id.module = other;
      if (!take(*t, std::move(id))) continue;
      ++count;
      met.emplace(own, other);
      for (const std::string& name : {own, other}) {
        for (const std::string_view part : parts_of(name)) {
          if (is_wrapper(part)) dropped.insert(*std::ranges::find(wrappers, part));
        }
      }
    }
    // What the reference lacks is told in its words, too: a call of an expert that nobody chose there.
    for (LogicalTensor* t : lone_actual_) {
      const auto module = met.find(t->id.module);
      if (module == met.end()) continue;
      Identity id = t->id;
      id.module = module->second;
      if (!wanted_.contains(id) && taken_.insert(id).second) t->id = std::move(id);
    }
    if (count > 0)
      notes_.push_back(fmt::format("{} tensors are compared without '{}.' in their names", grouped(count),
                                   fmt::join(dropped, ".', '")));
  }

  // Every framework has its own word for the loss; one is enough.
  void lone_loss() {
    const auto name = [](const LogicalTensor& t) { return std::pair(t.id.module, t.id.arg); };
    // A loss of micro-batches is not that of their step.
    std::set<std::pair<std::string, std::string>> own, others;
    const auto is_of_step = [](const LogicalTensor* t) {
      return t->id.slot == "loss" && t->id.micro_batch < 0;
    };
    const bool of_step = std::ranges::all_of(
        lone_actual_, [&](const LogicalTensor* t) { return t->id.slot != "loss" || is_of_step(t); });
    for (const LogicalTensor* t : lone_actual_) {
      if (t->id.slot == "loss" && is_of_step(t) == of_step) own.insert(name(*t));
    }
    for (const LogicalTensor* t : lone_reference_) {
      if (t->id.slot == "loss" && is_of_step(t) == of_step) others.insert(name(*t));
    }
    if (own.size() != 1 || others.size() != 1) return;
    std::int64_t count = 0;
    for (LogicalTensor* t : lone_actual_) {
      if (t->id.slot != "loss") continue;
      Identity id = t->id;
      std::tie(id.module, id.arg) = *others.begin();
      count += take(*t, std::move(id)) ? 1 : 0;
    }
    if (count > 0)
      notes_.push_back(fmt::format("the loss '{} {}' is compared with the reference's '{} {}'",
                                   own.begin()->first, own.begin()->second, others.begin()->first,
                                   others.begin()->second));
  }

  // Arguments of a call that have other names, in the order in which they were recorded.
  void arguments() {
    const auto call_of = [](const Identity& id) {
      Identity call = id;
      call.arg.clear();
      return call;
    };
    std::map<Identity, std::vector<const LogicalTensor*>> others;
    std::map<Identity, std::vector<LogicalTensor*>> own;
    for (const LogicalTensor* t : lone_reference_) others[call_of(t->id)].push_back(t);
    for (LogicalTensor* t : lone_actual_) own[call_of(t->id)].push_back(t);
    std::map<std::pair<std::string, std::string>, std::int64_t> renamed;
    for (const auto& [call, tensors] : own) {
      const auto found = others.find(call);
      if (call.slot.empty() || found == others.end() || found->second.size() != tensors.size()) continue;
      const auto fits = [](const LogicalTensor* a, const LogicalTensor* r) {
        return common_shape(a->shape, r->shape) == r->shape && is_float(a->dtype) == is_float(r->dtype);
      };
      if (!std::ranges::equal(tensors, found->second, fits)) continue;
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const std::string name = tensors[k]->id.arg;
        if (take(*tensors[k], found->second[k]->id)) ++renamed[{name, found->second[k]->id.arg}];
      }
    }
    for (const auto& [names, count] : renamed)
      notes_.push_back(
          fmt::format("{} arguments '{}' are compared with the reference's '{}', by their position",
                      grouped(count), names.first, names.second));
  }

  // The change of a module's beginning that makes most tensors meet.
  void suggest() {
    std::set<std::string> own, others;
    for (const LogicalTensor* t : lone_actual_) own.insert(t->id.module);
    for (const LogicalTensor* t : lone_reference_) others.insert(t->id.module);
    std::map<std::pair<std::string, std::string>, std::int64_t> changes;
    constexpr std::size_t most = 64;  // of each side: all layers have the same
    std::size_t a = 0;
    for (const std::string& mine : own) {
      if (a++ == most) break;
      for (const std::string& other : others) {
        std::vector<std::string_view> from = parts_of(mine), to = parts_of(other);
        const std::size_t before = from.size();
        while (!from.empty() && !to.empty() && from.back() == to.back()) {
          from.pop_back();
          to.pop_back();
        }
        if (from.size() < before)
          ++changes[{fmt::format("{}", fmt::join(from, ".")), fmt::format("{}", fmt::join(to, "."))}];
      }
    }
    const std::set<Identity> waiting = [&] {
      std::set<Identity> ids;
      for (const LogicalTensor* t : lone_reference_) ids.insert(t->id);
      return ids;
    }();
    std::vector<std::pair<std::int64_t, std::pair<std::string, std::string>>> ranked;
    for (const auto& [change, votes] : changes) ranked.emplace_back(votes, change);
    std::ranges::stable_sort(ranked, std::greater(), [](const auto& r) { return r.first; });
    ranked.resize(std::min<std::size_t>(ranked.size(), 8));
    std::int64_t best = 0;
    std::pair<std::string, std::string> change;
    for (const auto& [votes, tried] : ranked) {
      const auto meets = [&](const LogicalTensor* t) {
        Identity id = t->id;
        id.module = changed(id.module, tried.first, tried.second);
        return id != t->id && waiting.contains(id);
      };
      if (const auto count = std::ranges::count_if(lone_actual_, meets); count > best)
        std::tie(best, change) = std::pair(count, tried);
    }
    if (best == 0) return;
    const auto dotted = [](const std::string& name, std::string_view dot) {
      return name.empty() ? "" : name + std::string(dot);
    };
    notes_.push_back(
        fmt::format("{} tensors of each side would meet with the rule [[rename]] from = '^{}' to = '{}'",
                    grouped(best), dotted(escaped(change.first), "\\."), dotted(change.second, ".")));
  }

  static std::string changed(const std::string& module, const std::string& from, const std::string& to) {
    std::string_view rest = module;
    if (!from.empty()) {
      if (!rest.starts_with(from) || rest.size() <= from.size() || rest[from.size()] != '.') return module;
      rest.remove_prefix(from.size() + 1);
    }
    return to.empty() ? std::string(rest) : to + "." + std::string(rest);
  }

  static std::string escaped(std::string_view name) {
    std::string text;
    for (const char c : name) {
      if (c == '.') text += '\\';
      text += c;
    }
    return text;
  }

  std::vector<LogicalTensor>& actual_;
  const std::vector<LogicalTensor>& reference_;
  std::set<Identity> wanted_, taken_;
  std::vector<LogicalTensor*> lone_actual_;
  std::vector<const LogicalTensor*> lone_reference_;
  std::vector<std::string> notes_;
};

void rename_by_rules(std::vector<LogicalTensor>& actual, const Rules& rules) {
  std::map<Identity, Identity> before;  // by the new name
  for (LogicalTensor& t : actual) {
    const Identity own = t.id;
    t.id = rules.renamed(own);
    const auto [other, is_new] = before.emplace(t.id, own);
    if (!is_new)
      throw Error("[[rename]]: '{}' and '{}' of the actual side both become '{}'; expected a name each",
                  to_string(other->second), to_string(own), to_string(t.id));
  }
}

}  // namespace

std::vector<std::string> meet_names(std::vector<LogicalTensor>& actual,
                                    const std::vector<LogicalTensor>& reference, const Rules& rules) {
  rename_by_rules(actual, rules);
  return Meeting(actual, reference).run();
}

Shape common_shape(const Shape& actual, const Shape& reference) {
  if (actual == reference || element_count(actual) != element_count(reference)) return actual;
  const auto [a, r] =
      std::ranges::mismatch(actual.rbegin(), actual.rend(), reference.rbegin(), reference.rend());
  const bool has_common = a != actual.rbegin();
  const bool is_flat =
      actual.rend() - a == 1 || reference.rend() - r == 1 || a == actual.rend() || r == reference.rend();
  return (has_common || actual.size() == 1 || reference.size() == 1) && is_flat ? reference : actual;
}

}  // namespace assay
