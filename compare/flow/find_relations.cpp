#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "assay/compare/flow/borrowed_inputs.h"
#include "assay/compare/flow/chosen_rows.h"
#include "assay/compare/flow/expert_relations.h"
#include "assay/compare/flow/hidden_calls.h"
#include "assay/compare/flow/products_of_parts.h"
#include "assay/compare/flow/relations.h"
#include "assay/compare/flow/sums_of_terms.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

class Search {
 public:
  Search(const SideValues& side, const RecordedCalls& calls, const Makes& makes)
      : side_(side),
        calls_(calls),
        candidates_(side, calls),
        experts_(side, candidates_),
        borrowed_(calls, makes, candidates_),
        masks_(side),
        hidden_(calls, makes, candidates_, masks_),
        sums_(side, candidates_),
        products_(side, candidates_) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const LogicalTensor*>> frames;
    for (const LogicalTensor& t : side.tensors()) {
      if (t.id.phase == Phase::forward && t.id.slot == "param" && side.find(t.id) == &t) {
        borrowed_.add_parameter(t);
        (void)trouble_in([&] { add_parameter(t); });
        if (!is_taken(t)) held_[t.id.step].push_back(&t);
      }
      if (t.id.phase != Phase::forward || t.id.micro_batch < 0 || side.find(t.id) != &t) continue;
      if (is_float(t.dtype) && element_count(t.shape) == 1) {
        if (t.id.slot == "loss") losses_[name_of(t.id)].push_back(&t);
        if (t.id.slot == "output") numbers_.insert(name_of(t.id));
      }
      if (t.id.slot == "input" || t.id.slot == "output") {
        frames[{t.id.step, t.id.micro_batch}].push_back(&t);
        // Beside a choice that is not its only result, "y", a module may return what was not recorded.
        if (t.id.slot == "output" && (is_float(t.dtype) || t.id.arg == "y"))
          with_outputs_.insert(t.id.module);
        if (is_float(t.dtype)) candidates_.expect(t.dtype);
      }
    }
    for (auto& [key, frame] : frames) {
      put_in_order(frame);
      if (std::ranges::any_of(frame, [&](const LogicalTensor* t) { return is_new(*t); })) search(frame);
    }
  }
  Relations take() {
    for (const auto& [name, all] : losses_) find_total(name, all);
    for (auto& [target, r] : found_.made) {
      if (r.kind == Relation::Kind::combine) experts_.complete(target, r, found_.uses);
    }
    return std::move(found_);
  }

 private:
  bool is_new(const LogicalTensor& t) const {
    const auto tried = tries_.find(name_of(t.id));
    return is_float(t.dtype) && (tried == tries_.end() || tried->second < most_tries);
  }
  // What one micro-batch does not tell (two experts with the same tokens) another may.
  bool is_sought(const Name& name) { return tries_[name]++ < most_tries; }
  void settle(const Name& name) { tries_[name] = most_tries; }
  // The nearest module around it with a result of its own.
  std::string scope_of(const std::string& module) const {
    for (std::string m = module_around(module); !m.empty(); m = module_around(m)) {
      if (with_outputs_.contains(m)) return m;
    }
    return "";
  }

  void search(const std::vector<const LogicalTensor*>& frame) {
    candidates_.clear();
    masks_.clear();
    for (const LogicalTensor* t : held_[frame.front()->id.step])
      (void)trouble_in([&] { candidates_.add_parameter(name_of(t->id), *t); });
    experts_.take_indices({});
    for (const LogicalTensor* t : frame) {
      // A tensor that cannot be read is no source; the comparison itself says so.
      (void)trouble_in([&] {
        masks_.add(*t);
        if (!is_float(t->dtype)) return take_index(*t);
        t->id.slot == "input" ? take_input(*t) : take_output(*t);
      });
    }
  }

  void add_parameter(const LogicalTensor& t) {
    named_[{t.id.step, t.id.module, t.id.arg}] = {&t, name_of(t.id)};
    if (const auto hash = EarlierValues::hash_of(side_.read(t)->values))
      parameters_.try_emplace({t.id.step, *hash}, name_of(t.id));
  }
  // By the operator of its module.
  bool is_taken(LogicalTensor param) const {
    param.id.slot = "grad";
    return !is_float(param.dtype) || calls_.operator_of(param) != nullptr;
  }
  // What a call of a module is given under the name of its parameter, with the same bits, is that parameter,
  // whichever others begin as ones, too.
  const Name* parameter(const LogicalTensor& t) const {
    const auto tensor = side_.read(t);
    const auto own = named_.find({t.id.step, module_around(t.id.module), t.id.arg});
    if (own != named_.end() && side_.read(*own->second.tensor)->values == tensor->values)
      return &own->second.name;
    const auto hash = EarlierValues::hash_of(tensor->values);
    const auto found = hash ? parameters_.find({t.id.step, *hash}) : parameters_.end();
    return found == parameters_.end() ? nullptr : &found->second;
  }

  std::optional<Name> copied(const LogicalTensor& t) const {
    auto source = candidates_.copied(t);
    const bool is_sure = !source || element_count(t.shape) > 1 || source->module == t.id.module;
    return is_sure || candidates_.is_the_number(t, *source, candidates_.all().size()) ? source : std::nullopt;
  }

  void take_input(const LogicalTensor& t) {
    const Name name = name_of(t.id);
    const bool is_known = !is_sought(name);
    // What an operator is given, its module hands on neither to the modules within nor as a result.
    const bool hands_on = calls_.operator_of(t) == nullptr;
    Name value = name;
    value.slot = "value";
    if (is_known) {
      if (found_.made.contains(value)) candidates_.add(value, t, scope_of(t.id.module), false);
    } else if (const auto source = copied(t)) {
      found_.made[name] = {.sources = {*source}};
      found_.uses[*source].push_back({name, true, 0});
      settle(name);
    } else if (const Name* param = parameter(t)) {
      found_.made[name] = {.sources = {*param}};
      found_.shared.push_back({name, *param});
      settle(name);
    } else {
      if (auto made = relation(t)) {
        keep(value, std::move(*made));
        settle(name);
      } else if (hidden_.find(t, *side_.read(t), found_)) {
        settle(name);
      }
      if (found_.made.try_emplace(name, Relation{.sources = {value}}).second)
        found_.uses[value].push_back({name, true, 0});
      candidates_.add(value, t, scope_of(t.id.module), false);
    }
    if (hands_on) candidates_.add(name, t, t.id.module, true);
  }

  // Who is given a choice takes it as it was made, and who returns one that a call within made hands it on.
  void take_index(const LogicalTensor& t) {
    const Name name = name_of(t.id);
    if ((t.id.slot == "input" || calls_.operator_of(t) == nullptr) && is_sought(name)) {
      if (const LogicalTensor* made = experts_.index_as(t)) {
        found_.made[name] = {.sources = {name_of(made->id)}};
        settle(name);
      } else if (auto counts = experts_.counts(t)) {
        found_.made[name] = std::move(*counts);
        settle(name);
      } else if (t.id.slot == "output" && hidden_.find(t, *side_.read(t), found_)) {
        settle(name);
      }
    }
    experts_.add_index(t);
  }

  void take_output(const LogicalTensor& t) {
    const Name name = name_of(t.id);
    if (is_sought(name)) {
      std::optional<Relation> made;
      if (borrowed_.is_of_operator(t, found_)) {
        settle(name);
      } else if (const auto source = copied(t)) {
        made = Relation{.sources = {*source}};
      } else if (!(made = relation(t)) && calls_.operator_of(t) == nullptr &&
                 hidden_.find(t, *side_.read(t), found_)) {
        settle(name);
      }
      if (made) {
        keep(name, std::move(*made));
        settle(name);
      }
    }
    candidates_.add(name, t, scope_of(t.id.module), false);
    // What a call makes for itself, it uses.
    if (calls_.is_own_input(t)) {
      Name input = name;
      input.slot = "input";
      auto& uses = found_.uses[name];
      if (std::ranges::find(uses, input, &Use::target) == uses.end()) uses.push_back({input, true, 0});
    }
  }

  void keep(const Name& target, Relation r) {
    // A stretch is cut from one, where others end; chosen rows tell themselves which they are.
    const bool has_one = r.kind == Relation::Kind::stretch || r.kind == Relation::Kind::chosen;
    for (std::size_t s = 0; s < (has_one ? 1 : r.sources.size()); ++s)
      found_.uses[r.sources[s]].push_back({target, false, s});
    found_.made[target] = std::move(r);
  }

  std::optional<Relation> relation(const LogicalTensor& t) {
    const auto tensor = side_.read(t);
    if (auto r = candidates_.of_columns(t, *tensor)) return r;
    if (auto r = experts_.of_rows(t, *tensor)) return r;
    if (auto r = experts_.of_stretch(t, *tensor)) return r;
    if (t.id.slot == "output") {
      if (auto r = experts_.of_joined(t, *tensor)) return r;
      if (auto r = experts_.of_experts(t, *tensor)) return r;
    }
    if (auto r = experts_.of_scattered(t, *tensor)) return r;
    if (auto r = sums_.of_terms(t, *tensor)) return r;
    if (auto r = products_.of_parts(t, *tensor)) return r;
    if (auto r = candidates_.of_columns_of_heads(t, *tensor)) return r;
    auto rows = candidates_.of_joined_rows(t, *tensor);
    if (!rows || rows->width > 0 || follow_loops(*rows)) return rows;
    return candidates_.of_chosen_rows(t, *tensor);
  }

  // A loss is the sum over its tokens, perhaps masked, in all micro-batches. Values of the same module only:
  // few numbers prove little.
  void find_total(const Name& loss, const std::vector<const LogicalTensor*>& all) {
    const auto result = std::ranges::find_if(numbers_, [&](const Name& number) {
      bool is_it = false;
      (void)trouble_in([&] { is_it = candidates_.is_the_number(*all.front(), number, numbers_.size()); });
      return is_it;
    });
    if (result != numbers_.end()) {
      found_.made[loss] = {.sources = {*result}};
      return;
    }
    std::vector<Name> values;
    for (const LogicalTensor& t : side_.tensors()) {
      if (t.id.phase != Phase::forward || t.id.module != loss.module || t.id.micro_batch < 0 ||
          !is_float(t.dtype) || (t.id.slot != "input" && t.id.slot != "output"))
        continue;
      if (std::ranges::find(values, name_of(t.id)) == values.end()) values.push_back(name_of(t.id));
    }
    const auto holds_everywhere = [&](const Relation& r) {
      double bits = 0;
      for (const LogicalTensor* t : all) {
        const auto tensor = side_.read(*t);
        const auto made = evaluate(r, t->shape, reader_at(side_, t->id));
        if (!made) return false;
        const double error = made->error[0] + unit_roundoff(tensor->dtype) * std::abs(made->values[0]);
        if (!(std::abs(made->values[0] - tensor->values[0]) <= error) || error == 0) return false;
        bits += std::log2(std::abs(made->values[0]) / error);
      }
      return proves(bits, 2 * std::log2(static_cast<double>(SumsOfTerms::most_terms)));  // which pair of them
    };
    for (std::size_t a = 0; a < std::min(SumsOfTerms::most_terms, values.size()); ++a) {
      Relation r{.kind = Relation::Kind::total, .sources = {values[a]}};
      for (std::size_t b = a; b < std::min(SumsOfTerms::most_terms, values.size()); ++b) {
        if (b > a) r.sources = {values[a], values[b]};
        bool holds = false;
        (void)trouble_in([&] { holds = holds_everywhere(r); });
        if (!holds) continue;
        found_.made[loss] = r;
        return;
      }
    }
  }

  static constexpr int most_tries = 3;

  const SideValues& side_;
  const RecordedCalls& calls_;
  std::set<std::string> with_outputs_;
  std::map<Name, std::vector<const LogicalTensor*>> losses_;                 // numbers, in all micro-batches
  std::set<Name> numbers_;                                                   // results of calls
  std::map<std::pair<std::int64_t, EarlierValues::Hash>, Name> parameters_;  // by step and content
  std::map<std::int64_t, std::vector<const LogicalTensor*>> held_;  // by step: those no operator takes
  struct Parameter {
    const LogicalTensor* tensor = nullptr;
    Name name;
  };
  std::map<std::tuple<std::int64_t, std::string, std::string>, Parameter> named_;  // by step, module and name
  std::map<Name, int> tries_;
  Relations found_;
  EarlierValues candidates_;
  ExpertRelations experts_;
  BorrowedInputs borrowed_;
  KeyMasks masks_;
  HiddenCalls hidden_;
  SumsOfTerms sums_;
  ProductsOfParts products_;
};

}  // namespace

Relations find_relations(const SideValues& side, const RecordedCalls& calls, const Makes& makes) {
  return Search(side, calls, makes).take();
}

}  // namespace assay
