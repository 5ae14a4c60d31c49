// Results that are indices: a row may choose otherwise where its scores are nearly equal.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/declared_args.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Of a row each must be there once.
bool is_choice(std::span<const double> row) {
  return std::set<double>(row.begin(), row.end()).size() == row.size();
}

bool is_same_choice(std::span<const double> a, std::span<const double> b) {
  return std::set<double>(a.begin(), a.end()) == std::set<double>(b.begin(), b.end());
}

// What the operator calls a choice that is given in place of its own.
std::string_view given_in_place_of(const Operator& op, std::string_view choice) {
  const auto row = std::ranges::find_if(
      op.recorded_as, [&](const RecordedAs& r) { return r.name == choice && is_own_result(op, r); });
  return row == op.recorded_as.end() ? std::string_view() : row->arg;
}

}  // namespace

// The first index that is not the golden one, -1 if there is none. A row may choose otherwise if all that it
// chose is as near to the best that it did not as roundings can move them.
std::int64_t Call::first_wrong_index(const CallVariant& variant, const std::vector<double>& actual,
                                     const std::vector<double>& golden, std::int64_t& ties) const {
  const Summand& summand = summands_.front();
  const std::string_view of_gap = output_arg(*summand.op, summand.output).gap;
  if (of_gap.empty() && actual != golden && chooses_equals(variant)) {
    ++ties;
    return -1;
  }
  const std::size_t width = of_gap.empty() ? 1 : static_cast<std::size_t>(result_.shape().back());
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < actual.size(); i += width) {
    const std::span own = std::span(actual).subspan(i, width), right = std::span(golden).subspan(i, width);
    if (std::ranges::equal(own, right)) continue;
    if (of_gap.empty() || !is_choice(own)) return static_cast<std::int64_t>(i);
    if (!is_same_choice(own, right)) others.push_back(i);
  }
  if (others.empty()) return -1;
  std::vector<NamedTensor> inputs = summand.inputs;
  const std::string_view given = given_in_place_of(*summand.op, summand.output);
  std::erase_if(inputs, [&](const NamedTensor& t) { return t.name == given; });
  inputs.push_back({std::string(given), result_});
  try {
    const std::vector<double> leads = leads_of_choices(variant, inputs, of_gap);
    for (const std::size_t i : others) {
      if (!(leads[i / width] >= -1)) return static_cast<std::int64_t>(i);
    }
  } catch (const Error&) {  // of no expert that there is
    return static_cast<std::int64_t>(others.front());
  }
  ties += std::ssize(others);
  return -1;
}

// Whether the other results, as far as nothing is rounded in them, are the same with the recorded choice: it
// differs from golden's in the order of equal elements alone.
bool Call::chooses_equals(const CallVariant& variant) const {
  const Summand& summand = summands_.front();
  const Operator& op = *summand.op;
  const std::string_view given = given_in_place_of(op, summand.output);
  if (given.empty()) return false;
  std::vector<NamedTensor> inputs = summand.inputs;
  std::erase_if(inputs, [&](const NamedTensor& t) {
    const Arg* arg = find_arg(op, t.name);
    return t.name == given || (arg != nullptr && arg->role == Role::grad_output);
  });
  const Attributes attributes = attributes_of(summand, variant);
  try {
    const std::vector<NamedTensor> own = compute_golden(op, inputs, attributes, Level::fp64);
    inputs.push_back({std::string(given), result_});
    const std::vector<NamedTensor> chosen = compute_golden(op, inputs, attributes, Level::fp64);
    return std::ranges::all_of(op.args, [&](const Arg& arg) {
      if (arg.role != Role::output || arg.exact == Exact::no) return true;
      const std::vector<double> a = output_named(own, arg.name).values(),
                                b = output_named(chosen, arg.name).values();
      return std::ranges::equal(
          a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
    });
  } catch (const Error&) {  // of an element that there is not, or of one twice
    return false;
  }
}

// Of each row, how far the choice that it is given is ahead of the best other one, in errors of that.
std::vector<double> Call::leads_of_choices(const CallVariant& variant, const std::vector<NamedTensor>& inputs,
                                           std::string_view of_gap) const {
  const Operator& op = *summands_.front().op;
  const Attributes attributes = attributes_of(summands_.front(), variant);
  std::vector<double> leads =
      output_named(compute_golden(op, inputs, attributes, Level::fp64), of_gap).values();
  ErrorModel model = float32_device;  // whatever the logits are stored in
  model.stored_roundoff = device_.stored_roundoff();
  const std::vector<double> within =
      output_named(compute_bound(op, inputs, attributes, model), of_gap).values();
  for (std::size_t i = 0; i < leads.size(); ++i) {
    if (leads[i] != 0) leads[i] /= within[i];
  }
  return leads;
}

// Results that show a choice, by what is 0 in them: whether one is none that roundings allow.
std::int64_t Call::first_wrong_row(const CallVariant& variant, std::int64_t& ties) const {
  const Summand& summand = summands_.front();
  const auto choice = std::ranges::find_if(summand.op->args, [](const Arg& a) { return !a.gap.empty(); });
  if (!summand.shows_choice || summands_.size() != 1 || choice == summand.op->args.end()) return -1;
  const std::vector<double> leads = leads_of_choices(variant, summand.inputs, choice->gap);
  const auto wrong = std::ranges::find_if(leads, [](double lead) { return !(lead >= -1); });
  ties += std::ranges::count_if(leads, [](double lead) { return lead < 0; });
  return wrong == leads.end() ? -1 : wrong - leads.begin();
}

// Of two values, of which one is drawn, the recorded one is as right as the other.
void Call::take_drawn(const CallVariant& variant, std::vector<Tensor>& parts) const {
  const Summand& summand = summands_.front();
  const Seen& by = op().drawn;
  if (by.attribute.empty() || summand.output.starts_with("grad_") || parts.size() != 1 ||
      parts.front().size() != result_.size())
    return;
  Attributes attributes = complete_attributes(op(), attributes_of(summand, variant));
  attributes.set(std::string(by.attribute), parse_attribute(by.value));
  const auto outputs = compute_golden(op(), summand.inputs, attributes, Level::fp64, summand.output);
  const std::vector<double> actual = result_.values(), drawn = output_named(outputs, summand.output).values();
  std::vector<double> values = parts.front().values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(actual[i] - drawn[i]) < std::abs(actual[i] - values[i])) values[i] = drawn[i];
  }
  parts.front() = Tensor(parts.front().shape(), std::span<const double>(values));
}

}  // namespace assay
