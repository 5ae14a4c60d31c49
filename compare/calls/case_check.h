#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/check_options.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// The gate for one case: its golden values, computed once, and how an output is judged by them.
class CaseCheck {
 public:
  /// Both must outlive this. Throws Error as compute_golden does.
  CaseCheck(const Case&, const CheckOptions&);
  CaseCheck(const Case&, const CheckOptions&&) = delete;

  /// Judges one output; fills everything of the finding but its names.
  /// @param map_errors  as Expectation has it
  /// @throws Error  if the operator makes no such output from these inputs
  void judge_output(Finding&, const CaseOutput&, const Merged& actual, bool map_errors = false);

  const Case& subject() const { return case_; }
  /// Names the golden outputs that the case does not list: "grad_a, grad_b".
  std::string outputs_not_listed() const;

 private:
  struct Device {
    DType arithmetic;
    std::string accumulator = {};  ///< as parse_accumulator reads it
    std::optional<DType> intermediate = {};
    auto operator<=>(const Device&) const = default;
  };
  const std::vector<NamedTensor>& bounds(const Device&);
  Device device_of(DType result) const;
  const Tensor& baseline(const std::string& output, DType stored);
  std::vector<double> golden_errors(const std::string& output, const Tensor& golden);
  std::vector<double> allowed_errors(const std::string& output, const Tensor& golden, DType result,
                                     const Device&);
  bool is_within(const CaseOutput&, const TensorSource& actual, const Tensor& golden, const Device&,
                 int threads);
  void judge_policy(Finding&, const CaseOutput&, const TensorSource& actual, const Tensor& golden,
                    Expectation);
  void hint_at_device(Finding&, const CaseOutput&, const TensorSource& actual, const Tensor& golden,
                      const Expectation&);
  void distrust_extremes(Finding&) const;

  const Case& case_;
  const CheckOptions& options_;
  std::vector<InputShape> shapes_;
  std::vector<NamedTensor> golden_;
  std::vector<NamedTensor> less_precise_;  // golden in float32 arithmetic, for baselines
  std::map<std::pair<std::string, DType>, Tensor> baselines_;
  std::map<Device, std::vector<NamedTensor>> bounds_;
  std::string extremes_;  // which inputs lie outside of the operator's domain; "" if none
};

}  // namespace assay
