#pragma once

#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/operators/engine/golden.h"

/// A GoogleTest matcher for unit tests of kernels; this header needs no GoogleTest itself.
///
///   const std::vector<assay::NamedTensor> inputs = {{"x", {{6, 33}, x}}, {"weight", {{33}, weight}}};
///   EXPECT_THAT(y, assay::MatchesGolden("rms_norm", inputs, {{"eps", 1e-5}}));
///   EXPECT_THAT(grad_x, assay::MatchesGolden("rms_norm", inputs, {{"eps", 1e-5}}).output("grad_x"));
namespace assay {

/// Matches what `assay check` passes: an output of the operator for these inputs, each element within the
/// error that a correct kernel may have made. The message of a failure is the report.
class MatchesGolden {
 public:
  using is_gtest_matcher = void;

  /// @throws Error  for an unknown operator, attributes it does not have, inputs that do not fit: in the
  /// test,
  ///                where the matcher is made or used
  MatchesGolden(std::string op, std::vector<NamedTensor> inputs, Attributes = {});

  /// Which output is matched; the operator's first by default.
  MatchesGolden output(std::string name) const;
  /// "derived" by default; "telechat3", "bitwise", .. or a .toml file.
  MatchesGolden tolerance(std::string policy) const;
  /// How the device adds: "hopper", "bfloat16,tree" (parse_accumulator).
  MatchesGolden accumulator(std::string) const;

  bool MatchAndExplain(const Tensor& actual, std::ostream* explanation) const;
  /// Elements in C order, of the output's shape; indices are matched as a Tensor.
  bool MatchAndExplain(std::span<const float> actual, std::ostream* explanation) const;
  bool MatchAndExplain(std::span<const double> actual, std::ostream* explanation) const;
  void DescribeTo(std::ostream*) const;
  void DescribeNegationTo(std::ostream*) const;

 private:
  template <class T>
  bool match_elements(DType, std::span<const T>, std::ostream*) const;

  const Operator* op_;
  std::vector<NamedTensor> inputs_;
  Attributes attributes_;
  std::string output_, policy_ = "derived", accumulator_;
};

}  // namespace assay
