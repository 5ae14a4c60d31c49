// Sums of values, with what their roundings may make.
#include <algorithm>
#include <cmath>

#include "assay/compare/flow/relation.h"

namespace assay {

std::optional<DerivedValue> sum_of(std::vector<DerivedValue> terms) {
  if (terms.empty()) return {};
  if (terms.size() == 1) return std::move(terms.front());
  DerivedValue sum;
  const std::size_t size = terms.front().values.size();
  sum.values.resize(size, 0);
  sum.magnitude.resize(size, 0);
  sum.error.resize(size, 0);
  sum.terms = 0;
  sum.is_added_up = std::ranges::all_of(terms, &DerivedValue::is_added_up);
  for (const DerivedValue& t : terms) {
    if (t.values.size() != size) return {};
    sum.terms += t.terms;
    sum.roundoff = std::max(sum.roundoff, t.roundoff);
  }
  for (const DerivedValue& t : terms) {
    for (std::size_t i = 0; i < size; ++i) {
      sum.values[i] += t.values[i];
      sum.magnitude[i] += t.size(i);
      // A term that was computed is stored before it is added.
      sum.error[i] += t.of(i) + (t.is_exact ? 0 : sum.roundoff * t.size(i));
    }
  }
  // All additions but the last are stored in between; that of the last is the target's own.
  const auto additions = static_cast<double>(terms.size() - 2);
  const double arithmetic = static_cast<double>(terms.size()) * unit_roundoff(DType::float32);
  for (std::size_t i = 0; i < size; ++i)
    sum.error[i] += (additions * sum.roundoff + std::min(arithmetic, sum.roundoff)) * sum.magnitude[i];
  return sum;
}

// The factor may be a float32, and what was computed was stored before.
DerivedValue times(DerivedValue e, double factor) {
  if (factor == 1) return e;
  e.error.resize(e.values.size(), 0);
  for (std::size_t i = 0; i < e.values.size(); ++i) {
    const double stored = e.is_exact ? 0 : e.roundoff * e.size(i);
    e.error[i] = std::abs(factor) * (e.error[i] + stored + 2 * unit_roundoff(DType::float32) * e.size(i));
  }
  for (double& v : e.values) v *= factor;
  for (double& m : e.magnitude) m *= std::abs(factor);
  e.is_exact = e.is_added_up = false;
  return e;
}

std::optional<std::vector<DerivedValue>> terms_of(const Relation& sum, std::size_t size,
                                                  const ReadSource& read) {
  std::vector<DerivedValue> terms;
  for (std::size_t s = 0; s < sum.sources.size(); ++s) {
    const auto source = read(sum.sources[s]);
    auto term = source == nullptr ? std::nullopt : repeated(as_expected(*source), size);
    if (!term) return {};
    terms.push_back(times(std::move(*term), sum.factor(s)));
  }
  return terms;
}

std::optional<DerivedValue> repeated(DerivedValue e, std::size_t size) {
  const std::size_t own = e.values.size();
  if (own == size) return e;
  if (own == 0 || size % own != 0) return {};
  for (std::vector<double>* part : {&e.values, &e.magnitude, &e.error}) {
    if (part->empty()) continue;
    part->resize(size);
    for (std::size_t i = own; i < size; ++i) (*part)[i] = (*part)[i - own];
  }
  return e;
}

std::optional<DerivedValue> sum_of_repeated(const DerivedValue& of, std::size_t size) {
  if (of.values.size() == size) return of;
  if (size == 0 || of.values.size() < size || of.values.size() % size != 0) return {};
  const double additions = static_cast<double>(of.values.size() / size) - 1;
  DerivedValue e;
  e.roundoff = of.roundoff;
  e.terms = of.terms * (additions + 1);
  e.is_added_up = of.is_added_up;
  for (std::vector<double>* part : {&e.values, &e.magnitude, &e.error}) part->resize(size, 0);
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    e.values[i % size] += of.values[i];
    e.magnitude[i % size] += of.size(i);
    e.error[i % size] += of.of(i);
  }
  for (std::size_t i = 0; i < size; ++i) e.error[i] += additions * e.roundoff * e.magnitude[i];
  return e;
}

}  // namespace assay
