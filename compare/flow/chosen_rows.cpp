// Rows that a choice took which nobody recorded: experts that choose their tokens, tokens that skip a layer.
#include "assay/compare/flow/chosen_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace assay {
namespace {

std::string_view bits_of(const SideTensor& t, std::size_t row, std::size_t width) {
  return {reinterpret_cast<const char*>(t.values.data() + row * width),  // NOLINT: a view of its bytes
          width * sizeof(double)};
}

// By a few of its elements, as only a message depends on it.
std::size_t nearest_row(const SideTensor& source, const SideTensor& target, std::size_t row,
                        std::size_t width) {
  constexpr std::size_t most = 16;
  std::size_t nearest = 0;
  double least = infinity;
  for (std::size_t r = 0; r * width < source.values.size(); ++r) {
    double distance = 0;
    for (std::size_t j = 0; j < std::min(width, most); ++j)
      distance += std::abs(source.values[r * width + j] - target.values[row * width + j]);
    if (distance < least) {
      least = distance;
      nearest = r;
    }
  }
  return nearest;
}

}  // namespace

bool follow_loops(std::span<const std::int64_t> rows) {
  const std::size_t n = rows.size();
  if (n < 2) return true;
  // The outermost loop first: its bodies are the same up to its stride.
  for (std::size_t body = 1; body < n; ++body) {
    if (n % body != 0) continue;
    const std::int64_t stride = rows[body] - rows[0];
    bool is_loop = true;
    for (std::size_t i = body; is_loop && i < n; ++i) is_loop = rows[i] - rows[i - body] == stride;
    if (is_loop) return follow_loops(rows.first(body));
  }
  return false;
}

bool follow_loops(const Relation& r) {
  std::map<std::size_t, std::vector<std::int64_t>> rows;
  for (const Relation::Column& c : r.columns) {
    if (c.source != Relation::zeros) rows[c.source].push_back(c.at);
  }
  return std::ranges::all_of(rows, [](const auto& of_source) { return follow_loops(of_source.second); });
}

std::optional<RowChoice> chosen_rows(const SideTensor& source, const SideTensor& target) {
  if (source.shape.empty() || target.shape.empty() || source.shape.back() != target.shape.back() ||
      source.shape.back() < 1 || source.addends > 1 || target.addends > 1)
    return {};
  const auto width = static_cast<std::size_t>(source.shape.back());
  struct Place {
    std::int64_t first = 0, equal = 1;
    bool is_taken = false;
  };
  std::unordered_map<std::string_view, Place> places;
  for (std::size_t r = 0; r < source.values.size() / width; ++r) {
    const auto [place, is_new] =
        places.try_emplace(bits_of(source, r, width), Place{static_cast<std::int64_t>(r)});
    place->second.equal += is_new ? 0 : 1;
  }
  RowChoice chosen;
  for (std::size_t r = 0; r < target.values.size() / width; ++r) {
    const auto place = places.find(bits_of(target, r, width));
    const bool is_known = place != places.end();
    chosen.rows.push_back(is_known ? place->second.first : RowChoice::none);
    chosen.is_unique = chosen.is_unique && is_known && place->second.equal == 1 && !place->second.is_taken;
    if (is_known) place->second.is_taken = true;
  }
  return chosen;
}

bool have_the_same_rows(const RowChoice& a, const RowChoice& b) {
  std::vector<std::int64_t> x = a.rows, y = b.rows;
  std::ranges::sort(x);
  std::ranges::sort(y);
  return x == y;
}

std::shared_ptr<const SideTensor> index_of_chosen_rows(const SideTensor& source, const SideTensor& target,
                                                       bool is_unique) {
  const auto chosen = chosen_rows(source, target);
  if (!chosen || source.values.empty() || (is_unique && !chosen->is_unique)) return nullptr;
  const auto width = static_cast<std::size_t>(source.shape.back());
  auto index = std::make_shared<SideTensor>();
  index->dtype = DType::int64;
  index->shape = {std::ssize(chosen->rows)};
  for (std::size_t r = 0; r < chosen->rows.size(); ++r) {
    const std::int64_t row = chosen->rows[r];
    index->values.push_back(row == RowChoice::none
                                ? static_cast<double>(nearest_row(source, target, r, width))
                                : static_cast<double>(row));
  }
  return index;
}

}  // namespace assay
