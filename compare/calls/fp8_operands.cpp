#include "assay/compare/calls/fp8_operands.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/golden/error.h"
#include "assay/operators/engine/fp8_codes.h"

namespace assay {
namespace {

using Stretch = std::pair<std::int64_t, std::int64_t>;

std::vector<std::int64_t> positions_of(const Parts::value_type& part) {
  std::vector<std::int64_t> positions;
  for (const auto& [begin, end] : part) {
    for (std::int64_t i = begin; i < end; ++i) positions.push_back(i);
  }
  return positions;
}

Parts uncut(std::int64_t extent) {
  return {{{0, extent}}};
}

// How a dimension of a tensor was cut, counted from the last one.
Parts cut_of(const std::vector<CutInput>& cuts, const NamedTensor& input, std::size_t from_last) {
  const auto cut = std::ranges::find(cuts, input.name, &CutInput::name);
  const Shape& shape = input.tensor.shape();
  Parts whole = uncut(shape[shape.size() - 1 - from_last]);
  if (cut == cuts.end() || cut->dims.size() <= from_last) return whole;
  const Parts& parts = cut->dims[cut->dims.size() - 1 - from_last];
  return parts.size() < 2 ? whole : parts;
}

// Of each stretch of rows what lies in each part.
Parts within(const std::vector<Stretch>& stretches, const Parts& parts) {
  Parts found;
  for (const Stretch& rows : stretches) {
    for (const Parts::value_type& part : parts) {
      Parts::value_type common;
      for (const Stretch& piece : part) {
        const Stretch both = {std::max(rows.first, piece.first), std::min(rows.second, piece.second)};
        if (both.first < both.second) common.push_back(both);
      }
      if (!common.empty()) found.push_back(common);
    }
  }
  return found;
}

// Each part for itself, in boxes.
Tensor read_back(const Tensor& matrix, const Parts& rows, const Parts& columns, std::int64_t box_rows,
                 std::int64_t box_columns) {
  const std::vector<double> given = matrix.values();
  std::vector<double> values = given;
  const auto width = static_cast<std::size_t>(matrix.shape()[1]);
  for (const Parts::value_type& r : rows) {
    const std::vector<std::int64_t> at_rows = positions_of(r);
    for (const Parts::value_type& c : columns) {
      const std::vector<std::int64_t> at_columns = positions_of(c);
      if (at_rows.empty() || at_columns.empty()) continue;
      const auto each = [&](const auto& f) {
        std::size_t k = 0;
        for (const std::int64_t i : at_rows) {
          for (const std::int64_t j : at_columns)
            f(k++, static_cast<std::size_t>(i) * width + static_cast<std::size_t>(j));
        }
      };
      std::vector<double> own(at_rows.size() * at_columns.size());
      each([&](std::size_t k, std::size_t at) { own[k] = given[at]; });
      const Shape shape = {std::ssize(at_rows), std::ssize(at_columns)};
      const std::vector<double> read =
          quantize_fp8(Tensor::from_values(DType::float32, shape, own), box_rows, box_columns)
              .dequantized.values();
      each([&](std::size_t k, std::size_t at) { values[at] = read[k]; });
    }
  }
  return Tensor::from_values(DType::float32, matrix.shape(), values);
}

Tensor as_matrix(const Tensor& t) {
  const std::int64_t width = t.shape().back();
  return t.reshaped({width == 0 ? 0 : t.size() / width, width});
}

// Every expert for itself.
Tensor weights(const NamedTensor& w, const std::vector<CutInput>& cuts) {
  const std::int64_t rows = w.tensor.shape()[w.tensor.shape().size() - 2];
  const Tensor matrix = as_matrix(w.tensor);
  Parts cut;
  for (std::int64_t begin = 0; begin < matrix.shape()[0]; begin += rows) {
    Parts of_expert = cut_of(cuts, w, 1);
    for (Parts::value_type& part : of_expert) {
      for (auto& [first, last] : part) {
        first += begin;
        last += begin;
      }
      cut.push_back(std::move(part));
    }
  }
  return read_back(matrix, cut, cut_of(cuts, w, 0), fp8_block, fp8_block).reshaped(w.tensor.shape());
}

// One scale for a stretch of a row.
Tensor rows_of(const NamedTensor& x, const std::vector<CutInput>& cuts) {
  const Tensor matrix = as_matrix(x.tensor);
  return read_back(matrix, uncut(matrix.shape()[0]), cut_of(cuts, x, 0), 1, fp8_block)
      .reshaped(x.tensor.shape());
}

std::vector<Stretch> experts_of(const Tensor* sizes, std::int64_t rows) {
  if (sizes == nullptr) return {{0, rows}};
  std::vector<Stretch> experts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes->indices()) {
    if (size < 0 || size > rows - begin)
      throw Error("group_sizes: a group of {} rows, where {} are left", size, rows - begin);
    experts.emplace_back(begin, begin + size);
    begin += size;
  }
  return experts;
}

// One scale for a stretch of a column.
Tensor columns_of(const NamedTensor& x, const std::vector<Stretch>& experts, const Parts& tokens) {
  const Tensor matrix = as_matrix(x.tensor);
  return read_back(matrix, within(experts, tokens), uncut(matrix.shape()[1]), fp8_block, 1)
      .reshaped(x.tensor.shape());
}

}  // namespace

void take_fp8(const std::string& output, std::vector<NamedTensor>& inputs, const std::vector<CutInput>& cuts,
              TokenBlocks tokens) {
  const Tensor* sizes = find_tensor(inputs, "group_sizes");
  for (NamedTensor& input : inputs) {
    if (input.tensor.shape().size() < 2) continue;
    if (input.name == "w") input.tensor = weights(input, cuts);
    if (input.name != "x" && input.name != "grad_y") continue;
    const std::int64_t rows = as_matrix(input.tensor).shape()[0];
    if (input.name == "x" || output == "grad_x") input.tensor = rows_of(input, cuts);
    if (output != "grad_w" || tokens == TokenBlocks::unknown) continue;
    const bool is_cut = tokens == TokenBlocks::cut && input.tensor.shape().size() == 2;
    input.tensor = columns_of(input, experts_of(sizes, rows), is_cut ? cut_of(cuts, input, 1) : uncut(rows));
  }
}

}  // namespace assay
