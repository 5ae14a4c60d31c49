#include "assay/golden/sketch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;  // 2^64 / phi, the increment of splitmix64
constexpr std::uint64_t print_axis = 0x5072696E74;
constexpr std::int64_t most_values = 1 << 16;

std::uint64_t hash(std::int64_t index, std::uint64_t axis, std::uint64_t seed, std::uint64_t word) {
  return mixed(mixed(seed ^ axis * golden_ratio ^ word << 32) +
               golden_ratio * (static_cast<std::uint64_t>(index) + 1));
}

void check_same(const Sketch& a, const Sketch& b) {
  if (a.shape != b.shape || a.spec != b.spec)
    throw Error("sketches of {} with {} values and of {} with {} values do not add up", to_string(a.shape),
                a.values.size(), to_string(b.shape), b.values.size());
}

// What both grids divide into.
std::int64_t common_blocks(std::int64_t a, std::int64_t b) {
  return std::gcd(a, b);
}

// The value that a chi-square over `nu` degrees of freedom, divided by them, exceeds as seldom as a normal
// variable exceeds z: Wilson and Hilferty 1931, doi:10.1073/pnas.17.12.684.
double quantile(double nu, double z) {
  const double variance = 2 / (9 * nu);
  return std::pow(std::max(1 - variance + z * std::sqrt(variance), 0.0), 3);
}

}  // namespace

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

std::uint64_t sign_bits(std::int64_t index, HashAxis axis, std::uint64_t seed, std::uint64_t word) {
  return hash(index, static_cast<std::uint64_t>(axis), seed, word);
}

std::uint64_t fingerprint_key(std::int64_t index, HashAxis axis, std::uint64_t seed) {
  return hash(index, print_axis ^ static_cast<std::uint64_t>(axis), seed, 0);
}

MatrixExtents matrix_extents(const Shape& shape) {
  if (shape.empty()) return {};
  return {element_count(Shape(shape.begin(), shape.end() - 1)), shape.back()};
}

void check_spec(const SketchSpec& spec) {
  const auto in_range = [](std::int64_t n) { return n >= 1 && n <= most_values; };
  if (in_range(spec.grid_rows) && in_range(spec.grid_columns) && in_range(spec.signs) &&
      spec.grid_rows * spec.grid_columns <= most_values && spec.size() <= most_values)
    return;
  throw Error("a sketch of {} x {} blocks with {} signs each; expected at least 1 of each and {} in all",
              spec.grid_rows, spec.grid_columns, spec.signs, most_values);
}

SketchSpec spec_for(const Shape& shape, const SketchSpec& spec) {
  const auto [rows, columns] = matrix_extents(shape);
  SketchSpec own = spec;
  if (rows < spec.grid_rows) {
    own.grid_rows = 1;
    own.grid_columns = spec.grid_rows * spec.grid_columns;
  } else if (columns < spec.grid_columns) {
    own.grid_rows = spec.grid_rows * spec.grid_columns;
    own.grid_columns = 1;
  }
  return own;
}

bool is_sketched(const Shape& shape, const SketchSpec& spec) {
  return element_count(shape) > spec.size();
}

Sketch Sketch::nothing(const Shape& shape, const SketchSpec& spec) {
  check_spec(spec);
  Sketch s;
  s.shape = shape;
  s.spec = spec;
  s.values.assign(static_cast<std::size_t>(s.spec.size()), 0.0);
  s.square = s.peak = 0;
  s.fingerprint = 0;
  return s;
}

void Sketch::join(const Sketch& shard) {
  const auto both = [](auto& mine, const auto& other, auto f) {
    if (mine && other)
      mine = f(*mine, *other);
    else
      mine.reset();
  };
  auto sum = square, largest = peak;
  auto print = fingerprint;
  both(sum, shard.square, [](double a, double b) { return a + b; });
  both(largest, shard.peak, [](double a, double b) { return std::max(a, b); });
  both(print, shard.fingerprint, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  add(shard);
  square = sum;
  peak = largest;
  fingerprint = print;
}

void Sketch::add(const Sketch& other, double factor) {
  check_same(*this, other);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += factor * other.values[i];
  nan += other.nan;
  positive_infinities += factor < 0 ? other.negative_infinities : other.positive_infinities;
  negative_infinities += factor < 0 ? other.positive_infinities : other.negative_infinities;
  square.reset();
  peak.reset();
  fingerprint.reset();
}

Sketch Sketch::coarsened(const SketchSpec& coarse) const {
  const bool divides = coarse.grid_rows >= 1 && coarse.grid_columns >= 1 &&
                       spec.grid_rows % coarse.grid_rows == 0 &&
                       spec.grid_columns % coarse.grid_columns == 0 && coarse.signs >= 1 &&
                       coarse.signs <= spec.signs && coarse.seed == spec.seed;
  if (!divides)
    throw Error("a sketch of {} x {} blocks with {} signs has none of {} x {} with {} in it", spec.grid_rows,
                spec.grid_columns, spec.signs, coarse.grid_rows, coarse.grid_columns, coarse.signs);
  Sketch s = *this;
  s.spec = coarse;
  s.values.assign(static_cast<std::size_t>(coarse.size()), 0.0);
  const std::int64_t rows = spec.grid_rows / coarse.grid_rows,
                     columns = spec.grid_columns / coarse.grid_columns;
  for (std::int64_t p = 0; p < spec.grid_rows; ++p) {
    for (std::int64_t q = 0; q < spec.grid_columns; ++q) {
      const std::int64_t from = (p * spec.grid_columns + q) * spec.signs;
      const std::int64_t to = (p / rows * coarse.grid_columns + q / columns) * coarse.signs;
      for (std::int64_t j = 0; j < coarse.signs; ++j)
        s.values[static_cast<std::size_t>(to + j)] += values[static_cast<std::size_t>(from + j)];
    }
  }
  return s;
}

double Sketch::norm() const {
  return square ? std::sqrt(*square) : estimated_norm();
}

double Sketch::estimated_norm() const {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(spec.signs));
}

std::vector<double> Sketch::norms_of_blocks() const {
  std::vector<double> norms;
  const auto signs = static_cast<std::size_t>(spec.signs);
  for (std::size_t at = 0; at < values.size(); at += signs) {
    double sum = 0;
    for (std::size_t j = 0; j < signs; ++j) sum += values[at + j] * values[at + j];
    norms.push_back(std::sqrt(sum / static_cast<double>(signs)));
  }
  return norms;
}

SketchSpec common_spec(const SketchSpec& a, const SketchSpec& b) {
  if (a.seed != b.seed)
    throw Error("sketches of the seeds {} and {} cannot be compared; expected one seed", a.seed, b.seed);
  return {common_blocks(a.grid_rows, b.grid_rows), common_blocks(a.grid_columns, b.grid_columns),
          std::min(a.signs, b.signs), a.seed};
}

// Var(|D|^2 estimated) / |D|^4 = 2 / nu. It is largest where D has rank 1: with g_r x g_c blocks of m signs
// and D spread over all of them, E of a value's fourth power is 9 times its variance's square instead of 3,
// and blocks of one row or column of blocks share signs: (8 + 2 (g_r - 1) + 2 (g_c - 1)) / (g_r g_c m). A
// single row or column is a sum of independent signs in each block: 2 / (g m).
double degrees_of_freedom(const Sketch& s) {
  const auto [rows, columns] = matrix_extents(s.shape);
  const auto size = static_cast<double>(s.spec.size());
  if (rows == 1 || columns == 1) return size;
  return 2 * size / (8 + 2 * static_cast<double>(s.spec.grid_rows - 1 + s.spec.grid_columns - 1));
}

SketchDistance interval(double estimate, const Sketch& of) {
  constexpr double z = 3.2905;  // a normal variable is outside of +-z in 0.1 % of the cases
  const double nu = degrees_of_freedom(of);
  const double most = quantile(nu, z), least = quantile(nu, -z);
  return {estimate, estimate / std::sqrt(most), least > 0 ? estimate / std::sqrt(least) : infinity};
}

SketchDistance distance(const Sketch& actual, const Sketch& reference) {
  const SketchSpec spec = common_spec(actual.spec, reference.spec);
  Sketch difference = actual.coarsened(spec);
  difference.add(reference.coarsened(spec), -1);
  return interval(difference.estimated_norm(), difference);
}

}  // namespace assay
