#include "assay/golden/accumulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "assay/golden/bound.h"
#include "assay/golden/dtype.h"
#include "assay/golden/running_sum.h"
#include "assay/golden/sum_order.h"

namespace assay {
namespace {

// Of the partial sums s_k, each rounding is within u |s_k|.
constexpr double lambda = improbable;
// Roundings stop to be independent once terms are next to nothing beside the sum (stagnation): from n u =
// 2^-7 on only the guaranteed bound counts.
constexpr double most_growth = 0x1p-7;
// In an unknown order the partial sums are those of the terms as they come, of every L-th of them, as vector
// lanes and thread blocks take them, or those of a random order, whichever are largest. A device that adds
// all positive terms first has larger ones: it must be stated (`worst`).
constexpr std::size_t lanes[] = {2, 4, 8, 32, 128, 1024};
// Terms that are alike round alike: then losses add up, in stretches of these lengths or in one.
constexpr std::size_t stretches[] = {32, 1024, 8192};

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

void add(Parts& p, const Bound& term) {
  const double sum = p.value + term.value;
  p.lost += std::abs(rounding_of_sum(p.value, term.value, sum));
  p.value = sum;
  p.inherited += term.error;
  p.magnitude += std::abs(term.value) + term.error;
  p.squares += p.value * p.value;
  p.term_squares += term.value * term.value;
}

Parts parts_of(std::span<const Bound> terms) {
  Parts p;
  for (const Bound& term : terms) add(p, term);
  return p;
}

// x rounded to p significand bits, splitter = 2^(53 - p) + 1 (Dekker 1971, sec. 5.7)
double shortened(double x, double splitter) {
  const double big = splitter * x;
  return big - (big - x);
}

std::uint64_t exponent_bits(double x) {
  return std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff;
}

// What the plain loop over stretches of this length loses by rounding. The losses of one binade of the sum
// may have one sign in another loop, those of different binades need not cancel in it: their magnitudes are
// added.
class LossOfLoops {
 public:
  LossOfLoops(std::size_t length, double u)
      : length_(length), splitter_(0.5 / u < 0x1p52 ? 0x1p53 * u + 1 : 1), left_(length) {}
  void add(double term) {
    if (left_ == 0) {
      total_ = 0;
      left_ = length_;
    }
    --left_;
    const double exact = total_ + term;
    const double rounded = splitter_ == 1 ? exact : shortened(exact, splitter_);
    if (const std::uint64_t now = exponent_bits(rounded); now != binade_) {
      loss_ += std::abs(in_binade_);
      in_binade_ = 0;
      binade_ = now;
    }
    in_binade_ += (rounded - exact) - rounding_of_sum(total_, term, exact);
    total_ = rounded;
  }
  double value() const { return loss_ + std::abs(in_binade_); }

 private:
  std::size_t length_;
  double splitter_;
  std::size_t left_;
  double total_ = 0, loss_ = 0, in_binade_ = 0;
  std::uint64_t binade_ = 0;
};
double loss_of_loops(std::span<const Bound> terms, std::size_t length, double u) {
  LossOfLoops loss(length, u);
  for (const Bound& term : terms) loss.add(term.value);
  return loss.value();
}

// The sum of the squares of the partial sums of every `stride`-th term, and of those that join them.
double squares_of_lanes(std::span<const Bound> terms, std::size_t stride) {
  std::vector<double> lane(stride, 0.0);
  double squares = 0;
  for (std::size_t i = 0; i < terms.size(); i += stride) {
    for (std::size_t k = i; k < std::min(i + stride, terms.size()); ++k) {
      double& sum = lane[k - i];
      sum += terms[k].value;
      squares += sum * sum;
    }
  }
  double joined = 0;
  for (const double sum : lane) {
    joined += sum;
    squares += joined * joined;
  }
  return squares;
}

// In a random order the k-th partial sum has the mean k m and the variance k (n - k) / (n - 1) times the
// terms'. Also from left to right.
double squares_in_order(std::size_t count, const Parts& p) {
  const auto n = static_cast<double>(count);
  const double mean = p.value / n, variance = std::max(0.0, p.term_squares / n - mean * mean);
  return std::max(p.squares, mean * mean * n * n * n / 3 + variance * n * n / 6);
}

// What n additions may lose but for one sum in 4e13.
double probable_loss(std::span<const Bound> terms, const Parts& p, double u) {
  double squares = squares_in_order(terms.size(), p);
  if (ErrorScope::current().quick) return lambda * u * std::sqrt(squares) + u * p.inherited;
  for (const std::size_t stride : lanes) {
    if (2 * stride <= terms.size()) squares = std::max(squares, squares_of_lanes(terms, stride));
  }
  double alike = loss_of_loops(terms, terms.size(), u);
  for (const std::size_t length : stretches) {
    if (length < terms.size()) alike = std::max(alike, loss_of_loops(terms, length, u));
  }
  return std::max(lambda * u * std::sqrt(squares), 2 * alike) + u * p.inherited;
}

// n roundings of independent sign lose more than lambda sqrt(n) of them only if n is small.
bool may_average_out(const Accumulator& a, std::size_t count) {
  const auto n = static_cast<double>(count);
  const bool few = n <= lambda * lambda;
  return !a.truncates && !a.worst_case && !few && n * a.unit_roundoff <= most_growth;
}

// The additions of so many terms, rounded one by one.
// @param probable  what they may lose but for one sum in 4e13, by the u of the accumulator
template <class F>
double one_by_one(const Accumulator& a, std::size_t count, const Parts& p, F probable) {
  const auto n = static_cast<double>(count);
  if (n < 2) return 0;
  double depth = n - 1;
  if (a.order == Accumulator::Order::tree) depth = static_cast<double>(std::bit_width(count - 1));
  if (a.order == Accumulator::Order::blocked && count > static_cast<std::size_t>(a.block)) {
    depth = static_cast<double>(a.block - 1) + std::ceil(n / static_cast<double>(a.block)) - 1;
  }
  const double u = a.truncates ? 2 * a.unit_roundoff : a.unit_roundoff;
  // In any order n - 1 roundings lose (n - 1) u in all (Jeannerod and Rump 2013); by the height of the tree
  // of additions gamma (Higham 2002, sec. 4.2).
  const double guaranteed =
      p.magnitude * (depth < n - 1 ? std::min(gamma(depth, u), (n - 1) * u) : (n - 1) * u);
  return may_average_out(a, count) ? std::min(guaranteed, probable(u)) : guaranteed;
}

double one_by_one(const Accumulator& a, std::span<const Bound> terms, const Parts& p) {
  return one_by_one(a, terms.size(), p, [&](double u) { return probable_loss(terms, p, u); });
}

// Truncating matrix units. Of each step's products and running sum, g + 1 terms, each loses less than one
// unit 2^(E - F), E being the largest exponent among them: 2^E <= the largest magnitude, for a product's
// exponent is the sum of its factors'. The result is cut to `result_bits`.
double in_steps(const Accumulator& a, std::span<const Bound> terms) {
  double running = 0, reach = 0, error = 0, inherited = 0;  // |the device's running sum| <= reach
  const auto step = static_cast<std::size_t>(a.fused);
  for (std::size_t i = 0; i < terms.size(); i += step) {
    double largest = reach;
    for (std::size_t k = i; k < std::min(i + step, terms.size()); ++k) {
      running += terms[k].value;
      inherited += terms[k].error;
      largest = std::max(largest, std::abs(terms[k].value) + terms[k].error);
    }
    error += static_cast<double>(a.fused + 1) * std::ldexp(largest, -a.fraction_bits);
    error += std::ldexp(std::abs(running) + inherited + error, -a.result_bits);
    reach = std::abs(running) + inherited + error;
  }
  return error;
}

// @param u  of the terms' own format: an accumulator that is coarser rounds each term before it adds, a finer
//           one rounds its sum at the end
double with_formats(const Accumulator& a, const Parts& p, double u, double additions) {
  if (a.unit_roundoff < u) return additions + u * (std::abs(p.value) + p.inherited + additions);
  if (a.unit_roundoff == u) return additions;
  const double entering = (a.truncates ? 2 : 1) * a.unit_roundoff;
  return entering * p.magnitude + (1 + entering) * additions;
}

// The same in a known order.
double in_order(const Accumulator& a, std::span<const Bound> terms, const Parts& p) {
  const double u = a.truncates ? 2 * a.unit_roundoff : a.unit_roundoff;
  const SumOrder::Loss loss = a.terms_in_order->loss(terms, u);
  if (!may_average_out(a, terms.size()) || !a.terms_in_order->is_binary()) return loss.guaranteed;
  return std::min(loss.guaranteed,
                  std::max(lambda * u * std::sqrt(loss.squares), 2 * loss.alike) + u * p.inherited);
}

bool is_in_order(const Accumulator& a, std::size_t count) {
  return a.terms_in_order != nullptr && a.terms_in_order->terms() == static_cast<std::int64_t>(count);
}

double additions(const Accumulator& a, std::span<const Bound> terms, const Parts& p, double u) {
  if (a.fused > 0) return in_steps(a, terms);
  return with_formats(a, p, u,
                      is_in_order(a, terms.size()) ? in_order(a, terms, p) : one_by_one(a, terms, p));
}

}  // namespace

LossOfTerms loss_of_terms(std::int64_t terms, double u) {
  const auto n = static_cast<double>(terms);
  return {n, u, n > lambda * lambda && n * u <= most_growth, lambda * u};
}

double least_loss(std::int64_t terms, double value, double term_squares, double u) {
  if (terms < 2 || !std::isfinite(value)) return 0;
  const LossOfTerms loss = loss_of_terms(terms, u);
  const double n = loss.terms;
  const double magnitude = std::max(std::abs(value), std::sqrt(term_squares));
  const double guaranteed = (n - 1) * u * magnitude;
  if (!loss.averages_out) return guaranteed;
  const double mean = value / n, variance = std::max(0.0, term_squares / n - mean * mean);
  const double probable = loss.of_root * std::sqrt(mean * mean * n * n * n / 3 + variance * n * n / 6);
  return std::min(guaranteed, probable);
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
  float32.worst_case = a.worst_case;
  const Parts of_sums = parts_of(sums);
  return settled(p.value, of_sums.inherited + one_by_one(float32, sums, of_sums));
}

struct RunningSum::State {
  struct Lanes {
    std::vector<double> sums;
    double squares = 0;
  };
  ErrorModel device;
  Accumulator accumulator;
  std::size_t count = 0;
  Parts parts;
  std::vector<Lanes> by_stride;
  std::vector<LossOfLoops> loops;
  std::vector<Bound> terms;  // where the sum depends on each of them
};

RunningSum::RunningSum(const ErrorModel& device) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = device;
  s.accumulator.unit_roundoff = device.unit_roundoff;
  if (device.accumulator) s.accumulator = *device.accumulator;
  if (device.quick) return;
  for (const std::size_t stride : lanes) s.by_stride.push_back({std::vector<double>(stride, 0.0)});
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  s.loops.emplace_back(all, s.accumulator.unit_roundoff);
  for (const std::size_t length : stretches) s.loops.emplace_back(length, s.accumulator.unit_roundoff);
}
RunningSum::~RunningSum() = default;

void RunningSum::add(const Bound& term) {
  State& s = *state_;
  assay::add(s.parts, term);
  for (State::Lanes& l : s.by_stride) {
    double& sum = l.sums[s.count % l.sums.size()];
    sum += term.value;
    l.squares += sum * sum;
  }
  for (LossOfLoops& loop : s.loops) loop.add(term.value);
  if (s.accumulator.fused > 0 || s.accumulator.promote > 0 || s.accumulator.terms_in_order)
    s.terms.push_back(term);
  ++s.count;
}

Bound RunningSum::value() const {
  const State& s = *state_;
  const Parts& p = s.parts;
  if (!s.terms.empty()) return accumulate(s.device, s.terms);
  if (!std::isfinite(p.value)) return settled(p.value, p.inherited);
  if (s.device.own) return settled(p.value, p.inherited + p.lost);
  const auto probable = [&](double u) {
    double squares = squares_in_order(s.count, p), alike = 0;
    for (const State::Lanes& l : s.by_stride) {
      if (2 * l.sums.size() > s.count) continue;
      double joined = 0, of_all = l.squares;
      for (const double sum : l.sums) {
        joined += sum;
        of_all += joined * joined;
      }
      squares = std::max(squares, of_all);
    }
    for (const LossOfLoops& loop : s.loops) alike = std::max(alike, loop.value());
    return std::max(lambda * u * std::sqrt(squares), 2 * alike) + u * p.inherited;
  };
  return settled(p.value, p.inherited + with_formats(s.accumulator, p, s.device.unit_roundoff,
                                                     one_by_one(s.accumulator, s.count, p, probable)));
}

}  // namespace assay
