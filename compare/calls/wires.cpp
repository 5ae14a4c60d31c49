#include "assay/compare/calls/wires.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

bool is_source(const Identity& id) {
  return id.slot == "output" || id.slot == "grad_input";
}
bool is_use(const Identity& id) {
  return id.slot == "input" || id.slot == "grad_output";
}

std::map<Identity, const LogicalTensor*> by_identity(const std::vector<LogicalTensor>& tensors) {
  std::map<Identity, const LogicalTensor*> result;
  for (const LogicalTensor& t : tensors) result.emplace(t.id, &t);
  return result;
}

std::string_view bytes_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.bytes().data()), t.bytes().size()};
}

// One number, or the same number everywhere (zeros, ones, a loss), does not show which result it is.
bool is_uniform(const Tensor& t) {
  const std::string_view bytes = bytes_of(t);
  const std::size_t size = size_of(t.dtype());
  return t.size() < 2 || !is_float(t.dtype()) || bytes.substr(size) == bytes.substr(0, bytes.size() - size);
}

// The number of elements that differ once both are rounded to the coarser dtype; -1 if the sizes differ.
std::int64_t changed_elements(const Tensor& given, const Tensor& got) {
  if (given.size() != got.size()) return -1;
  if (given.dtype() == got.dtype() && bytes_of(given) == bytes_of(got)) return 0;
  const DType narrow =
      unit_roundoff(given.dtype()) > unit_roundoff(got.dtype()) ? given.dtype() : got.dtype();
  const std::vector<double> a = given.values(), b = got.values();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = round_to(narrow, a[i]), y = round_to(narrow, b[i]);
    count += x == y || (x != x && y != y) ? 0 : 1;
  }
  return count;
}

}  // namespace

Wires::Wires(const Sides& sides)
    : sides_(sides),
      actual_(by_identity(sides.actual_tensors)),
      reference_(by_identity(sides.reference_tensors)) {
  find_sources();
  find_parameters();
}

// In execution order: of several results with the same bits the last one counts. The operations between them
// only passed the value on.
void Wires::find_sources() {
  std::vector<const LogicalTensor*> order;
  for (const LogicalTensor& t : sides_.reference_tensors) {
    const bool counts = t.id.phase == Phase::forward || t.id.phase == Phase::backward;
    if (counts && (is_source(t.id) || is_use(t.id)) && without_bits(sides_.reference, t) == nullptr)
      order.push_back(&t);
  }
  std::ranges::stable_sort(order, {}, &LogicalTensor::seq);
  using Content = std::tuple<std::int64_t, std::int64_t, DType, std::int64_t, std::size_t>;
  std::map<Content, const LogicalTensor*> made;
  for (const LogicalTensor* t : order) {
    if (is_use(t->id)) ++inputs_;
    const auto trouble = trouble_in([&] {
      const Tensor tensor = merge(sides_.reference, *t).tensor.whole();
      if (is_uniform(tensor)) return;
      const Content content{t->id.step, t->id.micro_batch, tensor.dtype(), tensor.size(),
                            std::hash<std::string_view>()(bytes_of(tensor))};
      if (is_source(t->id)) {
        made[content] = t;
      } else if (const auto found = made.find(content); found != made.end()) {
        sources_[t] = found->second;
        uses_[found->second].push_back(t);
      }
    });
    if (trouble) troubles_.push_back(*trouble);
  }
}

// A step begins with the parameters that the one before left.
void Wires::find_parameters() {
  for (const LogicalTensor& t : sides_.reference_tensors) {
    if (t.id.slot != "param" || t.id.phase != Phase::forward || t.id.step == 0) continue;
    const LogicalTensor* before =
        reference({t.id.step - 1, -1, Phase::optimizer, t.id.module, "param", t.id.arg, 0});
    if (before == nullptr) continue;
    ++inputs_;
    const auto trouble = trouble_in([&] {
      const Tensor left = merge(sides_.reference, *before).tensor.whole();
      if (changed_elements(left, merge(sides_.reference, t).tensor.whole()) == 0) sources_[&t] = before;
    });
    if (trouble) troubles_.push_back(*trouble);
  }
}

const LogicalTensor* Wires::source_of(const LogicalTensor& input) const {
  const auto found = sources_.find(&input);
  return found == sources_.end() ? nullptr : found->second;
}

const std::vector<const LogicalTensor*>& Wires::uses_of(const LogicalTensor& result) const {
  static const std::vector<const LogicalTensor*> none;
  const auto found = uses_.find(&result);
  return found == uses_.end() ? none : found->second;
}

const LogicalTensor* Wires::actual(const Identity& id) const {
  const auto found = actual_.find(id);
  return found == actual_.end() || without_bits(sides_.actual, *found->second) != nullptr ? nullptr
                                                                                          : found->second;
}

const LogicalTensor* Wires::reference(const Identity& id) const {
  const auto found = reference_.find(id);
  return found == reference_.end() || without_bits(sides_.reference, *found->second) != nullptr
             ? nullptr
             : found->second;
}

std::optional<std::string> Wires::broken(const LogicalTensor& input, const LogicalTensor& actual) const {
  const LogicalTensor* source = source_of(input);
  const LogicalTensor* given = source == nullptr ? nullptr : this->actual(source->id);
  if (given == nullptr || without_bits(sides_.actual, actual) != nullptr) return std::nullopt;
  const std::int64_t count = changed_elements(merge(sides_.actual, *given).tensor.whole(),
                                              merge(sides_.actual, actual).tensor.whole());
  if (count == 0) return std::nullopt;
  const std::string how = count < 0 ? "it has another number of elements"
                                    : fmt::format("{} of {} elements were changed between them", count,
                                                  element_count(actual.shape));
  return fmt::format("it is not what {} gave, as it is in the reference: {}", to_string(source->id), how);
}

}  // namespace assay
