#include "assay/compare/flow/side_values.h"

#include <algorithm>

#include "assay/compare/calls/partial_sums.h"

namespace assay {
namespace {

// What is read is used again by its neighbours in execution order; a step of a large model does not fit.
constexpr double most_bytes = 0x1p30;

}  // namespace

Name name_of(const Identity& id) {
  Name name = id;
  name.step = 0;
  if (name.micro_batch > 0) name.micro_batch = 0;
  return name;
}

// A call may make one of its results of another: the weights of those that are chosen of all scores. The
// larger come first.
void put_in_order(std::vector<const LogicalTensor*>& frame) {
  std::ranges::stable_sort(frame, {}, &LogicalTensor::seq);
  const auto is_of_one_call = [](const LogicalTensor* a, const LogicalTensor* b) {
    return a->id.slot == "output" && b->id.slot == "output" && a->id.module == b->id.module &&
           a->id.call == b->id.call;
  };
  for (auto begin = frame.begin(); begin != frame.end();) {
    const auto end =
        std::find_if_not(begin + 1, frame.end(), [&](const auto* t) { return is_of_one_call(*begin, t); });
    std::stable_sort(begin, end, [](const auto* a, const auto* b) {
      return element_count(a->shape) > element_count(b->shape);
    });
    begin = end;
  }
}

SideValues::SideValues(const Dump& dump, const std::vector<LogicalTensor>& tensors,
                       std::optional<ScaleConvention> convention)
    : dump_(dump), tensors_(tensors), convention_(std::move(convention)) {
  for (const LogicalTensor& t : tensors) {
    if (by_id_.emplace(t.id, &t).second && without_bits(dump, t) == nullptr)
      by_name_[name_of(t.id)].push_back(&t);
  }
}

const std::vector<const LogicalTensor*>& SideValues::named(const Name& name) const {
  static const std::vector<const LogicalTensor*> none;
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? none : found->second;
}

const LogicalTensor* SideValues::find(const Identity& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() || without_bits(dump_, *found->second) != nullptr ? nullptr : found->second;
}

std::shared_ptr<const SideTensor> SideValues::read(const LogicalTensor& t) const {
  if (const auto known = near_.find(&t); known != near_.end()) return known->second;
  SideTensor made;
  const Tensor whole = merge(dump_, t).tensor.whole();
  made.dtype = whole.dtype();
  made.shape = whole.shape();
  made.values = whole.values();
  made.addends = addends_of(dump_, t);
  if (made.addends > 1) made.magnitude = merge(Magnitudes(dump_), t).tensor.whole().values();
  bytes_ += 8 * static_cast<double>(made.values.size() + made.magnitude.size());
  if (bytes_ > most_bytes) {
    near_.clear();
    bytes_ = 0;
  }
  return near_[&t] = std::make_shared<const SideTensor>(std::move(made));
}

}  // namespace assay
