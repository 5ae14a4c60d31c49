#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "assay/compare/causes/values/diagnosis.h"
#include "assay/compare/causes/values/index_set_text.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Along one dimension: which indices hold errors.
struct Marginal {
  std::int64_t extent, inner;
  std::vector<bool> holds;
  std::int64_t count = 0;
  bool tells = false;  ///< that errors are confined to these is no accident

  std::size_t at(std::int64_t position) const { return static_cast<std::size_t>(position / inner % extent); }
};

// f(position) of every element over tolerance.
template <class F>
void for_each_error(const TensorSource& actual, const TensorSource& reference, const Allowed& allowed, F f) {
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::int64_t at = begin + static_cast<std::int64_t>(i);
      const double bound = allowed.bound.empty() ? 0 : allowed.bound[static_cast<std::size_t>(at)];
      if (std::abs(a[i] - r[i]) <= allowed.atol + allowed.rtol * std::abs(r[i]) + bound) continue;
      if (a[i] == r[i] || (std::isnan(a[i]) && std::isnan(r[i]))) continue;
      if (std::isinf(a[i]) && std::isfinite(r[i]) && is_float(actual.dtype()) &&
          round_to(actual.dtype(), r[i]) == a[i])
        continue;
      f(at);
    }
  });
}

std::string unit_name(const Shape& shape, std::size_t d) {
  if (shape.size() == 1) return "element";
  if (shape.size() == 2) return d == 0 ? "row" : "column";
  return "index";
}

}  // namespace

std::string error_pattern(const TensorSource& actual, const TensorSource& reference,
                          const DiagnosisContext& context) {
  const Shape& shape = actual.shape();
  if (shape != reference.shape() || shape.empty() || is_float(actual.dtype()) != is_float(reference.dtype()))
    return "";
  constexpr std::int64_t most = std::int64_t{1} << 26;  // bits: 8 MB
  std::vector<Marginal> marginals;
  std::int64_t inner = actual.size();
  for (const std::int64_t extent : shape) {
    if (extent == 0 || extent > most) return "";
    inner /= extent;
    marginals.push_back({extent, inner, std::vector<bool>(static_cast<std::size_t>(extent), false)});
  }
  std::int64_t over = 0, row_begin = -shape.back();
  const std::int64_t row = shape.back();
  for_each_error(actual, reference, context.allowed, [&](std::int64_t at) {
    ++over;
    // The next error mostly lies in the same row: divisions are saved.
    const std::int64_t column = at - row_begin;
    marginals.back().holds[static_cast<std::size_t>(column < row ? column : at % row)] = true;
    if (column < row) return;
    row_begin = at / row * row;
    for (Marginal& m : marginals) m.holds[static_cast<std::size_t>(at / m.inner % m.extent)] = true;
  });
  if (over == 0) return "";
  std::string where;
  std::int64_t inside = 1;
  for (std::size_t d = 0; d < marginals.size(); ++d) {
    Marginal& m = marginals[d];
    m.count = std::ranges::count(m.holds, true);
    const IndexSetText set = describe_index_set(m.holds, unit_name(shape, d), context.sizes);
    // Errors at random would all fall there with (count / extent)^over.
    const double gained =
        static_cast<double>(over) * std::log2(static_cast<double>(m.extent) / static_cast<double>(m.count));
    m.tells = m.count < m.extent && proves(gained, set.bits);
    inside *= m.tells ? m.count : m.extent;
    if (!m.tells) continue;
    where += (where.empty() ? "" : " and ") + set.text;
    if (shape.size() > 2) where += fmt::format(" of dim {}", d);
  }
  if (where.empty()) return "";
  return fmt::format("{}: {} of {} wrong there, none elsewhere", where, over, inside);
}

}  // namespace assay
