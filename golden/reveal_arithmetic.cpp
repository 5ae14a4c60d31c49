// How partial sums are kept, and how products enter them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "assay/golden/bound.h"
#include "assay/golden/error.h"
#include "assay/golden/sum_questions.h"

namespace assay {
namespace {

using Products = RevealedOrder::Products;
using Operand = SumOrder::Operand;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Terms of an addition, by which it shows what it keeps: the last takes the first away again.
struct Probe {
  std::int64_t large = 0, small = 0, opposite = 0;
};

// Of each addition that has a term outside of it, or three operands.
std::vector<Probe> probes_of(const SumOrder& order) {
  std::vector<std::int64_t> term_of;  // of each operand one
  for (std::int64_t i = 0; i < order.terms(); ++i) term_of.push_back(i);
  for (const SumOrder::Addition& a : order.additions()) term_of.push_back(term_of[index(a[0])]);
  const auto term = [&](Operand operand) { return term_of[index(operand)]; };
  std::vector<Probe> probes;
  for (const SumOrder::Addition& a : order.additions()) {
    for (const Operand operand : a) {
      if (operand < order.terms()) continue;
      const SumOrder::Addition& inner = order.additions()[index(operand - order.terms())];
      probes.push_back({term(inner[0]), term(inner[1]), term(operand == a[0] ? a[1] : a[0])});
    }
  }
  const SumOrder::Addition& last = order.additions().back();
  if (last.size() > 2) probes.push_back({term(last[0]), term(last[1]), term(last[2])});
  return probes;
}

SumQuestion question(const SumQuestions& questions, const Probe& probe, int bits) {
  SumQuestion q = questions.zeros();
  questions.set(q, probe.large, questions.log2_of_unit() + bits);
  questions.set(q, probe.opposite, questions.log2_of_unit() + bits, -1);
  questions.set_unit(q, probe.small);
  return q;
}

// How far a term may lie below a partial sum and be kept: in the addition that keeps least. Returns the same
// of the first one.
int measure_accumulator(RevealedOrder& found, SumQuestions& questions) {
  constexpr int most_bits = 66;  // float64's, x87's and a few
  if (questions.terms() < 3) {
    found.accumulator = found.dtype == DType::float64 ? DType::float64 : DType::float32;
    return 0;
  }
  const std::vector<Probe> probes = probes_of(found.order);
  int first = 0, least = std::min(questions.bits_between(), most_bits) + 1;
  for (const Probe* probe = &probes.front(); probe != nullptr && least > 1;) {
    std::vector<SumQuestion> of_bits;
    for (int bits = 1; bits < least; ++bits) of_bits.push_back(question(questions, *probe, bits));
    const std::vector<double> kept = questions.ask(std::move(of_bits));
    const auto lost = [&](double v) { return v != questions.unit(); };
    least = static_cast<int>(std::ranges::find_if(kept, lost) - kept.begin()) + 1;
    if (first == 0) first = least;
    SumQuestions::Batch batch(questions);
    for (const Probe& other : probes) batch.add(question(questions, other, std::max(least - 1, 1)));
    const std::vector<double> of_all = std::move(batch).answers();
    const auto less = std::ranges::find_if(of_all, lost);
    probe = less == of_all.end() ? nullptr : &probes[static_cast<std::size_t>(less - of_all.begin())];
  }
  found.accumulator_bits = least;
  constexpr DType formats[] = {DType::float64,  DType::float32,       DType::float16,
                               DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2};
  for (const DType format : formats) {
    found.accumulator = format;
    if (format_of(format).precision() <= least) break;
  }
  return first;
}

// An FMA rounds no product but that which is there first.
std::optional<SumOrder> with_rounded_first(const SumOrder& order, const std::vector<bool>& is_fused) {
  std::vector<SumOrder::Addition> additions = order.additions();
  const auto is = [&](Operand operand, bool fused) {
    return operand < order.terms() && is_fused[index(operand)] == fused;
  };
  for (SumOrder::Addition& a : additions) {
    std::ranges::stable_partition(a, [&](Operand operand) { return is(operand, false); });
    if (is(a[1], false)) return {};
    if (!is(a[0], false))
      std::ranges::stable_partition(a, [&](Operand operand) { return !is(operand, true); });
    if (is(a[0], true)) return {};
  }
  return SumOrder(order.terms(), std::move(additions));
}

// (1 + 2^-e)^2 = 1 + 2^(1 - e) + 2^(-2 e) has a digit more than the accumulator: is it there when the others
// are taken away?
void find_products(RevealedOrder& found, SumQuestions& questions) {
  if (!questions.kernel().has_products) return;
  const int precision = format_of(found.dtype).precision(), bits = format_of(found.accumulator).precision();
  found.products = 2 * precision <= bits ? Products::exact : Products::unknown;
  const int e = bits / 2 + 1;
  if (found.products == Products::exact || questions.terms() < 2 || e >= precision) return;
  const double root = 1 + std::ldexp(1, -e), most = 1 + std::ldexp(1, 1 - e), rest = std::ldexp(1, -2 * e);
  std::vector<std::int64_t> term_of, asked;  // of each operand one
  for (std::int64_t i = 0; i < questions.terms(); ++i) term_of.push_back(i);
  SumQuestions::Batch batch(questions);
  for (const SumOrder::Addition& a : found.order.additions()) {
    for (const Operand operand : a) {
      if (operand >= questions.terms()) continue;
      SumQuestion q = questions.zeros();
      q.x[index(operand)] = q.y[index(operand)] = root;
      q.x[index(term_of[index(operand == a[0] ? a[1] : a[0])])] = -most;
      batch.add(std::move(q));
      asked.push_back(operand);
    }
    term_of.push_back(term_of[index(a[0])]);
  }
  const std::vector<double> answers = std::move(batch).answers();
  std::vector<bool> is_fused(index(questions.terms()), false);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] != 0 && answers[i] != rest) return;
    is_fused[index(asked[i])] = answers[i] == rest;
  }
  if (std::ranges::find(is_fused, true) == is_fused.end()) {
    found.products = Products::rounded;
  } else if (auto order = with_rounded_first(found.order, is_fused)) {
    found.products = Products::fused;
    found.order = std::move(*order);
  }
}

// Random terms of several magnitudes; in every second question half of them cancel the others, so that what
// is left are the roundings.
std::vector<SumQuestion> random_questions(const SumQuestions& questions) {
  constexpr int count = 8, magnitudes = 8;
  std::mt19937_64 random(1);
  const auto number = [&] {
    const double v = static_cast<double>(random() >> 11) * 0x1p-53;
    return round_to(questions.kernel().dtype,
                    std::ldexp(random() % 2 == 0 ? v : -v, -static_cast<int>(random() % magnitudes)));
  };
  std::vector<SumQuestion> all;
  for (int t = 0; t < count; ++t) {
    SumQuestion& q = all.emplace_back(questions.zeros());
    std::ranges::generate(q.x, number);
    std::ranges::generate(q.y, number);
    const std::size_t n = q.x.size(), half = t % 2 == 0 ? 0 : n / 2;
    for (std::size_t i = 0; i < half; ++i) {
      q.x[n - 1 - i] = -q.x[i];
      if (!q.y.empty()) q.y[n - 1 - i] = q.y[i];
    }
  }
  return all;
}

// By how many times the result is off by more than this order allows, and its store.
double excess(const RevealedOrder& found, std::span<const double> terms, double ieee, double actual) {
  const double u = unit_roundoff(found.accumulator), stored = unit_roundoff(found.result);
  std::vector<Bound> bounds;
  double entering = 0;
  for (const double term : terms) {
    bounds.emplace_back(term, found.products == Products::rounded ? u * std::abs(term) : 0);
    entering += u * std::abs(term);
  }
  const double allowed = 2 * (found.order.loss(bounds, u).guaranteed + entering);
  const double error = std::abs(actual - ieee);
  return std::isnan(error)
             ? infinity
             : error / (allowed + stored * (std::abs(ieee) + allowed) + min_subnormal(found.result));
}

void compare_with_ieee(RevealedOrder& found, SumQuestions& questions) {
  const std::vector<SumQuestion> asked = random_questions(questions);
  const std::vector<double> answers = questions.ask(asked), again = questions.ask(asked);
  found.result = questions.result();
  for (std::size_t t = 0; t < answers.size(); ++t) {
    if (answers[t] != again[t] && !std::isnan(answers[t]))
      throw Error("the kernel is not repeatable: of the same terms it made {:.17g}, then {:.17g}", answers[t],
                  again[t]);
  }
  if (found.products == Products::unknown) {
    found.note = "how products are rounded is not known";
    return;
  }
  if (questions.kernel().has_products && found.dtype == DType::float64 &&
      found.products != Products::rounded) {
    found.note = "products of float64 that are not rounded are not computed here";
    return;
  }
  double worst = 0;
  found.is_bitwise = true;
  for (std::size_t t = 0; t < asked.size(); ++t) {
    std::vector<double> terms = asked[t].x;
    for (std::size_t i = 0; i < asked[t].y.size(); ++i) terms[i] *= asked[t].y[i];
    const double ieee = found.order.add_up(terms, found.accumulator, found.products == Products::fused);
    if (answers[t] == round_to(found.result, ieee)) continue;
    found.is_bitwise = false;
    worst = std::max(worst, excess(found, terms, ieee, answers[t]));
  }
  if (found.is_bitwise) return;
  found.note = fmt::format("sums of random terms differ from IEEE 754 additions of {} in this order",
                           name(found.accumulator));
  if (worst > 1)
    found.note += fmt::format(" by {:.3g} times what those may: terms are rounded or split first", worst);
}

}  // namespace

void reveal_arithmetic(RevealedOrder& found, SumQuestions& questions) {
  const int bits_of_first = measure_accumulator(found, questions);
  find_products(found, questions);
  compare_with_ieee(found, questions);
  if (!found.is_bitwise && bits_of_first > found.accumulator_bits)
    found.note += fmt::format("; some partial sums keep {} bits", bits_of_first);
}

}  // namespace assay
