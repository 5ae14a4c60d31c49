#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/relation.h"

namespace assay {

/// Finds values that are sums of earlier ones: residuals, positions that are added to the tokens of all
/// sequences.
class SumsOfTerms {
 public:
  /// Of the nearest values: 12 choose 3 sums of three.
  static constexpr std::size_t most_terms = 12;

  SumsOfTerms(const SideValues& side, const EarlierValues& candidates)
      : side_(side), candidates_(candidates) {}
  /// Of two or three values of its size, each of which counts; of one or two and another that is repeated; of
  /// one or two with factors, as models have that scale their embeddings and their layers.
  std::optional<Relation> of_terms(const LogicalTensor&, const SideTensor&) const;

 private:
  struct Term {
    std::size_t candidate;
    std::shared_ptr<const SideTensor> value;
  };
  using Terms = std::vector<Term>;
  Terms nearest(const LogicalTensor&, const std::function<bool(const Shape&)>& fits) const;
  std::optional<Relation> sum(const SideTensor& total, const Terms&, std::vector<double> factors = {}) const;
  static bool add_up(const SideTensor& total, const Terms&, const std::vector<double>& factors);
  static std::optional<std::vector<double>> factors_of(const SideTensor& total, const Terms&);

  const SideValues& side_;
  const EarlierValues& candidates_;
};

}  // namespace assay
