#include "assay/compare/flow/expert_relations.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/flow/moves.h"
#include "assay/golden/evidence.h"

namespace assay {

const LogicalTensor* ExpertRelations::index_as(const LogicalTensor& t) const {
  const auto tensor = side_.read(t);
  const std::set<double> different(tensor->values.begin(), tensor->values.end());
  const double bits =
      static_cast<double>(tensor->values.size()) * std::log2(static_cast<double>(different.size()));
  if (!proves(bits, std::log2(static_cast<double>(indices_.size() + 1)))) return nullptr;
  for (std::size_t k = indices_.size(); k-- > 0;) {
    if (element_count(indices_[k]->shape) == element_count(t.shape) &&
        side_.read(*indices_[k])->values == tensor->values)
      return indices_[k];
  }
  return nullptr;
}

std::optional<Relation> ExpertRelations::counts(const LogicalTensor& t) const {
  const auto tensor = side_.read(t);
  const auto size = static_cast<double>(tensor->values.size());
  if (t.shape.size() != 1 || size < 2) return {};
  for (std::size_t k = indices_.size(); k-- > 0;) {
    // As many bits as numbers of this sum have.
    const double mean = static_cast<double>(element_count(indices_[k]->shape)) / size;
    // It is told apart from the indices, and holds in all micro-batches.
    if (!beats_chance(size * std::log2(1 + mean), std::log2(static_cast<double>(indices_.size() + 1))))
      continue;
    Relation r{.kind = Relation::Kind::counts, .sources = {name_of(indices_[k]->id)}};
    const auto made = evaluate(r, t.shape, reader_at(side_, t.id));
    if (made && made->values == tensor->values) return r;
  }
  return {};
}

std::optional<Relation> ExpertRelations::of_rows(const LogicalTensor& t, const SideTensor& tensor) {
  std::optional<Relation> best;
  int best_rank = -1;
  for (const auto& [candidate, rows] : candidates_.with_rows(tensor)) {
    if (candidates_.rank(candidate, t) <= best_rank) continue;
    const auto tokens = element_count(candidates_[candidate].tensor->shape) / tensor.shape.back();
    // The latest first: token numbers are an index, too.
    for (std::size_t k = indices_.size(); k-- > 0;) {
      const auto choice = choice_of(*indices_[k], tokens, rows, number_in(t.id.module));
      if (!choice) continue;
      best = Relation{.kind = Relation::Kind::rows,
                      .sources = {candidates_[candidate].name, name_of(indices_[k]->id)},
                      .choice = *choice};
      best_rank = candidates_.rank(candidate, t);
      break;
    }
  }
  if (best) experts_[name_of(best->sources[1])][module_around(t.id.module)] = best->choice;
  return best;
}

// "layers.1.experts.7.fc1": 7.
std::int64_t ExpertRelations::number_in(const std::string& module) {
  const auto end = module.find_last_of("0123456789");
  if (end == std::string::npos) return -1;
  const auto begin = module.find_last_not_of("0123456789", end);
  return std::stoll(
      module.substr(begin == std::string::npos ? 0 : begin + 1, std::min<std::size_t>(end - begin, 9)));
}

// The number that is in the index of exactly these tokens. Of two with the same tokens the one that the
// module has in its name.
std::optional<std::int64_t> ExpertRelations::choice_of(const LogicalTensor& index, std::int64_t tokens,
                                                       const std::vector<std::int64_t>& rows,
                                                       std::int64_t own) const {
  if (tokens == 0 || index.shape.empty() || element_count(index.shape) % tokens != 0) return {};
  const auto values = side_.read(index)->values;
  const std::size_t k = values.size() / static_cast<std::size_t>(tokens);
  if (k == 0 || k > most_choices || rows.empty()) return {};
  std::map<double, std::vector<std::int64_t>> of_choice;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::size_t j = 0; j < k; ++j) {
      auto& list = of_choice[values[static_cast<std::size_t>(token) * k + j]];
      if (list.empty() || list.back() != token) list.push_back(token);
    }
  }
  if (k > 0 && std::ssize(rows) == std::ssize(values) && of_choice.size() > 1) {
    const std::vector<std::int64_t> places = places_by_choice(*side_.read(index));
    const bool is_sorted = std::ranges::equal(places, rows, [&](std::int64_t place, std::int64_t row) {
      return place / static_cast<std::int64_t>(k) == row;
    });
    if (is_sorted) return Relation::every_choice;
  }
  std::optional<std::int64_t> choice;
  bool is_ambiguous = false;
  for (const auto& [c, list] : of_choice) {
    if (list != rows) continue;
    if (std::llround(c) == own) return own;
    is_ambiguous = choice.has_value();  // another micro-batch tells them apart
    choice = std::llround(c);
  }
  return is_ambiguous ? std::nullopt : choice;
}

// The results of experts, weighted and added up for each token.
std::optional<Relation> ExpertRelations::of_experts(const LogicalTensor& t, const SideTensor& tensor) const {
  const std::vector<EarlierValue>& all = candidates_.all();
  for (const auto& [index, modules] : experts_) {
    const LogicalTensor* choices = side_.find(at(index, t.id.step, t.id.micro_batch));
    if (choices == nullptr || tensor.shape.empty()) continue;
    Relation r{.kind = Relation::Kind::combine, .sources = {index, index}};
    for (const auto& [module, choice] : modules) {
      const auto result = std::find_if(all.rbegin(), all.rend(), [&](const EarlierValue& c) {
        return c.name.slot == "output" && is_within(c.name.module, module) && !c.tensor->shape.empty() &&
               c.tensor->shape.back() == tensor.shape.back();
      });
      if (result == all.rend()) continue;
      r.sources.push_back(result->name);
      r.choices.push_back(choice);
    }
    if (r.choices.empty()) continue;
    // As the module around the experts was given them, if it was: the latest.
    for (auto weights = all.rbegin(); weights != all.rend(); ++weights) {
      if (element_count(weights->tensor->shape) != element_count(choices->shape)) continue;
      r.sources[1] = weights->name;
      if (holds(side_, r, t)) return r;
    }
    r.is_weighted = false;
    if (holds(side_, r, t)) return r;
  }
  return {};
}

void ExpertRelations::complete(const Name& target, Relation& r,
                               std::map<Name, std::vector<Use>>& uses) const {
  const auto known = experts_.find(r.sources.front());
  if (known == experts_.end()) return;
  const auto& modules = known->second;
  const Name result = r.sources[2];
  const auto own =
      std::ranges::find_if(modules, [&](const auto& m) { return is_within(result.module, m.first); });
  if (own == modules.end()) return;
  for (const auto& [module, choice] : modules) {
    if (std::ranges::find(r.choices, choice) != r.choices.end()) continue;
    Name name = result;
    name.module = module + result.module.substr(own->first.size());
    r.sources.push_back(name);
    r.choices.push_back(choice);
    uses[name].push_back({target, false, r.sources.size() - 1});
  }
}

}  // namespace assay
