// The gradient of experts' weights whose fp8 blocks nobody recorded: an expert has tokens of several
// micro-batches in one call, in an order that no dump says.
#include <algorithm>
#include <cmath>
#include <functional>

#include "assay/compare/calls/call.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/accumulator.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Values = std::vector<double>;

// A code is off by the unit roundoff of its format, or by half of its smallest number in units of a scale
// that is the largest magnitude of the block over the largest code.
Tensor code_errors(const Tensor& t) {
  const double u = unit_roundoff(DType::float8_e4m3fn);
  const double least = min_subnormal(DType::float8_e4m3fn) / 2 / max_finite(DType::float8_e4m3fn);
  Values values = t.values();
  double largest = 0;
  for (double& v : values) {
    v = std::abs(v);
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  for (double& v : values) v = u * v + least * largest;
  return Tensor::from_values(DType::float64, t.shape(), values);
}

Tensor mapped(const Tensor& t, const std::function<double(double)>& f) {
  Values values = t.values();
  for (double& v : values) v = f(v);
  return Tensor::from_values(DType::float64, t.shape(), values);
}

double square(double x) {
  return x * x;
}

double absolute(double x) {
  return std::abs(x);
}

// Of one call and its result G: by how much the codes of x and grad_y may move it.
struct CodeNoise {
  Values largest;    // each element, if all errors add up
  Values squares;    // each element: sum of the squares of the errors
  double whole = 0;  // <error, G>: sum of the squares
};

class NoiseOf {
 public:
  NoiseOf(const Operator& op, std::vector<NamedTensor> inputs, const Attributes& attributes)
      : op_(op), inputs_(std::move(inputs)), attributes_(attributes), x_(input("x")), g_(input("grad_y")) {}

  CodeNoise along(const Tensor& whole) const {
    const Tensor dx = code_errors(x_), dg = code_errors(g_), x = mapped(x_, absolute),
                 g = mapped(g_, absolute);
    CodeNoise noise;
    noise.largest = product(dx, g);
    add(noise.largest, product(x, dg));
    add(noise.largest, product(dx, dg));
    noise.squares = product(mapped(dx, square), mapped(g_, square));
    add(noise.squares, product(mapped(x_, square), mapped(dg, square)));
    // <dx^T g, G> = <dx, g G^T>, and <x^T dg, G> = <dg, x G>.
    for (const auto& [error, by] :
         {std::pair(dx, result("grad_x", x_, whole, g_)), {dg, result("y", x_, whole, g_)}}) {
      const Values e = error.values();
      for (std::size_t i = 0; i < e.size(); ++i) noise.whole += square(e[i] * by.at(i));
    }
    return noise;
  }

 private:
  Tensor input(const char* name) const {
    const Tensor* t = find_tensor(inputs_, name);
    if (t == nullptr) throw Error("{}: {} was not recorded", op_.name, name);
    return *t;
  }
  Values product(const Tensor& x, const Tensor& g) const { return result("grad_w", x, {}, g); }
  Values result(const char* output, const Tensor& x, const std::optional<Tensor>& w, const Tensor& g) const {
    std::vector<NamedTensor> inputs = inputs_;
    for (NamedTensor& input : inputs) {
      if (input.name == "x") input.tensor = x;
      if (input.name == "grad_y") input.tensor = g;
    }
    if (w) {
      std::erase_if(inputs, [](const NamedTensor& input) { return input.name == "w"; });
      inputs.push_back({"w", *w});
    }
    return output_named(compute_golden(op_, inputs, attributes_, Level::fp64, output), output).values();
  }
  static void add(Values& to, const Values& more) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += more.at(i);
  }

  const Operator& op_;
  std::vector<NamedTensor> inputs_;
  const Attributes& attributes_;
  Tensor x_, g_;
};

}  // namespace

// The errors of codes have either sign equally often. In a row of the result from n tokens they are at most
// sqrt(2 n S) together, with S the sum of the squares of the largest errors of the elements, and sqrt(S / 3)
// on average if tokens are independent. The bound 2 sqrt(S) is 3.5 times that, and the largest error that
// three tokens can make. Equal tokens have equal errors, but these are a share of 2 u of the row itself. The
// error as a whole exceeds `improbable` roots of the squares once in 4e13 tensors (Hoeffding's inequality).
std::optional<Call::Compared> Call::compare_in_any_blocks(const CallVariant& variant) const {
  const bool has_ranks = std::ranges::any_of(summands_, [](const Summand& c) { return !c.cuts.empty(); });
  if (!variant.fp8 || !has_ranks || summands_.size() < 2 || op().rows != Rows::routed ||
      summands_.front().output != "grad_w")
    return std::nullopt;
  const Arithmetic how = {.tokens = TokenBlocks::unknown};
  std::optional<Compared> found = compare(variant, how);
  if (!found || !std::isfinite(found->ratio)) return found;
  const Values rounding = found->allowed, actual = found->actual.values(), golden = found->golden.values();
  Values squares(golden.size(), 0);
  double noise = 0, excess = 0, whole = 0, rounded = 0;
  for (const Summand& summand : summands_) {
    const CodeNoise of_call =
        NoiseOf(*summand.op, inputs_of(summand, variant, how), attributes_of(summand, variant))
            .along(found->golden);
    for (std::size_t i = 0; i < golden.size(); ++i) {
      found->allowed[i] += of_call.largest.at(i);
      squares[i] += of_call.squares.at(i);
    }
    noise += of_call.whole;
  }
  const Metrics m = measure(found->actual, found->golden, {0, 0, found->allowed});
  found->ratio = m.worst_ratio;
  found->worst_at = worst_element(m);
  const double u = unit_roundoff(DType::float8_e4m3fn);
  const auto width = static_cast<std::size_t>(found->golden.shape().back());
  for (std::size_t begin = 0; begin < golden.size(); begin += width) {
    double error = 0, random = 0, alike = 0, roundings = 0;
    for (std::size_t i = begin; i < begin + width; ++i) {
      error += square(actual[i] - golden[i]);
      random += squares[i];
      alike += square(golden[i]);
      roundings += square(rounding[i]);
      excess += (actual[i] - golden[i]) * golden[i];
      rounded += rounding[i] * std::abs(golden[i]);
    }
    whole += alike;
    const double allowed = std::sqrt(4 * random + square(2 * u) * alike) + std::sqrt(roundings);
    if (error > 0 && std::sqrt(error) / allowed > found->ratio) {
      found->ratio = std::sqrt(error) / allowed;
      found->worst_at = static_cast<std::int64_t>(begin);
    }
  }
  found->in_any_blocks = true;
  found->scale.reset();
  if (whole > 0) found->scale = {excess / whole, (improbable * std::sqrt(noise) + rounded) / whole};
  return found;
}

}  // namespace assay
