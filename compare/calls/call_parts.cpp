// The work of a call, the call in some of its rows, and with other operands.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "assay/compare/calls/call.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/error.h"
#include "assay/golden/sketch.h"
#include "assay/operators/engine/binding.h"

namespace assay {

void Call::sample_rows(double enough_work, std::int64_t worst) {
  if (summands_.size() != 1 || work() <= enough_work) return;
  Summand& summand = summands_.front();
  if (summand.op->rows != Rows::apart) return;
  // Of "N*" alone each element stands for itself, and its rows are as good as any.
  const auto has_rows = [](const Arg& arg) {
    const std::vector<Part> parts = parts_of(arg.shape);
    return arg.shape == "N*" || (parts.size() == 2 && parts.front().starred &&
                                 (!parts.back().starred || parts.front().letter == "N"));
  };
  const Arg& output = output_arg(*summand.op, summand.output);
  const std::int64_t columns = result_.shape().empty() ? 0 : result_.shape().back();
  if (!has_rows(output) || columns == 0) return;
  const auto is_mixed = [&](const NamedTensor& input) {
    const Arg& arg = input_arg(*summand.op, input.name);
    return has_rows(arg) && (arg.shape == "N*") != (output.shape == "N*");
  };
  if (std::ranges::any_of(summand.inputs, is_mixed)) return;
  const std::int64_t rows = result_.size() / columns;
  for (const NamedTensor& input : summand.inputs) {
    const Arg& arg = input_arg(*summand.op, input.name);
    const bool fits = has_rows(arg) && !input.tensor.shape().empty() && input.tensor.shape().back() > 0 &&
                      input.tensor.size() / input.tensor.shape().back() == rows;
    if (!fits && (has_rows(arg) || arg.shape.find('N') != std::string_view::npos)) return;
  }
  const auto most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(rows) * enough_work / work()), 1, rows);
  // Evenly over the tensor, one of them the worst.
  const std::int64_t step = (rows + most - 1) / most;
  const std::int64_t first = std::max<std::int64_t>(worst, 0) / columns % step;
  const std::int64_t kept = (rows - first - 1) / step + 1;
  const auto some_rows = [&](const Tensor& t) {
    const std::int64_t width = t.shape().back();
    return gather_view(t, {kept, width}, {step * width, 1}, first * width);
  };
  for (NamedTensor& input : summand.inputs) {
    if (has_rows(input_arg(*summand.op, input.name))) input.tensor = some_rows(input.tensor);
  }
  is_sampled_ = kept < rows;
  result_ = some_rows(result_);
}

Call Call::in_some_rows(double enough_work, std::int64_t worst) const {
  Call some = *this;
  some.sample_rows(enough_work, worst);
  some.device_errors_.clear();
  some.golden_.reset();
  return some;
}

std::optional<Call> Call::in_first(std::int64_t places) const {
  if (summands_.size() != 1 || op().causal_along.empty() || summands_.front().output.starts_with("grad_"))
    return {};
  bool is_shorter = false;
  std::int64_t rows = 0, all_places = 0;  // before the places, and of them
  const Attributes given = complete_attributes(op(), attributes_of(summands_.front(), {}));
  const auto beginning = [&](const Arg& arg, const Tensor& t) {
    const std::vector<Part> letters = parts_of(shape_letters(op(), arg, given));
    const auto along = std::ranges::find(letters, op().causal_along, &Part::letter);
    if (along == letters.end()) return t;
    const auto dim = static_cast<std::size_t>(along - letters.begin());
    if (std::ranges::any_of(letters.begin(), along, &Part::starred) || t.shape()[dim] <= places) return t;
    is_shorter = true;
    Shape shape = t.shape();
    if (dim == 1) std::tie(rows, all_places) = std::tie(shape[0], shape[1]);
    shape[dim] = places;
    return gather_view(t, shape, dense_strides(t.shape()), 0);
  };
  // Of any shape, in the order of its elements.
  const auto beginning_of_result = [&](const Arg& arg, const Tensor& t) {
    const bool is_any = parts_of(shape_letters(op(), arg, given)).front().starred;
    if (!is_any || rows * all_places == 0 || t.size() % (rows * all_places) != 0) return beginning(arg, t);
    const Shape whole = {rows, all_places, t.size() / rows / all_places};
    return gather_view(t, {rows, places, whole[2]}, dense_strides(whole), 0);
  };
  Call first = *this;
  Summand& summand = first.summands_.front();
  for (NamedTensor& input : summand.inputs)
    input.tensor = beginning(input_arg(op(), input.name), input.tensor);
  first.result_ = beginning_of_result(output_arg(op(), summand.output), result_);
  first.device_errors_.clear();
  first.golden_.reset();
  return is_shorter ? std::optional(std::move(first)) : std::nullopt;
}

std::span<const NamedTensor> Call::operands() const {
  if (summands_.size() != 1) return {};
  return summands_.front().inputs;
}

Call Call::given(const std::vector<NamedTensor>& others) const {
  Call call = *this;
  call.device_errors_.clear();
  call.golden_.reset();
  for (const NamedTensor& other : others) {
    const auto own = std::ranges::find(call.summands_.front().inputs, other.name, &NamedTensor::name);
    if (own == call.summands_.front().inputs.end())
      throw Error("{}: there is no operand '{}'", call.op().name, other.name);
    own->tensor = other.tensor;
  }
  return call;
}

std::optional<std::vector<double>> Call::answer_to(const Call& other, const CallVariant& variant,
                                                   std::uint64_t draw) const {
  if (summands_.size() != other.summands_.size() || factor_ != other.factor_ || is_sampled_) return {};
  Call moved = *this;
  moved.device_errors_.clear();
  moved.golden_.reset();
  for (std::size_t s = 0; s < summands_.size(); ++s) {
    const std::vector<NamedTensor>& its = other.summands_[s].inputs;
    if (summands_[s].op != other.summands_[s].op || summands_[s].inputs.size() != its.size()) return {};
    for (NamedTensor& input : moved.summands_[s].inputs) {
      const auto twin = std::ranges::find(its, input.name, &NamedTensor::name);
      if (twin == its.end() || twin->tensor.size() != input.tensor.size()) return {};
      std::vector<double> values = input.tensor.values();
      const std::vector<double> others = twin->tensor.values();
      if (!is_float(input.tensor.dtype())) {
        if (values != others) return {};
        continue;
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double difference = std::abs(values[i] - others[i]);
        if (!std::isfinite(difference)) return {};
        values[i] += (mixed(++draw) & 1) == 0 ? difference : -difference;
      }
      input.tensor = Tensor(input.tensor.shape(), std::span<const double>(values));
    }
  }
  std::vector<double> answer = moved.values(variant);
  const std::vector<double> own = values(variant);
  for (std::size_t i = 0; i < answer.size(); ++i) {
    answer[i] -= own[i];
    if (!std::isfinite(answer[i])) return {};
  }
  return answer;
}

std::optional<Call> Call::by(const Operator& other) const {
  const auto is_alike = [&](std::string_view name) {
    const Arg *own = find_arg(op(), name), *its = find_arg(other, name);
    return own != nullptr && its != nullptr && own->role == its->role && own->shape == its->shape;
  };
  if (summands_.size() != 1 || &other == &op() || !is_alike(summands_.front().output)) return {};
  const std::vector<NamedTensor>& inputs = summands_.front().inputs;
  const bool takes_all =
      std::ranges::all_of(inputs, [&](const NamedTensor& input) { return is_alike(input.name); });
  const auto needed = std::ranges::count_if(other.args, [&](const Arg& arg) {
    const bool is_given = std::ranges::find(inputs, arg.name, &NamedTensor::name) != inputs.end();
    return (arg.role == Role::input || arg.role == Role::param || arg.role == Role::index) && !arg.optional &&
           !is_given;
  });
  if (!takes_all || needed != 0) return {};
  Call call = *this;
  call.device_errors_.clear();
  call.golden_.reset();
  Summand& summand = call.summands_.front();
  summand.op = &other;
  summand.inferred = {};
  if (other.infer != nullptr) {
    Recorded recorded{summand.inputs, summand.output, result_};
    other.infer(recorded);
    summand.inferred = std::move(recorded.attributes);
  }
  return call;
}

double Call::work() const {
  double work = 0;
  for (const Summand& summand : summands_) {
    double count = 1;
    try {
      count = std::max(1.0, static_cast<double>(accumulation_count(*summand.op, summand.output,
                                                                   shapes_of(summand.inputs), {})));
    } catch (const Error&) {  // it needs attributes: the inputs' sizes have to do
    }
    const bool once = summand.op->sums_of_rows && !result_.shape().empty() && result_.shape().back() > 0;
    const double rows = once ? static_cast<double>(result_.size() / result_.shape().back()) : 0;
    const auto size = static_cast<double>(result_.size());
    work += once ? rows * count : size * (count - 1);
  }
  return work + elements();
}

double Call::elements() const {
  auto count =
      static_cast<double>(result_.size()) * static_cast<double>(std::max<std::size_t>(1, summands_.size()));
  for (const Summand& summand : summands_) {
    for (const NamedTensor& input : summand.inputs) count += static_cast<double>(input.tensor.size());
  }
  return count;
}

}  // namespace assay
