#include "assay/operators/engine/pair_rows.h"

#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/outputs.h"

namespace assay {
namespace {

constexpr std::int64_t elements_of_block = 1 << 13;  // of one tensor: what it makes stays in the caches
constexpr std::int64_t elements_together = 1 << 10;  // so that starting an operator costs little

// Elements of a row of this shape; 0 where it has none; nothing where rows do not come first.
std::optional<std::int64_t> row_of(std::string_view letters, std::string_view along, const Dims& dims) {
  const std::vector<Part> parts = parts_of(letters);
  const auto is_along = [&](const Part& p) { return p.letter == along; };
  const auto found = std::ranges::find_if(parts, is_along);
  if (found == parts.end()) return 0;
  if (found != parts.begin() || std::ranges::count_if(parts, is_along) > 1) return {};
  std::int64_t row = 1;
  const std::vector<std::int64_t> extents = extents_of(letters, dims);
  for (std::size_t i = 1; i < extents.size(); ++i) row *= extents[i];
  return row;
}

// One half of the pairs.
void take(const std::vector<BoundPair>& pairs, int half, std::int64_t at, bool adds, PairRows::Made& made) {
  double *value = made.values.data() + at, *error = made.errors.data() + at;
  if (!adds) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      value[i] = pairs[i].value[half];
      error[i] = pairs[i].error[half];
    }
    return;
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double v = pairs[i].value[half];
    value[i] += v;
    error[i] += pairs[i].error[half];
    made.squares[i] += v * v;
  }
}

}  // namespace

std::optional<PairRows> PairRows::of(const Operator& op, std::span<const NamedTensor> inputs,
                                     const Attributes& given, const ErrorModel& device) {
  if (op.run_pairs == nullptr || device.accumulator || device.own) return {};
  PairRows p;
  p.op_ = &op;
  p.device_ = device;
  p.device_.quick = true;
  p.attributes_ = complete_attributes(op, given);
  p.dims_ = bind_dims(op, shapes_of(inputs), p.attributes_);
  p.rows_ = p.dims_.at(op.pairs_along);
  const auto row = [&](const Arg& arg) {
    return row_of(shape_letters(op, arg, p.attributes_), op.pairs_along, p.dims_);
  };
  std::int64_t longest = 0;
  bool has_sums = false;
  for (const NamedTensor& input : inputs) {
    const Arg& arg = input_arg(op, input.name);
    const auto length = row(arg);
    const bool is_exact = is_float(input.tensor.dtype()) &&
                          unit_roundoff(input.tensor.dtype()) >= device.unit_roundoff &&
                          min_subnormal(input.tensor.dtype()) >= device.min_subnormal;
    if (arg.raw || holds_indices(arg) || is_list(arg) || !length || !is_exact) return {};
    p.inputs_.push_back({&arg, input.tensor, *length});
    longest = std::max(longest, *length);
  }
  for (const Arg* arg : outputs_made(op, inputs)) {
    const auto length = row(*arg);
    if (holds_indices(*arg) || !length) return {};
    p.outputs_.push_back({arg, expand(shape_letters(op, *arg, p.attributes_), p.dims_), *length});
    longest = std::max(longest, *length);
    has_sums = has_sums || *length == 0;
  }
  if (longest == 0 || p.rows_ < 2) return {};
  // Sums over rows take them one by one: each half of a pair then has one term.
  if (!has_sums) p.together_ = std::clamp<std::int64_t>(elements_together / longest, 1, p.rows_ / 2);
  return p;
}

std::int64_t PairRows::rows_of_block() const {
  std::int64_t longest = 1;
  for (const Input& input : inputs_) longest = std::max(longest, input.row);
  const std::int64_t pairs = 2 * together_;
  return std::max<std::int64_t>(1, elements_of_block / (longest * pairs)) * pairs;
}

// Inputs that have no rows are the same for all; room for all else.
void PairRows::place(Tensors<BoundPair>& tensors, const Dims& dims) const {
  const auto slot_of = [&](const Arg& arg) -> Tensors<BoundPair>::Slot& {
    auto& slot = tensors.slots()[std::string(arg.name)];
    slot.arg = &arg;
    const std::string_view letters = shape_letters(*op_, arg, attributes_);
    slot.extents = extents_of(letters, dims);
    slot.shape = slot.extents;
    slot.values.resize(static_cast<std::size_t>(element_count(slot.extents)));
    return slot;
  };
  for (const Input& input : inputs_) {
    auto& slot = slot_of(*input.arg);
    if (input.row > 0) continue;
    const std::vector<double> values = input.tensor.values();
    std::ranges::copy(values, slot.values.begin());
  }
  for (const Output& output : outputs_) slot_of(*output.arg);
}

std::vector<PairRows::Made> PairRows::compute(std::int64_t begin, std::int64_t end) const {
  if (begin % rows_of_block() != 0 || end > rows_ || begin >= end)
    throw Error("rows {} to {} of {} are no block of {}", begin, end, rows_, rows_of_block());
  const ErrorScope scope(device_);
  std::vector<Made> made(outputs_.size());
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    const std::int64_t row = outputs_[k].row;
    const auto size =
        static_cast<std::size_t>(row > 0 ? row * (end - begin) : element_count(outputs_[k].shape));
    made[k].values.resize(size);
    made[k].errors.resize(size);
    if (row == 0) made[k].squares.resize(size);
  }
  Tensors<BoundPair> tensors;
  Dims dims = dims_;
  std::int64_t placed = 0;
  std::vector<double> decoded;
  for (std::int64_t at = begin; at < end;) {
    // The last, odd row stands in both halves.
    const std::int64_t together = std::max<std::int64_t>(1, std::min(together_, (end - at) / 2));
    const std::int64_t first = at, second = std::min(at + together, end - together);
    if (together != placed) {
      dims.set(op_->pairs_along, together);
      place(tensors, dims);
      placed = together;
    }
    for (const Input& input : inputs_) {
      if (input.row == 0) continue;
      auto& values = tensors.slot(input.arg->name).values;
      decoded.resize(2 * values.size());
      const std::size_t element = size_of(input.tensor.dtype());
      const auto half = [&](std::int64_t row) {
        return input.tensor.bytes().subspan(static_cast<std::size_t>(row * input.row) * element,
                                            values.size() * element);
      };
      const std::span<double> all(decoded), low = all.first(values.size()), high = all.last(values.size());
      decode(input.tensor.dtype(), half(first), low);
      decode(input.tensor.dtype(), half(second), high);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = {DoublePair{low[i], high[i]}, DoublePair{}};
    }
    op_->run_pairs(tensors, dims, attributes_);
    const int halves = second == first ? 1 : 2;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const std::vector<BoundPair>& values = tensors.slot(outputs_[k].arg->name).values;
      for (int half = 0; half < halves; ++half)
        take(values, half, ((half == 0 ? first : second) - begin) * outputs_[k].row, outputs_[k].row == 0,
             made[k]);
    }
    at += together * halves;
  }
  constexpr double computed = 1 - 0x1p-20;  // in float64
  for (std::size_t k = 0; k < made.size(); ++k) {
    for (double& v : made[k].values) v = output_value(*outputs_[k].arg, v);
    for (double& e : made[k].errors) e = std::isfinite(e) ? computed * e : 0;
  }
  return made;
}

void PairRows::add(Made& sum, const Made& next) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] += next.values[i];
    sum.errors[i] += next.errors[i];
    sum.squares[i] += next.squares[i];
  }
}

void PairRows::complete(Made& sum) const {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    const double loss = least_loss(rows_, sum.values[i], sum.squares[i], device_.unit_roundoff);
    if (std::isfinite(loss)) sum.errors[i] += loss;
  }
}

}  // namespace assay
