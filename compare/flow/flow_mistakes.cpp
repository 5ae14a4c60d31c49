// What was done to a tensor that is not what it follows from.
#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"

namespace assay {

// What is added up in it, on that side; empty for what is no sum.
std::vector<Flow::Term> Flow::terms(const Side& side, const LogicalTensor& t) const {
  if (t.id.micro_batch < 0) return {};
  if (t.id.phase == Phase::backward)
    return is_gradient(t.id) ? gradient_terms(side, value_of(t.id), t.id).value_or(std::vector<Term>())
                             : std::vector<Term>();
  const Relation* made = relation_of(t.id);
  if (made == nullptr || made->kind != Relation::Kind::sum) return {};
  std::vector<Term> all;
  const auto size = static_cast<std::size_t>(element_count(t.shape));
  auto values = terms_of(*made, size, reader_at(side.values, t.id));
  for (std::size_t s = 0; values && s < values->size(); ++s) {
    const Name& source = made->sources[s];
    all.push_back({to_string(at(record_of(source), t.id.step, t.id.micro_batch)), std::move((*values)[s])});
  }
  return all;
}

void Flow::add_terms(const LogicalTensor& actual, RightValue& right) const {
  const std::vector<Term> all = terms({actual_, actual_calls_}, actual);
  for (const Term& term : all) {
    if (all.size() > 1 && static_cast<std::int64_t>(term.value.values.size()) == right.value.size())
      right.terms.push_back(
          {term.name, Tensor::from_values(DType::float64, right.value.shape(), term.value.values)});
  }
}

// A layer that is skipped, a gradient of one use that is lost.
std::optional<Diagnosis> Flow::mistake_in(const LogicalTensor& actual, const SideTensor& recorded) const {
  const std::vector<Term> all = terms({actual_, actual_calls_}, actual);
  for (std::size_t missing = 0; all.size() > 1 && missing < all.size(); ++missing) {
    std::vector<DerivedValue> others;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (k != missing) others.push_back(all[k].value);
    }
    const auto sum = sum_of(std::move(others));
    std::int64_t outside = 0;
    if (!sum) continue;
    const double left = ratio(*sum, recorded, outside);
    if (left <= 1) return Diagnosis{Cause::missing_term, {.tensor = all[missing].name}, left};
  }
  if (actual.id.slot == "loss")
    return hidden_.mistake_of_value(actual_, actual_calls_, actual, recorded.values.front());
  return hidden_.mistake(actual_, actual_calls_, value_of(actual.id), actual, recorded);
}

}  // namespace assay
