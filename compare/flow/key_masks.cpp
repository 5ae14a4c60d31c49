#include "assay/compare/flow/key_masks.h"

#include <algorithm>

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

void KeyMasks::add(const LogicalTensor& t) {
  constexpr std::size_t fewest_dims = 2;  // sequences and keys
  if (t.shape.size() < fewest_dims || t.id.slot != "input") return;
  const auto own = visible(t);
  const auto is_same = [&](const Mask& mask) {
    return mask.tensor->shape == t.shape && visible(*mask.tensor) == own;
  };
  if (!own || !hides_some(name_of(t.id)) || std::ranges::any_of(masks_, is_same)) return;
  const auto size = [](const Mask& mask) { return element_count(mask.tensor->shape); };
  const auto place = std::ranges::upper_bound(masks_, element_count(t.shape), {}, size);
  masks_.insert(place, {&t, name_of(t.id)});
}

void KeyMasks::for_each(const std::function<bool(const Mask&)>& f) const {
  for (const Mask& mask : masks_) {
    if (!f(mask)) return;
  }
}

}  // namespace assay
