#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/case.h"
#include "assay/compare/calls/check_options.h"
#include "assay/compare/calls/row_check.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// The gate for one case: its golden values, computed once, and how an output is judged by them.
class CaseCheck {
 public:
  /// Both must outlive this. Throws Error as compute_golden does, when it is made or when it judges.
  CaseCheck(const Case&, const CheckOptions&);
  CaseCheck(const Case&, const CheckOptions&&) = delete;

  /// Judges one output; fills everything of the finding but its names.
  /// @param map_errors  as Expectation has it
  /// @throws Error  if the operator makes no such output from these inputs
  void judge_output(Finding&, const CaseOutput&, const Merged& actual, bool map_errors = false);
  /// The same of an output of which within_rows has told that.
  void judge_output(Finding&, const CaseOutput&, const TensorSource& actual, const WithinRows&) const;

  /// Of a failure that is within the bound of another device, right for what the kernel may run on: a note
  /// that says so. One device keeps results between steps in the dtype of the output, others add otherwise.
  /// Returns whether there is one.
  bool hint_at_intermediate(Finding&, const CaseOutput&, const TensorSource& actual);
  bool hint_at_accumulator(Finding&, const CaseOutput&, const TensorSource& actual);
  /// By what an output of which each element is within its bound is off as a whole: a factor, or an
  /// attribute.
  std::optional<ScaleError> off_as_a_whole(const CaseOutput&, const TensorSource& actual);
  /// As call(), in the rows that a hypothesis is tried on.
  Call some_rows(const Finding&, const CaseOutput&, const TensorSource& actual);

  const Case& subject() const { return case_; }
  /// The attributes of the case, as a variant of the operator's calls.
  CallVariant variant() const;
  /// This output as the result of the case's call, on the device that the options state.
  const Call& call(const CaseOutput&, const TensorSource& actual);
  /// What a kernel has that adds as the options state, where they decide every bit of the output.
  std::optional<Tensor> in_stated_order(const CaseOutput&, DType stored) const;
  /// Names the golden outputs that the case does not list: "grad_a, grad_b".
  std::string outputs_not_listed();

 private:
  Call& call_on(const Device&, const std::string& output, const Tensor& actual);
  Device device_of(const CaseOutput&, DType result) const;
  bool may_be_rounding(const Finding&, const CaseOutput&, const TensorSource& actual) const;
  Call rows_on(const Device&, const Finding&, const CaseOutput&, const TensorSource& actual);
  const std::vector<NamedTensor>& golden();
  Expectation expectation_of(Finding&, const CaseOutput&, DType actual) const;
  std::string bound_source(const Device&, DType stored) const;
  std::optional<Accumulator> decides_bits(const CaseOutput&, DType stored) const;
  void note_other_order(Finding&, const CaseOutput&, const TensorSource& actual);
  const Tensor& baseline(const std::string& output, DType stored);
  const std::vector<double>& golden_errors(const std::string& output, const Tensor& golden);
  std::vector<double> allowed_errors(const std::string& output, const Tensor& golden, const Tensor& actual,
                                     const Device&);
  bool is_within(const CaseOutput&, const TensorSource& actual, const Device&);
  void judge_policy(Finding&, const CaseOutput&, const TensorSource& actual, const Tensor& golden,
                    Expectation);
  void judge_whole(Finding&, const CaseOutput&, const TensorSource& actual);
  void judge_ties(Finding&, const CaseOutput&, const TensorSource& actual) const;
  void distrust_extremes(Finding&) const;

  const Case& case_;
  const CheckOptions& options_;
  std::vector<InputShape> shapes_;
  std::vector<NamedTensor> golden_;        // once it is asked for
  std::vector<NamedTensor> less_precise_;  // golden in float32 arithmetic, for baselines
  std::map<std::pair<std::string, DType>, Tensor> baselines_;
  std::map<std::pair<std::string, Device>, Call> calls_;
  std::map<Device, std::vector<NamedTensor>> bounds_;
  std::map<std::string, std::vector<double>> golden_errors_;
  std::string extremes_;  // which inputs lie outside of the operator's domain; "" if none
};

}  // namespace assay
