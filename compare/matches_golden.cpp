#include "assay/compare/matches_golden.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/calls/stated_accumulator.h"
#include "assay/compare/check.h"
#include "assay/compare/report/report.h"
#include "assay/golden/error.h"

namespace assay {

MatchesGolden::MatchesGolden(std::string op, std::vector<NamedTensor> inputs, Attributes attributes)
    : op_(&find_operator(op)), inputs_(std::move(inputs)), attributes_(std::move(attributes)) {
  complete_attributes(*op_, attributes_);
  const auto first = std::ranges::find_if(
      op_->args, [](const Arg& arg) { return arg.role == Role::output || arg.role == Role::output_index; });
  output_ = first->name;
}

MatchesGolden MatchesGolden::output(std::string name) const {
  MatchesGolden other = *this;
  output_arg(*op_, name);
  other.output_ = std::move(name);
  return other;
}

MatchesGolden MatchesGolden::tolerance(std::string policy) const {
  MatchesGolden other = *this;
  load_policy(policy);
  other.policy_ = std::move(policy);
  return other;
}

MatchesGolden MatchesGolden::accumulator(std::string text) const {
  MatchesGolden other = *this;
  other.accumulator_ = stated_accumulator(text);
  return other;
}

bool MatchesGolden::MatchAndExplain(const TensorSource& actual, std::ostream* explanation) const {
  CheckOptions options;
  options.policies = {load_policy(policy_)};
  options.accumulator = accumulator_;
  options.causes = explanation != nullptr;
  const Report report = check(MadeCall{op_, inputs_, {{output_, actual}}, attributes_}, options);
  if (explanation != nullptr) *explanation << "\n" << to_text(report, {});
  return report.findings.front().verdict == Verdict::passed;
}

template <class T>
bool MatchesGolden::match_elements(DType dtype, std::span<const T> actual, std::ostream* explanation) const {
  const Attributes attributes = complete_attributes(*op_, attributes_);
  const Arg& arg = output_arg(*op_, output_);
  const Shape shape = shape_of(*op_, arg, bind_dims(*op_, shapes_of(inputs_), attributes), attributes);
  if (element_count(shape) != static_cast<std::int64_t>(actual.size())) {
    if (explanation != nullptr) {
      *explanation << fmt::format("which has {} elements; expected {} of shape {}", actual.size(),
                                  element_count(shape), to_string(shape));
    }
    return false;
  }
  const std::vector<double> values(actual.begin(), actual.end());
  return MatchAndExplain(Tensor::from_values(dtype, shape, values), explanation);
}

bool MatchesGolden::MatchAndExplain(std::span<const float> actual, std::ostream* explanation) const {
  return match_elements(DType::float32, actual, explanation);
}
bool MatchesGolden::MatchAndExplain(std::span<const double> actual, std::ostream* explanation) const {
  return match_elements(DType::float64, actual, explanation);
}

void MatchesGolden::DescribeTo(std::ostream* out) const {
  *out << fmt::format("is {} of {} within the tolerance {}", output_, op_->name, policy_);
}
void MatchesGolden::DescribeNegationTo(std::ostream* out) const {
  *out << fmt::format("is not {} of {} within the tolerance {}", output_, op_->name, policy_);
}

}  // namespace assay
