#include "assay/compare/causes/values/factor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace assay {

std::vector<NamedFactor> factor_names(std::span<const KnownSize> sizes) {
  std::vector<NamedFactor> names;
  const auto add = [&names](double value, std::string name, int far_fetched = 0) {
    if (value != 1) names.push_back({value, std::move(name), far_fetched});
  };
  for (const KnownSize& s : sizes) {
    const auto size = static_cast<double>(s.size);
    if (s.size < 2) continue;
    add(size, s.name);
    add(1 / size, "1/" + s.name);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = i + 1; j < sizes.size(); ++j) {
      const KnownSize &s = sizes[i], &t = sizes[j];
      if (s.size < 2 || t.size < 2) continue;
      const auto a = static_cast<double>(s.size), b = static_cast<double>(t.size);
      add(a * b, s.name + " x " + t.name);
      add(1 / (a * b), fmt::format("1/({} x {})", s.name, t.name));
      add(a / b, s.name + "/" + t.name, 1);
      add(b / a, t.name + "/" + s.name, 1);
    }
  }
  for (const KnownSize& s : sizes) {
    if (s.size < 2) continue;
    const double root = std::sqrt(static_cast<double>(s.size));
    add(root, fmt::format("sqrt({})", s.name), 2);
    add(1 / root, fmt::format("1/sqrt({})", s.name), 2);
  }
  for (int n = 1; n <= 24; ++n) {
    add(std::ldexp(1.0, n), n < 5 ? "" : fmt::format("2^{}", n), 1);
    add(std::ldexp(1.0, -n), n < 5 ? "" : fmt::format("2^-{}", n), 1);
  }
  std::ranges::stable_sort(names, {}, [](const NamedFactor& n) { return std::pair(n.value, n.far_fetched); });
  return names;
}

double shortened(double value, const std::function<bool(double)>& fits) {
  for (const int digits : {1, 2, 3}) {
    const double candidate = std::stod(fmt::format("{:.{}g}", value, digits));
    if (fits(candidate)) return candidate;
  }
  return value;
}

std::vector<std::string> names_of(double factor, std::span<const NamedFactor> all) {
  constexpr std::size_t most = 3;
  std::vector<std::string> names;
  int far_fetched = 0;
  for (const NamedFactor& n : all) {
    if (n.value != std::abs(factor) || names.size() == most) continue;
    if (n.name.empty()) break;  // it names itself: what is more far-fetched says less
    if (!names.empty() && n.far_fetched > far_fetched) break;
    far_fetched = n.far_fetched;
    names.push_back(n.name);
  }
  return names;
}

std::string describe_factor(double factor, std::span<const NamedFactor> names) {
  return factor_text(factor, names_of(factor, names));
}

}  // namespace assay
