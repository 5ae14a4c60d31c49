#include "assay/operators/engine/padding_mask.h"

#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

std::optional<std::vector<std::int64_t>> visible_in(DType dtype, std::span<const double> values) {
  // Half of it makes any weight 0 in float32, the other half is for what scores differ by.
  static const double lowest = 2 * std::log(min_subnormal(DType::float32));
  const auto is_flag = [](double v) { return v == 0 || v == 1; };
  const bool are_flags = std::ranges::all_of(values, is_flag);
  const bool is_bias = is_float(dtype) && std::ranges::find(values, 1.) == values.end();
  if (!are_flags && !is_bias) return std::nullopt;
  std::vector<std::int64_t> visible;
  visible.reserve(values.size());
  for (const double v : values) {
    if (is_bias && v != 0 && !(v <= lowest)) return std::nullopt;
    visible.push_back(is_bias ? v == 0 : v != 0);
  }
  return visible;
}

std::optional<Shape> extents_of_mask(const Shape& mask, const MaskedScores& of) {
  Shape four;
  switch (mask.size()) {
    case 2:
      four = mask[0] == of.B ? Shape{mask[0], 1, 1, mask[1]} : Shape{1, 1, mask[0], mask[1]};
      break;
    case 3:
      four = {mask[0], 1, mask[1], mask[2]};
      break;
    case 4:
      four = mask;
      break;
    default:
      return std::nullopt;
  }
  const bool fits = (four[0] == 1 || four[0] == of.B) && (four[1] == 1 || four[1] == of.H) &&
                    (four[2] == 1 || four[2] >= of.L) && four[3] >= of.S;
  return fits ? std::optional(four) : std::nullopt;
}

bool mask_goes_with(const Shape& mask, std::int64_t B, std::int64_t L, std::int64_t S) {
  const std::int64_t heads = mask.size() == 4 ? mask[1] : 1;
  const auto four = extents_of_mask(mask, {B, heads, L, S});
  return four && ((*four)[2] == 1 || (*four)[2] == L) && (*four)[3] == S;
}

void check_mask(std::string_view op, InputShapes inputs, const MaskedScores& of) {
  const InputShape* mask = find_input(inputs, "mask");
  if (mask == nullptr || extents_of_mask(mask->shape, of)) return;
  throw Error(
      "{}: mask has shape {}; expected [{}, {}], or what broadcasts to [{}, {}, {}, {}]: sequences, heads, "
      "queries and keys",
      op, to_string(mask->shape), of.B, of.S, of.B, of.H, of.L, of.S);
}

CutMask cut_mask(const std::vector<std::int64_t>& visible, const Shape& mask, const MaskedScores& of) {
  const Shape from = extents_of_mask(mask, of).value();
  CutMask cut{{from[0], from[1], std::min(from[2], of.L), of.S}, {}};
  for (std::int64_t head = 0; head < from[0] * from[1]; ++head) {
    for (std::int64_t l = 0; l < cut.shape[2]; ++l) {
      const auto row = visible.begin() + (head * from[2] + l) * from[3];
      cut.visible.insert(cut.visible.end(), row, row + of.S);
    }
  }
  return cut;
}

void infer_unseen(Recorded& call) {
  if (call.input("mask") == nullptr || call.result.size() == 0) return;
  if (call.output != "out") return call.attributes.set("unseen", std::string("either"));
  const Shape& shape = call.result.shape();
  if (shape.size() < 3) return;
  const std::int64_t channels = element_count(Shape(shape.begin() + 2, shape.end()));
  const std::vector<double> values = call.result.values();
  bool has_zeros = false;
  for (auto row = values.begin(); row != values.end() && channels > 0 && !has_zeros; row += channels)
    has_zeros = std::all_of(row, row + channels, [](double v) { return v == 0; });
  call.attributes.set("unseen", std::string(has_zeros ? "zeros" : "mean"));
}

}  // namespace assay
