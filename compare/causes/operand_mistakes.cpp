#include "assay/compare/causes/operand_mistakes.h"

#include <fmt/format.h>

#include <cmath>

#include "assay/golden/evidence.h"

namespace assay {
namespace {

Tensor like(const Tensor& t, const std::vector<double>& values) {
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// Slice j of a dimension, which has `inner` elements behind it, is slice j - by of the tensor.
Tensor rolled(const Tensor& t, std::int64_t n, std::int64_t inner, std::int64_t by) {
  const std::vector<double> x = t.values();
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i), j = at / inner % n;
    y[i] = x[static_cast<std::size_t>(at + ((j - by + n) % n - j) * inner)];
  }
  return like(t, y);
}

// The memory of the transpose, read as if it were the matrix.
Tensor in_order_of_transpose(const Tensor& t) {
  const std::vector<double> x = t.values();
  const auto rows = static_cast<std::size_t>(t.shape()[0]), columns = static_cast<std::size_t>(t.shape()[1]);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i % rows * columns + i / rows];
  return like(t, y);
}

// What a program does wrong to one operand.
class Mistaken {
 public:
  Mistaken(const NamedTensor& operand, std::vector<OtherOperands>& all) : operand_(operand), all_(all) {}

  void add() {
    narrowed();
    for (std::size_t d = 0; d < shape().size(); ++d) rolled_along(d);
    if (shape().size() == 2 && shape()[0] > 1 && shape()[1] > 1)
      add(in_order_of_transpose(operand_.tensor), Cause::transposed,
          {.how = "its elements are in the order of the transpose"});
  }

 private:
  const Shape& shape() const { return operand_.tensor.shape(); }

  void add(Tensor t, Cause cause, CauseParameters which) {
    which.operand = operand_.name;
    all_.push_back({{{operand_.name, std::move(t)}}, cause, std::move(which)});
  }

  void narrowed() {
    const std::vector<double> x = operand_.tensor.values();
    for (const DType d : {DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2}) {
      std::vector<double> narrow = x;
      for (double& v : narrow) v = round_to(d, v, Rounding::nearest_even);
      if (narrow != x)
        add(like(operand_.tensor, narrow), Cause::input_precision,
            {.dtype = d, .how = fmt::format("of {} rounded to {}", operand_.name, name(d))});
    }
  }

  void rolled_along(std::size_t d) {
    const std::int64_t n = shape()[d];
    std::int64_t inner = 1;
    for (std::size_t k = d + 1; k < shape().size(); ++k) inner *= shape()[k];
    if (n < 2 || operand_.tensor.size() == 0) return;
    const std::string along = fmt::format("slices of dim {}", d);
    for (const std::int64_t by : {std::int64_t{1}, std::int64_t{-1}, n / 2}) {
      if (by == -1 && n == 2) continue;    // as by 1
      if (by == n / 2 && n < 4) continue;  // as by 1
      add(rolled(operand_.tensor, n, inner, by), Cause::permuted,
          {.along = along, .shift = by, .how = fmt::format("the {} are rolled by {}", along, by)});
    }
  }

  const NamedTensor& operand_;
  std::vector<OtherOperands>& all_;
};

}  // namespace

std::vector<Diagnosis> left_out(const Call& call, const Call::Compared& c) {
  if (!is_float(c.actual.dtype())) return {};
  // An element has another one's significand by accident once in 1 / u.
  const double bits_of_an_element = -std::log2(unit_roundoff(c.actual.dtype()));
  const std::vector<double> actual = c.actual.values(), golden = c.golden.values();
  for (const NamedTensor& operand : call.operands()) {
    if (!is_float(operand.tensor.dtype()) || operand.tensor.shape() != c.actual.shape()) continue;
    const std::vector<double> given = operand.tensor.values();
    std::int64_t wrong = 0;
    bool unchanged = true;
    for (std::size_t i = 0; i < actual.size() && unchanged; ++i) {
      if (std::abs(actual[i] - golden[i]) <= c.allowed[i]) continue;
      ++wrong;
      unchanged = actual[i] == given[i] && actual[i] != 0;
    }
    if (!unchanged || !proves(static_cast<double>(wrong) * bits_of_an_element, bits_of_a_number)) continue;
    CauseParameters which = {.op = std::string(call.op().name), .operand = operand.name};
    if (given != actual) {
      which.elements = wrong;
      which.of = c.actual.size();
    }
    return {{Cause::left_out, std::move(which), 0}};
  }
  return {};
}

std::vector<Diagnosis> operand_mistakes(CallJudge& judge, const Call& call, const CallVariant& right,
                                        const Call::Compared& c, const RecordedOperands& recorded) {
  if (!is_float(c.actual.dtype()) || call.is_sampled() || call.operands().empty()) return {};
  const auto first_of = [&](const std::vector<OtherOperands>& others) -> std::vector<Diagnosis> {
    for (const OtherOperands& other : others) {
      const auto fit = judge.fit(call.given(other.given), right);
      if (!fit || !proves(evidence(c, *fit), std::log2(static_cast<double>(others.size())))) continue;
      Diagnosis found{other.cause, other.which, fit->ratio};
      found.parameters.op = call.op().name;
      return {std::move(found)};
    }
    return {};
  };
  std::vector<OtherOperands> mistaken;
  for (const NamedTensor& operand : call.operands()) {
    if (is_float(operand.tensor.dtype())) Mistaken(operand, mistaken).add();
  }
  auto found = first_of(mistaken);
  if (!found.empty() || !recorded) return found;
  // A recorded operand that stands for another one, too, is given once (Op::infer).
  std::vector<OtherOperands> elsewhere = recorded();
  for (OtherOperands& other : elsewhere) {
    std::erase_if(other.given,
                  [&](const NamedTensor& t) { return find_tensor(call.operands(), t.name) == nullptr; });
  }
  std::erase_if(elsewhere, [](const OtherOperands& other) { return other.given.empty(); });
  return first_of(elsewhere);
}

}  // namespace assay
