#include "assay/compare/calls/gradient_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace assay {
namespace {

// A dump's tensors without their signs: a sum over ranks becomes that of magnitudes.
class Magnitudes : public Dump {
 public:
  explicit Magnitudes(const Dump& of) : of_(of) {
    path = of.path;
    world_size = of.world_size;
    mesh = of.mesh;
    records = of.records;
  }
  Tensor read(std::size_t index) const override {
    const Tensor t = of_.read(index);
    std::vector<double> values = t.values();
    for (double& v : values) v = std::abs(v);
    return Tensor::from_values(t.dtype(), t.shape(), values);
  }
  std::string location(std::size_t index) const override { return of_.location(index); }

 private:
  const Dump& of_;
};

struct Sum {
  std::vector<double> value, magnitude;
  double terms = 0;
  double roundoff = 0;  // of the coarsest term

  // n terms, each rounded once, and each of n - 1 additions: docs/semantics.md E,
  // |delta| <= (n_extra + n_wire) u sum |terms|; another for the store of the result itself.
  double rounding(const Tensor& total) const {
    return 2 * terms * std::max(roundoff, unit_roundoff(total.dtype()));
  }
};

void add(Sum& sum, const Tensor& value, const Tensor& magnitude, double terms) {
  const auto size = static_cast<std::size_t>(value.size());
  sum.value.resize(size);
  sum.magnitude.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    sum.value[i] += value.value(static_cast<std::int64_t>(i));
    sum.magnitude[i] += std::abs(magnitude.value(static_cast<std::int64_t>(i)));
  }
  sum.terms += terms;
  sum.roundoff = std::max(sum.roundoff, unit_roundoff(value.dtype()));
}

// NaN in both and equal infinities are right.
double error(const Sum& sum, const Tensor& total, std::size_t i) {
  const double actual = total.value(static_cast<std::int64_t>(i)), right = sum.value[i];
  return actual == right || (std::isnan(actual) && std::isnan(right)) ? 0 : std::abs(actual - right);
}

std::int64_t outside(const Sum& sum, const Tensor& total) {
  const double rounding = sum.rounding(total);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < sum.value.size(); ++i) {
    const double e = error(sum, total, i);
    count += e == 0 || e <= rounding * sum.magnitude[i] ? 0 : 1;
  }
  return count;
}

// A term of several ranks may itself be a sum of rounded parts with unrecorded sizes. Unless nearly
// everything cancels, a row of parts is no more than `parts` times as large as its sum, and none of its
// elements is larger than the largest term. A value handed back by a rank has up to R parts. A share of a
// gradient has two (that of an embedding which the output shares with the first stage), and the bound of the
// sum contains this 2 already.
bool is_outside_by_rows(const Sum& sum, const Tensor& total, int parts) {
  if (total.shape().size() < 2) return outside(sum, total) > 0;
  const double rounding = parts * sum.rounding(total);
  const auto width = static_cast<std::size_t>(total.shape().back());
  for (std::size_t begin = 0; begin < sum.value.size(); begin += width) {
    double square = 0, errors = 0, largest = 0, worst = 0;
    for (std::size_t i = begin; i < begin + width; ++i) {
      const double e = error(sum, total, i), m = sum.magnitude[i];
      if (!std::isfinite(e)) return true;
      worst = std::max(worst, e);
      errors += e * e;
      if (!std::isfinite(m)) continue;
      largest = std::max(largest, m);
      square += m * m;
    }
    if (worst > rounding * largest || std::sqrt(errors) > rounding * std::sqrt(square)) return true;
  }
  return false;
}

Tensor read(const Dump& dump, const LogicalTensor& t) {
  return merge(dump, t).tensor.whole();
}

// The number of addends of each element. Shards of one addend are no further terms.
double addends(const Dump& dump, const LogicalTensor& t) {
  const Record& first = dump.records[t.records.front()];
  double count = 1;
  for (std::size_t d = 0; d < first.placements.size() && d < dump.mesh.shape.size(); ++d) {
    if (first.placements[d].kind == Placement::Kind::partial)
      count *= static_cast<double>(dump.mesh.shape[d]);
  }
  return count;
}

// The shares of a parameter's gradient, before they were added up over ranks.
std::optional<Sum> shares(const Dump& dump, const LogicalTensor* unreduced) {
  if (unreduced == nullptr) return std::nullopt;
  Sum sum;
  add(sum, read(dump, *unreduced), read(Magnitudes(dump), *unreduced), addends(dump, *unreduced));
  return sum;
}

// The gradients that the uses of a value handed back.
using Terms = std::vector<const LogicalTensor*>;
std::optional<Sum> handed_back(const Dump& dump, const Terms& terms, std::int64_t size) {
  Sum sum;
  for (const LogicalTensor* t : terms) {
    if (t == nullptr || element_count(t->shape) != size) return std::nullopt;
    const Tensor value = read(dump, *t);
    add(sum, value, value, 1);
  }
  return terms.empty() ? std::nullopt : std::optional(sum);
}

std::optional<std::string> verdict(const Dump& dump, const std::optional<Sum>& sum, const LogicalTensor& of,
                                   const std::string& what) {
  if (!sum) return std::nullopt;
  const Tensor total = read(dump, of);
  if (static_cast<std::size_t>(total.size()) != sum->value.size()) return std::nullopt;
  const std::int64_t count = outside(*sum, total);
  if (count == 0) return std::nullopt;
  const int parts = of.id.slot == "grad_output" ? dump.world_size : 1;
  if (dump.world_size > 1 && !is_outside_by_rows(*sum, total, parts)) return std::nullopt;
  return fmt::format("{} of {} elements are not the sum of {}, as they are in the reference", count,
                     total.size(), what);
}

}  // namespace

std::optional<std::string> broken_sum(const Sides& sides, const Wires& wires, const LogicalTensor& reference,
                                      const LogicalTensor& actual) {
  const Identity& id = reference.id;
  if (id.slot == "grad" && !id.arg.ends_with(".unreduced")) {
    Identity unreduced = id;
    unreduced.arg += ".unreduced";
    const std::string what = to_string(unreduced) + ", its shares";
    const auto right = shares(sides.reference, wires.reference(unreduced));
    if (!right || verdict(sides.reference, right, reference, what)) return std::nullopt;
    return verdict(sides.actual, shares(sides.actual, wires.actual(unreduced)), actual, what);
  }
  if (id.slot != "grad_output") return std::nullopt;
  Identity made = id;
  made.phase = Phase::forward;
  made.slot = "output";
  const LogicalTensor* output = wires.reference(made);
  if (output == nullptr) return std::nullopt;
  Terms in_reference, in_actual;
  std::string names;
  for (const LogicalTensor* use : wires.uses_of(*output)) {
    Identity back = use->id;
    back.phase = Phase::backward;
    back.slot = "grad_input";
    in_reference.push_back(wires.reference(back));
    in_actual.push_back(wires.actual(back));
    names += (names.empty() ? "" : ", ") + to_string(back);
  }
  // One alone is no sum: what it gave is compared bit by bit.
  if (in_reference.size() < 2) return std::nullopt;
  const std::int64_t size = element_count(reference.shape);
  const auto right = handed_back(sides.reference, in_reference, size);
  if (!right || verdict(sides.reference, right, reference, names)) return std::nullopt;
  return verdict(sides.actual, handed_back(sides.actual, in_actual, size), actual, names);
}

}  // namespace assay
