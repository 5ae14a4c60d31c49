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
  /// Of two or three values of its size, each of which counts; or of one and another that is repeated.
  std::optional<Relation> of_terms(const LogicalTensor&, const SideTensor&) const;

 private:
  struct Term {
    std::size_t candidate;
    std::shared_ptr<const SideTensor> value;
  };
  using Terms = std::vector<Term>;
  Terms nearest(const LogicalTensor&, const std::function<bool(const LogicalTensor&)>& fits) const;
  std::optional<Relation> sum(const SideTensor& total, const Terms&) const;
  static bool add_up(const SideTensor& total, const Terms&);

  const SideValues& side_;
  const EarlierValues& candidates_;
};

}  // namespace assay
