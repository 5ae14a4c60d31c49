#include "assay/golden/accumulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "assay/golden/bound.h"
#include "assay/golden/dtype.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// What one instruction adds: the model and numbers of MMA-Sim, commit c7851383 (simulator/nv_ptx.py, amd.py).
// Ampere and Ada take an instruction in two halves.
struct MatrixUnit {
  std::string_view name;
  std::int64_t fused;
  int fraction_bits, result_bits;
};
constexpr MatrixUnit units[] = {
    {"volta", 4, 23, 23},          {"ampere", 8, 24, 23},     {"ampere-tf32", 4, 24, 23},
    {"ada-fp8", 16, 13, 13},       {"hopper", 16, 25, 23},    {"hopper-tf32", 8, 25, 23},
    {"hopper-fp8", 32, 13, 13},    {"blackwell", 16, 25, 23}, {"blackwell-tf32", 8, 25, 23},
    {"blackwell-fp8", 32, 25, 23}, {"cdna3", 8, 24, 23},      {"cdna3-tf32", 4, 24, 23},
    {"cdna3-fp8", 16, 24, 23},
};

// One sum in 2 exp(-lambda^2 / 2) = 2.5e-14 errs more (Higham and Mary 2019, thm 2.4).
constexpr double lambda = 8;
// Roundings stop to be independent once terms are next to nothing beside the sum (stagnation): from n u =
// 2^-7 on only the guaranteed bound counts.
constexpr double most_growth = 0x1p-7;

// gamma_n = n u / (1 - n u), infinite once nothing is guaranteed. Higham 2002, sec. 3.1.
double gamma(double n, double u) {
  return n * u < 1 ? n * u / (1 - n * u) : std::numeric_limits<double>::infinity();
}

struct Parts {
  double value = 0, inherited = 0;
  double magnitude = 0;  // sum of |terms|, their errors included
  double squares = 0;    // of the partial sums from left to right
  double term_squares = 0;
  double lost = 0;  // by rounding `value` itself
};

Parts parts_of(std::span<const Bound> terms) {
  Parts p;
  for (const Bound& term : terms) {
    const double sum = p.value + term.value;
    p.lost += std::abs(rounding_of_sum(p.value, term.value, sum));
    p.value = sum;
    p.inherited += term.error;
    p.magnitude += std::abs(term.value) + term.error;
    p.squares += p.value * p.value;
    p.term_squares += term.value * term.value;
  }
  return p;
}

// x rounded to p significand bits, splitter = 2^(53 - p) + 1 (Dekker 1971, sec. 5.7)
double shortened(double x, double splitter) {
  const double big = splitter * x;
  return big - (big - x);
}

// What the plain loop loses by rounding, which the terms may make err all to one side (equal terms do).
double loss_of_plain_loop(std::span<const Bound> terms, double u) {
  const double splitter = 0.5 / u < 0x1p52 ? 0x1p53 * u + 1 : 1;
  double total = 0, exact = 0, rest = 0;
  for (const Bound& term : terms) {
    const double next = total + term.value;
    total = splitter == 1 ? next : shortened(next, splitter);
    const double sum = exact + term.value;
    rest += rounding_of_sum(exact, term.value, sum);
    exact = sum;
  }
  return std::abs((total - exact) - rest);
}

// The additions of n terms, rounded one by one.
double one_by_one(const Accumulator& a, std::span<const Bound> terms, const Parts& p) {
  const auto n = static_cast<double>(terms.size());
  if (n < 2) return 0;
  double depth = n - 1;
  if (a.order == Accumulator::Order::tree) depth = static_cast<double>(std::bit_width(terms.size() - 1));
  if (a.order == Accumulator::Order::blocked && terms.size() > static_cast<std::size_t>(a.block)) {
    depth = static_cast<double>(a.block - 1) + std::ceil(n / static_cast<double>(a.block)) - 1;
  }
  const double u = a.truncates ? 2 * a.unit_roundoff : a.unit_roundoff;
  // In any order n - 1 roundings lose (n - 1) u in all (Jeannerod and Rump 2013); by the height of the tree
  // of additions gamma (Higham 2002, sec. 4.2).
  const double guaranteed =
      p.magnitude * (depth < n - 1 ? std::min(gamma(depth, u), (n - 1) * u) : (n - 1) * u);
  if (a.truncates || a.worst_case || n * u > most_growth) return guaranteed;
  // A rounding of a partial sum s is spread over [-u |s|, u |s|] at most: its variance is below u^2 s^2 / 3.
  // The sum of s^2 is that of the terms' own order or, if larger, the mean over all orders: k m at the k-th
  // sum, with a variance of k (n - k) / (n - 1) times the terms'.
  const double mean = p.value / n, variance = std::max(0.0, p.term_squares / n - mean * mean);
  const double shuffled = mean * mean * n * n * n / 3 + variance * n * n / 6;
  const double spread = lambda * u * std::sqrt(std::max(p.squares, shuffled) / 3);
  return std::min(guaranteed, std::max(spread, 2 * loss_of_plain_loop(terms, u)) + u * p.inherited);
}

// Truncating matrix units. Of each step's products and running sum, g + 1 terms, each loses less than one
// unit 2^(E - F), E being the largest exponent among them: 2^E <= the largest magnitude, for a product's
// exponent is the sum of its factors'. The result is cut to `result_bits`.
double in_steps(const Accumulator& a, std::span<const Bound> terms) {
  double running = 0, reach = 0, error = 0;  // |true running sum| <= reach
  const auto step = static_cast<std::size_t>(a.fused);
  for (std::size_t i = 0; i < terms.size(); i += step) {
    double largest = reach;
    for (std::size_t k = i; k < std::min(i + step, terms.size()); ++k) {
      running += terms[k].value;
      largest = std::max(largest, std::abs(terms[k].value) + terms[k].error);
    }
    error += static_cast<double>(a.fused + 1) * std::ldexp(largest, -a.fraction_bits);
    error += std::ldexp(std::abs(running) + error, -a.result_bits);
    reach = std::abs(running) + error;
  }
  return error;
}

// @param u  of the terms' own format: an accumulator that is coarser rounds each term before it adds
double additions(const Accumulator& a, std::span<const Bound> terms, const Parts& p, double u) {
  if (a.fused > 0) return in_steps(a, terms);
  if (a.unit_roundoff <= u) return one_by_one(a, terms, p);
  const double entering = (a.truncates ? 2 : 1) * a.unit_roundoff;
  return entering * p.magnitude + (1 + entering) * one_by_one(a, terms, p);
}

std::int64_t positive(std::string_view text, std::string_view whole) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error == std::errc() && end == text.data() + text.size() && n > 0) return n;
  throw Error("accumulator '{}': '{}' is no number; expected one above 0", whole, text);
}

}  // namespace

std::vector<std::string_view> matrix_units() {
  std::vector<std::string_view> names;
  for (const MatrixUnit& unit : units) names.push_back(unit.name);
  return names;
}

Accumulator parse_accumulator(std::string_view text) {
  Accumulator a;
  a.name = text;
  std::string_view rest = text;
  const auto next = [&] {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    return word;
  };
  const std::string_view kind = next();
  const auto unit = std::ranges::find(units, kind, &MatrixUnit::name);
  const std::optional<DType> dtype = parse_dtype(kind);
  if (unit != std::end(units)) {
    a.fused = unit->fused;
    a.fraction_bits = unit->fraction_bits;
    a.result_bits = unit->result_bits;
  } else if (dtype && is_float(*dtype)) {
    a.unit_roundoff = unit_roundoff(*dtype);
  } else {
    throw Error("there is no accumulator '{}'; expected a floating dtype or one of {}", kind,
                fmt::join(matrix_units(), ", "));
  }
  while (!rest.empty()) {
    const std::string_view word = next();
    if (word.starts_with("promote=")) {
      a.promote = positive(word.substr(8), text);
    } else if (word.starts_with("block=") && a.fused == 0) {
      a.order = Accumulator::Order::blocked;
      a.block = positive(word.substr(6), text);
    } else if (word == "sequential" && a.fused == 0) {
      a.order = Accumulator::Order::sequential;
    } else if (word == "tree" && a.fused == 0) {
      a.order = Accumulator::Order::tree;
    } else if (word == "truncate" && a.fused == 0) {
      a.truncates = true;
    } else if (word == "worst" && a.fused == 0) {
      a.worst_case = true;
    } else {
      throw Error("accumulator '{}': '{}' is not known{}", text, word,
                  a.fused == 0 ? "; expected sequential, tree, block=N, truncate, worst or promote=N"
                               : "; expected promote=N");
    }
  }
  return a;
}

Bound accumulate(const ErrorModel& device, std::span<const Bound> terms) {
  const Parts p = parts_of(terms);
  if (!std::isfinite(p.value)) return settled(p.value, p.inherited);
  if (device.own) return settled(p.value, p.inherited + p.lost);
  Accumulator plain;
  plain.unit_roundoff = device.unit_roundoff;
  const Accumulator& a = device.accumulator ? *device.accumulator : plain;
  const double u = device.unit_roundoff;
  if (a.promote <= 0) return settled(p.value, p.inherited + additions(a, terms, p, u));
  // Each stretch from 0, then their sums in float32, one after the other.
  std::vector<Bound> sums;
  const auto stretch = static_cast<std::size_t>(a.promote);
  for (std::size_t i = 0; i < terms.size(); i += stretch) {
    const auto some = terms.subspan(i, std::min(stretch, terms.size() - i));
    const Parts of_some = parts_of(some);
    sums.emplace_back(of_some.value, of_some.inherited + additions(a, some, of_some, u));
  }
  Accumulator float32;
  float32.order = Accumulator::Order::sequential;
  const Parts of_sums = parts_of(sums);
  return settled(p.value, of_sums.inherited + one_by_one(float32, sums, of_sums));
}

}  // namespace assay
