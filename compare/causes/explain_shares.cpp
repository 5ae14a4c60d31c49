#include "assay/compare/causes/explain_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "assay/compare/calls/weighted_columns.h"
#include "assay/compare/causes/values/addends_by_place.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// A sum that ranks add up in a narrower dtype: each addend is stored in it, and each sum of some.
void explain_narrow_sum(const FailingPair& failing, const std::vector<std::vector<double>>& addends,
                        std::vector<Diagnosis>& found) {
  const std::vector<double> actual = failing.actual.whole().values();
  const std::vector<double> reference = failing.reference.whole().values();
  const auto size = static_cast<double>(actual.size());
  const auto numbers = static_cast<double>(std::ranges::count_if(actual, [](double a) { return a != 0; }));
  for (const DType d : {DType::bfloat16, DType::float16}) {
    const int missing = format_of(failing.actual.dtype()).precision() - format_of(d).precision();
    const bool is_narrow =
        missing > 0 && std::ranges::all_of(actual, [&](double a) { return round_to(d, a) == a; });
    if (!is_narrow || !proves(numbers * missing, 1)) continue;
    const double stored = unit_roundoff(d) * static_cast<double>(addends.size() + 1);
    const Fit fit = verify(failing, [&](const ElementWindow& w) {
      for (std::size_t i = 0; i < w.expected.size(); ++i) {
        double sum = 0;
        for (const std::vector<double>& addend : addends)
          sum += std::abs(addend[static_cast<std::size_t>(w.begin) + i]);
        w.expected[i] = w.reference[i];
        w.bound[i] += stored * sum + min_subnormal(d);
      }
    });
    if (!(fit.residual <= 1)) continue;
    double exact = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) exact += round_to(d, reference[i]) == actual[i] ? 1 : 0;
    found.push_back({Cause::precision,
                     {.dtype = d,
                      .actual_dtype = failing.actual.dtype(),
                      .reference_dtype = failing.actual.dtype(),
                      .rounding = Rounding::nearest_even,
                      .flushes = false,
                      .share = exact / size,
                      .how = "ranks added it up in that dtype"},
                     fit.residual});
    return;
  }
}

}  // namespace

void explain_shares(const Dump& actual, const LogicalTensor& sum, const FailingPair& failing,
                    std::vector<Diagnosis>& found) {
  constexpr std::size_t most = 64;
  constexpr std::int64_t most_elements = 1 << 24;
  if (sum.shape != failing.actual.shape() || failing.actual.size() > most_elements || !failing.finite) return;
  const std::vector<Addend> addends =
      addends_by_place(actual, sum, [&](const Dump& one) { return merge(one, sum).tensor.whole().values(); });
  if (addends.size() < 2 || addends.size() > most ||
      !proves(evidence(failing), static_cast<double>(addends.size()) * bits_of_a_number))
    return;
  std::vector<std::vector<double>> columns;
  std::map<std::int64_t, std::size_t> of_micro_batch;
  std::size_t held = 0;
  for (const Addend& addend : addends) {
    for (const std::int64_t m : addend.micro_batches) of_micro_batch[m] = columns.size();
    held += addend.micro_batches.size();
    columns.push_back(addend.values);
  }
  // The sum may have become an average.
  const auto of_right = weights_of({weighted_sum(columns, std::vector<double>(columns.size(), 1))},
                                   failing.reference.whole().values());
  if (!of_right) return;
  for (std::vector<double>& column : columns) {
    for (double& x : column) x *= of_right->front();
  }
  explain_narrow_sum(failing, columns, found);
  const auto fitted = weights_of(columns, failing.actual.whole().values());
  // Ranks that share a micro-batch hold pieces of it: which are not told by its number.
  if (!fitted || held != of_micro_batch.size()) return;
  const auto weights = counts_of(*fitted, uncertainty_of_weights(unit_roundoff(sum.dtype)));
  if (!weights) return;
  const std::vector<double> values = weighted_sum(columns, *weights);
  double room = 1;
  for (const double w : *weights) room = std::max(room, std::abs(w));
  const Fit fit = verify(failing, [&](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      w.expected[i] = values[static_cast<std::size_t>(w.begin) + i];
      w.bound[i] *= room;
    }
  });
  if (!(fit.residual <= 1)) return;
  CauseParameters p;
  for (const auto& [micro_batch, addend] : of_micro_batch) {
    p.micro_batches.push_back(micro_batch);
    p.counts.push_back((*weights)[addend]);
  }
  found.push_back({Cause::weights, std::move(p), fit.residual});
}

}  // namespace assay
