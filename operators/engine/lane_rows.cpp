#include "assay/operators/engine/lane_rows.h"

#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

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

// Rows of as many numbers as there are lanes: what stands in a lane becomes a row.
template <int N>
inline void transpose(Doubles<N> (&rows)[N]) {
#ifdef ASSAY_WIDE_LANES
  using Indices = typename LaneTypes<N>::Integers;
  for (int step = 1; step < N; step *= 2) {
    Indices low, high;  // of the numbers of the first vector, then of the second
    for (int k = 0; k < N; ++k) {
      low[k] = (k & step) == 0 ? k : N + k - step;
      high[k] = (k & step) == 0 ? k + step : N + k;
    }
    for (int i = 0; i < N; ++i) {
      if ((i & step) != 0) continue;
      const Doubles<N> a = rows[i], b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  }
#else
  static_assert(N == 2);
  const Doubles<N> a = rows[0], b = rows[1];
  rows[0] = Doubles<N>{a[0], b[0]};
  rows[1] = Doubles<N>{a[1], b[1]};
#endif
}

// Rows of `count` numbers, one behind another, into the values of the lanes.
template <int N>
inline void to_lanes(const double* rows, std::size_t count, BoundLanes<N>* lanes) {
  std::size_t i = 0;
  for (; i + N <= count; i += N) {
    Doubles<N> some[N];
    for (std::size_t k = 0; k < N; ++k) std::memcpy(&some[k], rows + k * count + i, sizeof some[k]);
    transpose<N>(some);
    for (std::size_t k = 0; k < N; ++k) lanes[i + k] = {some[k], Doubles<N>{}};
  }
  for (; i < count; ++i) {
    lanes[i] = {};
    for (std::size_t k = 0; k < N; ++k) lanes[i].value[k] = rows[k * count + i];
  }
}

// The part of an error that float64 itself cannot have made.
constexpr double computed = 1 - 0x1p-20;
double known_error(double e) {
  return std::isfinite(e) ? computed * e : 0;
}

// One lane each: rows of values and errors, of which the first `there` are asked for.
template <int N>
struct RowsOfLanes {
  std::array<double*, N> values, errors;
  std::size_t there;
};

template <int N>
inline void from_lanes(const BoundLanes<N>* lanes, std::size_t count, bool one_nan,
                       const RowsOfLanes<N>& rows) {
  const auto put = [&](Doubles<N>(&some)[N], const std::array<double*, N>& to, std::size_t i) {
    transpose<N>(some);
    for (std::size_t k = 0; k < N; ++k) {
      if (k < rows.there) std::memcpy(to[k] + i, &some[k], sizeof some[k]);
    }
  };
  Doubles<N> nan = {}, none = {};
  for (int k = 0; k < N; ++k) nan[k] = std::numeric_limits<double>::quiet_NaN();
  std::size_t i = 0;
  for (; i + N <= count; i += N) {
    Doubles<N> some[N];
    for (std::size_t k = 0; k < N; ++k) {
      const Doubles<N>& v = lanes[i + k].value;
      some[k] = one_nan ? (v == v ? v : nan) : v;
    }
    put(some, rows.values, i);
    for (std::size_t k = 0; k < N; ++k) {
      const Doubles<N>& e = lanes[i + k].error;
      const Doubles<N> size = e < 0 ? -e : e;
      some[k] = size < infinity ? computed * e : none;
    }
    put(some, rows.errors, i);
  }
  for (; i < count; ++i) {
    for (std::size_t k = 0; k < rows.there; ++k) {
      const double v = lanes[i].value[k];
      rows.values[k][i] = one_nan ? with_one_nan(v) : v;
      rows.errors[k][i] = known_error(lanes[i].error[k]);
    }
  }
}

#ifdef ASSAY_WIDE_LANES
ASSAY_FOUR_LANES void to_four_lanes(const double* rows, std::size_t count, BoundLanes<4>* lanes) {
  to_lanes<4>(rows, count, lanes);
}
ASSAY_EIGHT_LANES void to_eight_lanes(const double* rows, std::size_t count, BoundLanes<8>* lanes) {
  to_lanes<8>(rows, count, lanes);
}
ASSAY_FOUR_LANES void from_four_lanes(const BoundLanes<4>* lanes, std::size_t count, bool one_nan,
                                      const RowsOfLanes<4>& rows) {
  from_lanes<4>(lanes, count, one_nan, rows);
}
ASSAY_EIGHT_LANES void from_eight_lanes(const BoundLanes<8>* lanes, std::size_t count, bool one_nan,
                                        const RowsOfLanes<8>& rows) {
  from_lanes<8>(lanes, count, one_nan, rows);
}
#endif

template <int N>
void put_into(const double* rows, std::size_t count, BoundLanes<N>* lanes) {
#ifdef ASSAY_WIDE_LANES
  if constexpr (N == 8) return to_eight_lanes(rows, count, lanes);
  if constexpr (N == 4) return to_four_lanes(rows, count, lanes);
#endif
  if constexpr (N == 2) to_lanes<2>(rows, count, lanes);
}

template <int N>
void take_from(const std::vector<BoundLanes<N>>& lanes, bool one_nan, const RowsOfLanes<N>& rows) {
#ifdef ASSAY_WIDE_LANES
  if constexpr (N == 8) return from_eight_lanes(lanes.data(), lanes.size(), one_nan, rows);
  if constexpr (N == 4) return from_four_lanes(lanes.data(), lanes.size(), one_nan, rows);
#endif
  if constexpr (N == 2) from_lanes<2>(lanes.data(), lanes.size(), one_nan, rows);
}

template <int N>
void add_lane(const std::vector<BoundLanes<N>>& lanes, int lane, LaneRows::Made& made) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const double v = lanes[i].value[lane];
    made.values[i] += v;
    made.errors[i] += lanes[i].error[lane];
    made.squares[i] += v * v;
  }
}

// As many lanes as the machine has instructions for and a block has rows.
int lanes_of([[maybe_unused]] const LaneRuns& runs, [[maybe_unused]] std::int64_t rows) {
#ifdef ASSAY_WIDE_LANES
  const std::int64_t targets = hwy::SupportedTargets();
  if (runs.eight != nullptr && rows >= 8 && (targets & HWY_AVX3) != 0) return 8;
  if (runs.four != nullptr && rows >= 4 && (targets & (HWY_AVX2 | HWY_AVX3)) != 0) return 4;
#endif
  return 2;
}

}  // namespace

std::optional<LaneRows> LaneRows::of(const Operator& op, std::span<const NamedTensor> inputs,
                                     const Attributes& given, const ErrorModel& device) {
  if (op.run_lanes.two == nullptr || device.accumulator || device.own) return {};
  LaneRows p;
  p.op_ = &op;
  p.device_ = device;
  p.device_.quick = true;
  p.attributes_ = complete_attributes(op, given);
  p.dims_ = bind_dims(op, shapes_of(inputs), p.attributes_);
  p.rows_ = p.dims_.at(op.lanes_along);
  const auto row = [&](const Arg& arg) {
    return row_of(shape_letters(op, arg, p.attributes_), op.lanes_along, p.dims_);
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
  // Sums over rows take them one by one: each lane then has one term.
  if (!has_sums) p.together_ = 2 * std::clamp<std::int64_t>(elements_together / longest, 1, p.rows_ / 2);
  p.lanes_ = lanes_of(op.run_lanes, p.rows_of_block());
  return p;
}

std::int64_t LaneRows::rows_of_block() const {
  std::int64_t longest = 1;
  for (const Input& input : inputs_) longest = std::max(longest, input.row);
  return std::max<std::int64_t>(1, elements_of_block / (longest * together_)) * together_;
}

// Inputs that have no rows are the same for all; room for all else.
template <int N>
void LaneRows::place(Tensors<BoundLanes<N>>& tensors, const Dims& dims) const {
  const auto slot_of = [&](const Arg& arg) -> typename Tensors<BoundLanes<N>>::Slot& {
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

// Every lane has its rows one after another; where rows are fewer than lanes, the last stands in those left.
template <int N>
void LaneRows::compute_in_lanes(LaneRuns::Run<N> run, std::int64_t begin, std::int64_t end,
                                Room& room) const {
  auto& tensors = std::get<Tensors<BoundLanes<N>>>(room.tensors);
  std::vector<Made>& made = room.made;
  std::vector<double>& decoded = room.decoded;
  Dims dims = dims_;
  if (room.placed > 0) dims.set(op_->lanes_along, room.placed);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t together =
        std::max<std::int64_t>(1, std::min<std::int64_t>(together_, end - at) / N);  // of a lane
    const std::int64_t lanes = std::min<std::int64_t>(N, (end - at) / together);
    if (together != room.placed) {
      dims.set(op_->lanes_along, together);
      place(tensors, dims);
      room.placed = together;
    }
    const auto first_of = [&](std::int64_t lane) { return at + std::min(lane, lanes - 1) * together; };
    for (const Input& input : inputs_) {
      if (input.row == 0) continue;
      auto& values = tensors.slot(input.arg->name).values;
      const std::size_t count = values.size(), element = size_of(input.tensor.dtype());
      decoded.resize(N * count);
      for (std::size_t lane = 0; lane < N; ++lane) {
        const auto first = static_cast<std::size_t>(first_of(static_cast<std::int64_t>(lane)) * input.row);
        decode(input.tensor.dtype(), input.tensor.bytes().subspan(first * element, count * element),
               std::span(decoded).subspan(lane * count, count));
      }
      put_into<N>(decoded.data(), count, values.data());
    }
    run(tensors, dims, attributes_);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const std::vector<BoundLanes<N>>& values = tensors.slot(outputs_[k].arg->name).values;
      if (outputs_[k].row == 0) {
        for (int lane = 0; lane < lanes; ++lane) add_lane<N>(values, lane, made[k]);
        continue;
      }
      RowsOfLanes<N> rows;
      rows.there = static_cast<std::size_t>(lanes);
      for (std::size_t lane = 0; lane < N; ++lane) {
        const std::int64_t row = first_of(static_cast<std::int64_t>(lane)) - begin;
        rows.values[lane] = made[k].values.data() + row * outputs_[k].row;
        rows.errors[lane] = made[k].errors.data() + row * outputs_[k].row;
      }
      take_from<N>(values, outputs_[k].arg->exact != Exact::bits, rows);
    }
    at += together * lanes;
  }
}

std::span<LaneRows::Made> LaneRows::compute(std::int64_t begin, std::int64_t end, Room& room) const {
  if (begin % rows_of_block() != 0 || end > rows_ || begin >= end)
    throw Error("rows {} to {} of {} are no block of {}", begin, end, rows_, rows_of_block());
  const ErrorScope scope(device_);
  std::vector<Made>& made = room.made;
  made.resize(outputs_.size());
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    const std::int64_t row = outputs_[k].row;
    const auto size =
        static_cast<std::size_t>(row > 0 ? row * (end - begin) : element_count(outputs_[k].shape));
    if (row == 0) made[k] = {};  // sums begin at 0
    made[k].values.resize(size);
    made[k].errors.resize(size);
    if (row == 0) made[k].squares.resize(size);
  }
  switch (lanes_) {
#ifdef ASSAY_WIDE_LANES
    case 8:
      compute_in_lanes<8>(op_->run_lanes.eight, begin, end, room);
      break;
    case 4:
      compute_in_lanes<4>(op_->run_lanes.four, begin, end, room);
      break;
#endif
    default:
      compute_in_lanes<2>(op_->run_lanes.two, begin, end, room);
  }
  for (std::size_t k = 0; k < made.size(); ++k) {
    if (outputs_[k].row > 0) continue;
    for (double& v : made[k].values) v = output_value(*outputs_[k].arg, v);
    for (double& e : made[k].errors) e = known_error(e);
  }
  return made;
}

void LaneRows::add(Made& sum, const Made& next) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] += next.values[i];
    sum.errors[i] += next.errors[i];
    sum.squares[i] += next.squares[i];
  }
}

void LaneRows::complete(Made& sum) const {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    const double loss = least_loss(rows_, sum.values[i], sum.squares[i], device_.unit_roundoff);
    if (std::isfinite(loss)) sum.errors[i] += loss;
  }
}

}  // namespace assay
