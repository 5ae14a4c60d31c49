#include "assay/compare/flow/key_masks.h"

#include <algorithm>
#include <set>
#include <span>

#include "assay/compare/flow/earlier_values.h"
#include "assay/operators/engine/padding_mask.h"

namespace assay {

std::optional<KeyMasks::Visible> KeyMasks::visible(const LogicalTensor& t) const {
  const auto tensor = side_.read(t);
  if (!EarlierValues::has_two_values(tensor->values)) return {};
  return visible_in(tensor->dtype, tensor->values);
}

// Where nothing is ever hidden there is no mask to look for, and where all is, it is no mask.
bool KeyMasks::hides_some(const Name& name) {
  const auto [known, is_new] = hides_some_.try_emplace(name, false);
  if (is_new) {
    known->second = std::ranges::any_of(side_.named(name), [&](const LogicalTensor* t) {
      const auto all = visible(*t);
      return all && std::ranges::find(*all, 0) != all->end() && std::ranges::find(*all, 1) != all->end();
    });
  }
  return known->second;
}

// Of each query of each sequence rows of integers, none of them twice. Few of them may be flags.
bool KeyMasks::are_numbers(const LogicalTensor& t) const {
  constexpr std::size_t dims = 3;
  if (is_float(t.dtype) || t.dtype == DType::boolean || t.shape.size() != dims || t.shape.back() < 1)
    return false;
  const auto tensor = side_.read(t);
  if (visible_in(t.dtype, tensor->values)) return false;
  const auto width = static_cast<std::size_t>(t.shape.back());
  for (std::size_t i = 0; i < tensor->values.size(); i += width) {
    const std::span row = std::span(tensor->values).subspan(i, width);
    if (std::set<double>(row.begin(), row.end()).size() != width) return false;
  }
  return true;
}

void KeyMasks::add(const LogicalTensor& t) {
  constexpr std::size_t fewest_dims = 2;  // sequences and keys
  if (t.shape.size() < fewest_dims) return;
  if (are_numbers(t)) {
    const auto is_known = [&](const Mask& other) {
      return other.tensor->shape == t.shape && side_.read(*other.tensor)->values == side_.read(t)->values;
    };
    if (std::ranges::none_of(numbers_, is_known)) numbers_.insert(numbers_.begin(), {&t, name_of(t.id)});
    return;
  }
  if (t.id.slot != "input") return;
  const auto own = visible(t);
  const auto is_same = [&](const Mask& mask) {
    return mask.tensor->shape == t.shape && visible(*mask.tensor) == own;
  };
  if (!own || !hides_some(name_of(t.id)) || std::ranges::any_of(masks_, is_same)) return;
  const auto size = [](const Mask& mask) { return element_count(mask.tensor->shape); };
  const auto place = std::ranges::upper_bound(masks_, element_count(t.shape), {}, size);
  masks_.insert(place, {&t, name_of(t.id)});
}

void KeyMasks::for_each(const Arg& arg, const std::function<bool(const Mask&)>& f) const {
  for (const Mask& mask : of(arg)) {
    if (!f(mask)) return;
  }
}

}  // namespace assay
