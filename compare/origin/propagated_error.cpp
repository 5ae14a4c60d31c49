#include "assay/compare/origin/propagated_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/compare/origin/inputs.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

constexpr double growth = 2;

struct RowSquares {
  double error = 0, reference = 0;  // squares
};

// NaN against NaN and infinities of one sign are equal; another pair with one of them is infinitely off.
double square_error(double actual, double reference) {
  if (actual == reference || (std::isnan(actual) && std::isnan(reference))) return 0;
  const double e = actual - reference;
  return std::isfinite(e) ? e * e : std::numeric_limits<double>::infinity();
}

std::vector<RowSquares> rows_of(const Sides& sides, const Pair& pair) {
  const Tensor actual = merge(sides.actual, *pair.actual).tensor.whole(),
               reference = merge(sides.reference, *pair.reference).tensor.whole();
  if (actual.size() != reference.size() || reference.size() == 0) return {};
  const Shape& shape = reference.shape();
  const std::int64_t width = shape.size() < 2 ? 1 : shape.back();
  std::vector<RowSquares> rows(static_cast<std::size_t>(reference.size() / width));
  for (std::int64_t i = 0; i < reference.size(); ++i) {
    RowSquares& row = rows[static_cast<std::size_t>(i / width)];
    const double r = reference.value(i);
    row.error += square_error(actual.value(i), r);
    if (std::isfinite(r)) row.reference += r * r;
  }
  return rows;
}

double relative(double error, double reference) {
  return error == 0 ? 0 : std::sqrt(error / reference);
}

struct RelativeError {
  double whole = 0, row = 0;  // relative L2; the worst row's
};

// A row that is next to nothing may be off by any share of itself: it counts as one of the usual size.
RelativeError relative_error(const std::vector<RowSquares>& rows) {
  RowSquares all;
  for (const RowSquares& row : rows) {
    all.error += row.error;
    all.reference += row.reference;
  }
  RelativeError found = {relative(all.error, all.reference), 0};
  const double usual = all.reference / static_cast<double>(std::max<std::size_t>(rows.size(), 1));
  for (const RowSquares& row : rows)
    found.row = std::max(found.row, relative(row.error, std::max(row.reference, usual)));
  return found;
}

}  // namespace

std::optional<PropagatedError> propagated_error(const Sides& sides, const Pair& result,
                                                const std::vector<Pair>& inputs) {
  RelativeError given;
  for (const Pair& input : inputs) {
    const RelativeError by_input = relative_error(rows_of(sides, input));
    given.whole = std::max(given.whole, by_input.whole);
    given.row = std::max(given.row, by_input.row);
  }
  if (!(given.whole > 0 && std::isfinite(given.whole))) return std::nullopt;
  const std::vector<RowSquares> rows = rows_of(sides, result);
  if (rows.empty()) return std::nullopt;
  const RelativeError found = relative_error(rows);
  const double ratio = std::max(found.whole / (growth * given.whole), found.row / (growth * given.row));
  return ratio <= 1 ? std::optional(PropagatedError{found.whole, given.whole, ratio}) : std::nullopt;
}

std::optional<Exemption> rounding_of_inputs(const Sides& sides, std::vector<Finding>& findings,
                                            const std::vector<Pair>& pairs, std::size_t i,
                                            const std::vector<std::size_t>& inputs) {
  Finding& f = findings[i];
  if (!is_result(f.id) || f.id.phase == Phase::optimizer || !is_float(f.actual_dtype)) return {};
  std::vector<Pair> given;
  for (const std::size_t k : inputs) {
    if (findings[k].id.slot != "param" && findings[k].metrics && is_float(findings[k].actual_dtype))
      given.push_back(pairs[k]);
  }
  std::optional<PropagatedError> found;
  const auto trouble = trouble_in([&] { found = propagated_error(sides, pairs[i], given); });
  if (trouble) {
    f.notes.push_back("not compared with the errors of its inputs: " + *trouble);
    return {};  // g++ 12 may have written to `found` before the exception
  }
  if (!found) return {};
  return Exemption{
      Exemption::Kind::amplified_rounding, found->ratio, 1,
      fmt::format("relative L2 {:.2g}, where its inputs are off by {:.2g}", found->error, found->given)};
}

bool differs_as_one(const std::vector<double>& actual, const std::vector<double>& right) {
  constexpr std::size_t fewest = 16;  // of less, half looks like it too often
  const std::size_t size = right.size();
  if (actual.size() != size || size < fewest) return false;
  const auto n = static_cast<double>(size);
  double mean = 0, mean_of_difference = 0;
  for (std::size_t i = 0; i < size; ++i) {
    mean += right[i] / n;
    mean_of_difference += (actual[i] - right[i]) / n;
  }
  double squares = 0, of_difference = 0, both = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double x = right[i] - mean, d = actual[i] - right[i];
    squares += x * x;
    of_difference += d * d;
    both += x * d;
  }
  const double shared =
      n * mean_of_difference * mean_of_difference + (squares > 0 ? both * both / squares : 0);
  return shared > of_difference / 2;
}

}  // namespace assay
