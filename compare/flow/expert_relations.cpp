#include "assay/compare/flow/expert_relations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>
#include <tuple>

#include "assay/compare/flow/found_operators.h"
#include "assay/compare/flow/moves.h"
#include "assay/golden/evidence.h"

namespace assay {

const LogicalTensor* ExpertRelations::index_as(const LogicalTensor& t) const {
  const auto tensor = side_.read(t);
  if (!shows_choice(*tensor, static_cast<double>(indices_.size() + 1))) return nullptr;
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
      const auto choice = numbers(*indices_[k], *side_.read(*candidates_[candidate].tensor), rows)
                              ? std::optional(Relation::each_number)
                              : choice_of(*indices_[k], tokens, rows, number_in(t.id.module));
      if (!choice) continue;
      best = Relation{.kind = Relation::Kind::rows,
                      .sources = {candidates_[candidate].name, name_of(indices_[k]->id)},
                      .choice = *choice};
      best_rank = candidates_.rank(candidate, t);
      break;
    }
  }
  if (best && best->choice != Relation::each_number)
    experts_[name_of(best->sources[1])][module_around(t.id.module)] = best->choice;
  return best;
}

// So many numbers, each below that of the tokens, are these by no accident; tokens in their order say nothing
// of who numbered them.
bool ExpertRelations::numbers(const LogicalTensor& index, const SideTensor& source,
                              const std::vector<std::int64_t>& rows) const {
  const auto width = source.shape.back(), tokens = std::ssize(source.values) / width;
  if (element_count(index.shape) != std::ssize(rows) || std::ranges::is_sorted(rows, std::less_equal<>()) ||
      !proves(static_cast<double>(rows.size()) * std::log2(static_cast<double>(tokens)),
              std::log2(static_cast<double>(indices_.size() + 1))))
    return false;
  // Of equal rows the first was found.
  const auto row_at = [&](std::int64_t row) {
    return std::span(source.values)
        .subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
  };
  return std::ranges::equal(side_.read(index)->values, rows, [&](double v, std::int64_t row) {
    return v == static_cast<double>(row) || (v >= 0 && v < static_cast<double>(tokens) &&
                                             std::ranges::equal(row_at(std::llround(v)), row_at(row)));
  });
}

std::optional<Relation> ExpertRelations::of_stretch(const LogicalTensor& t, const SideTensor& tensor) const {
  if (t.id.slot != "input" || tensor.shape.size() < 2) return {};
  std::vector<Name> pieces;
  Identity next = t.id;
  ++next.call;
  if (t.id.call == 0 && side_.find(next) == nullptr) return {};  // of one call the first rows say little
  for (std::int64_t call = 0; call < t.id.call; ++call) {
    Identity piece = t.id;
    piece.call = call;
    const LogicalTensor* given = side_.find(piece);
    if (given == nullptr || given->shape.empty() || given->shape.back() != t.shape.back()) return {};
    pieces.push_back(name_of(piece));
  }
  std::optional<Relation> best;
  int best_rank = -1;
  for (const auto& [candidate, rows] : candidates_.with_rows(tensor)) {
    if (rows.empty() || candidates_.rank(candidate, t) <= best_rank) continue;
    Relation r{.kind = Relation::Kind::stretch, .sources = {candidates_[candidate].name}};
    r.sources.insert(r.sources.end(), pieces.begin(), pieces.end());
    if (!holds(side_, r, t)) continue;
    best_rank = candidates_.rank(candidate, t);
    best = std::move(r);
  }
  return best;
}

std::optional<Relation> ExpertRelations::of_joined(const LogicalTensor& t, const SideTensor& tensor) const {
  std::map<std::tuple<std::string, std::string>, std::vector<Name>> calls;
  for (const EarlierValue& c : candidates_.all()) {
    if (c.name.slot == "output" && is_within(c.name.module, t.id.module) &&
        c.name.call == std::ssize(calls[{c.name.module, c.name.arg}]))
      calls[{c.name.module, c.name.arg}].push_back(c.name);
  }
  for (auto& [made_by, sources] : calls) {
    const Relation r{.kind = Relation::Kind::joined, .sources = std::move(sources)};
    const auto made = r.sources.size() < 2 ? std::nullopt : evaluate(r, t.shape, reader_at(side_, t.id));
    if (made && made->is_exact && made->values == tensor.values && holds(side_, r, t)) return r;
  }
  return {};
}

std::optional<Relation> ExpertRelations::of_scattered(const LogicalTensor& t,
                                                      const SideTensor& tensor) const {
  if (t.shape.empty() || t.shape.back() < 1 || tensor.values.empty()) return {};
  const std::int64_t width = t.shape.back(), tokens = std::ssize(tensor.values) / width;
  // As the sum is added up: most are rejected by their first elements.
  const auto begins = [&](const SideTensor& index, const SideTensor& rows) {
    double sum = 0, magnitude = 0;
    for (std::size_t r = 0; r < index.values.size(); ++r) {
      if (!(index.values[r] >= 0 && index.values[r] < static_cast<double>(tokens))) return false;
      if (index.values[r] != 0) continue;
      const double v = rows.values[r * static_cast<std::size_t>(width)];
      sum += v;
      magnitude += std::abs(v);
    }
    const double roundings = static_cast<double>(index.values.size()) * unit_roundoff(rows.dtype);
    return std::abs(sum - tensor.values.front()) <= roundings * (magnitude + std::abs(tensor.values.front()));
  };
  for (std::size_t k = indices_.size(); k-- > 0;) {
    const std::int64_t count = element_count(indices_[k]->shape);
    if (count < 2) continue;
    const auto fits = [&](const EarlierValues::Kind& kind) {
      return !kind.shape.empty() && kind.shape.back() == width && element_count(kind.shape) == count * width;
    };
    const auto index = side_.read(*indices_[k]);
    std::optional<Relation> found;
    std::size_t tried = 0;
    candidates_.for_each_near(t, fits, [&](std::size_t c) {
      const Relation r{.kind = Relation::Kind::scattered,
                       .sources = {candidates_[c].name, name_of(indices_[k]->id)}};
      if (begins(*index, *side_.read(*candidates_[c].tensor)) && holds(side_, r, t)) found = r;
      return !found && ++tried < most_values;
    });
    if (found) return found;
  }
  return {};
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
