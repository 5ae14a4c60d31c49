#pragma once

#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/golden/tensor_source.h"
#include "assay/operators/engine/golden.h"

/// A GoogleTest matcher for unit tests of kernels; this header needs no GoogleTest itself.
///
///   #include "assay/golden/xtensor.h"
///
///   xt::xarray<float> x = .., weight = .., y = my_kernel(x, weight);
///   const std::vector<assay::NamedTensor> inputs = {{"x", x}, {"weight", weight}};
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
  /// How the device adds: "hopper", "bfloat16,tree" (parse_accumulator), or a .json file of `assay order`.
  MatchesGolden accumulator(std::string) const;

  bool MatchAndExplain(const TensorSource& actual, std::ostream* explanation) const;
  /// An array of another library in any layout, read in place: with golden/xtensor.h xtensor's.
  template <Array E>
  bool MatchAndExplain(const E& actual, std::ostream* explanation) const {
    return MatchAndExplain(TensorSource(actual), explanation);
  }
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
