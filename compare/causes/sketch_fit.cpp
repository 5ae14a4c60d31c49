#include "assay/compare/causes/sketch_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// A number may be fitted where so many say what it is: a scalar is a multiple of any scalar.
constexpr std::size_t elements_of_a_term = 8;
// Differences of float64 sums are no better known.
constexpr double float64_noise = 0x1p-48;

std::vector<double> minus(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) d[i] = a[i] - b[i];
  return d;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// "rows 512 to 1,023 of 2,048", of blocks that follow each other; empty if all are wrong, or none.
std::string stretch(const std::vector<bool>& wrong, std::int64_t extent, std::string_view along) {
  const auto first = std::ranges::find(wrong, true) - wrong.begin();
  const auto last = std::ssize(wrong) - (std::find(wrong.rbegin(), wrong.rend(), true) - wrong.rbegin());
  const auto blocks = std::ssize(wrong);
  if (last <= first || last - first == blocks) return "";
  const auto begin = [&](std::int64_t block) { return (block * extent + blocks - 1) / blocks; };
  return fmt::format("{} {} to {} of {}", along, grouped(begin(first)), grouped(begin(last) - 1),
                     grouped(extent));
}

}  // namespace

SketchFit::SketchFit(const Finding& f, const SketchedPair& pair)
    : actual_(pair.actual.sketch),
      reference_(pair.reference.sketch),
      allowed_(allowed_distance_on_its_own_scale(f)),
      rtol_(f.rtol),
      stored_(rounding_of(f.actual_dtype)) {}

std::vector<double> SketchFit::difference() const {
  return minus(actual(), reference());
}

bool SketchFit::has_room_for(std::size_t terms) const {
  const auto elements = static_cast<std::size_t>(element_count(reference_.shape));
  return std::min(elements, actual().size()) >= elements_of_a_term * terms;
}

double SketchFit::norm(const std::vector<double>& values) const {
  return std::sqrt(dot(values, values) / static_cast<double>(reference_.spec.signs));
}

double SketchFit::size() const {
  return std::max(norm(actual()), norm(reference()));
}

bool SketchFit::is_refuted(double residual, double least) const {
  const double rounding = std::max(stored_, float64_noise) * size() / (allowed_ + 2 * stored_ * size());
  return degrees_of_freedom(reference_) * std::log2(residual / std::max(least, rounding)) >= proof_bits;
}

std::optional<double> SketchFit::explained(const std::vector<double>& expected, double parameters,
                                           double scale) const {
  return explained(minus(actual(), expected), difference(), parameters, scale);
}

std::optional<double> SketchFit::explained(const std::vector<double>& left, const std::vector<double>& before,
                                           double parameters, double scale) const {
  // What is multiplied or added was stored before, and is stored again.
  const double allowed = allowed_ * std::max(1.0, std::abs(scale)) + 2 * stored_ * size();
  const SketchDistance rest = interval(norm(left), reference_);
  if (!(rest.high <= allowed)) return {};
  const double shrunk = std::max(rest.estimate, float64_noise * size()) / norm(before);
  const double evidence = -degrees_of_freedom(reference_) * std::log2(shrunk);
  if (!proves(evidence, parameters)) return {};
  return allowed > 0 ? rest.estimate / allowed : 0;
}

std::optional<SketchFit::Factor> SketchFit::factor(
    const std::vector<double>& wanted, const std::vector<double>& term,
    const std::function<std::optional<double>(double)>& fits) const {
  const double square = dot(term, term);
  if (!has_room_for(1) || !(square > 0)) return {};
  const double best = dot(wanted, term) / square;
  const auto best_left = fits(best);
  if (!best_left) return {};
  const auto rest = [&](double k) {
    std::vector<double> left = wanted;
    for (std::size_t i = 0; i < left.size(); ++i) left[i] -= k * term[i];
    return norm(left);
  };
  const double least = rest(best), noise = float64_noise * norm(wanted);
  Factor found{best, *best_left};
  found.value = shortened(best, [&](double k) {
    const auto left = fits(k);
    if (!left || rest(k) > 2 * least + noise) return false;
    found.residual = *left;
    return true;
  });
  return found;
}

std::string SketchFit::where() const {
  const auto rows = static_cast<std::size_t>(reference_.spec.grid_rows),
             columns = static_cast<std::size_t>(reference_.spec.grid_columns),
             signs = static_cast<std::size_t>(reference_.spec.signs);
  std::vector<double> row_error(rows), row_size(rows), column_error(columns), column_size(columns);
  for (std::size_t i = 0; i < actual().size(); ++i) {
    const double error = std::pow(actual()[i] - reference()[i], 2), size = std::pow(reference()[i], 2);
    row_error[i / signs / columns] += error;
    row_size[i / signs / columns] += size;
    column_error[i / signs % columns] += error;
    column_size[i / signs % columns] += size;
  }
  const auto wrong = [&](const std::vector<double>& errors, const std::vector<double>& sizes) {
    std::vector<bool> is_wrong;
    for (std::size_t b = 0; b < errors.size(); ++b)
      is_wrong.push_back(std::sqrt(errors[b]) > 2 * std::max(rtol_, stored_) * std::sqrt(sizes[b]));
    return is_wrong;
  };
  const MatrixExtents extents = matrix_extents(reference_.shape);
  const std::string in_rows = stretch(wrong(row_error, row_size), extents.rows, "rows"),
                    in_columns = stretch(wrong(column_error, column_size), extents.columns, "columns");
  return in_rows.empty() || in_columns.empty() ? in_rows + in_columns : in_rows + ", " + in_columns;
}

}  // namespace assay
