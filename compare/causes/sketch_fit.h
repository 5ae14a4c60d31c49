#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/sketched_pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// A failing pair of which only sketches are known. What is linear in tensors is so in sketches: a cause is
/// tested by what it leaves of the difference.
class SketchFit {
 public:
  SketchFit(const Finding&, const SketchedPair&);

  const std::vector<double>& actual() const { return actual_.values; }
  const std::vector<double>& reference() const { return reference_.values; }
  const Sketch& sketch() const { return reference_; }
  std::vector<double> difference() const;
  /// Whether so many numbers may be fitted: a tensor needs 8 elements, and a sketch 8 values, for each.
  bool has_room_for(std::size_t terms) const;

  /// Largest norm of what is left / allowed, if `expected` explains the actual tensor: what is left is within
  /// the rule, on the tensor's own scale, with 99.9 %, and so much less than the difference that it proves
  /// `parameters` bits (golden/evidence.h). A random difference shrinks by r with probability r^nu, of nu
  /// degrees of freedom.
  /// @param scale  by which the allowed error grows: a factor
  std::optional<double> explained(const std::vector<double>& expected, double parameters,
                                  double scale = 1) const;
  /// The same for another difference: what is left of `before`.
  std::optional<double> explained(const std::vector<double>& left, const std::vector<double>& before,
                                  double parameters, double scale = 1) const;
  /// Whether an explanation that leaves `residual` is refuted by one that leaves `least`: it is less probable
  /// by as many bits as prove something, rounding aside.
  bool is_refuted(double residual, double least) const;
  /// The factor of `term` in `wanted`, in as few digits as fit.
  struct Factor {
    double value = 0;
    double residual = 0;
  };
  /// @param fits  what explained() says of the term times a factor
  std::optional<Factor> factor(const std::vector<double>& wanted, const std::vector<double>& term,
                               const std::function<std::optional<double>(double)>& fits) const;

  /// Where the error lies, if blocks of rows or columns are right: "rows 512 to 1,023 of 2,048".
  std::string where() const;

 private:
  double norm(const std::vector<double>&) const;
  double size() const;  ///< of the larger side

  Sketch actual_, reference_;
  double allowed_ = 0;
  double rtol_ = 0, stored_ = 0;
};

}  // namespace assay
