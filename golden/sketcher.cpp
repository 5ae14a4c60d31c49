#include "assay/golden/sketcher.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/golden/sketch_kernels.h"

namespace assay {
namespace {

constexpr std::int64_t most_columns = 1 << 13;   // at once: 1 MB of signs, which stays in the cache
constexpr std::int64_t part_elements = 1 << 16;  // whose float64 stay in the cache
constexpr std::int64_t most_parts = 64;          // whose sums wait for those before them
constexpr std::uint64_t any_nan = 0x7FF8000000000000;

// The block of an index: floor(index blocks / extent).
std::int64_t block_of(std::int64_t index, std::int64_t blocks, std::int64_t extent) {
  return static_cast<std::int64_t>(static_cast<__int128>(index) * blocks / extent);
}

// The first index of a block.
std::int64_t begin_of(std::int64_t block, std::int64_t blocks, std::int64_t extent) {
  return static_cast<std::int64_t>((static_cast<__int128>(block) * extent + blocks - 1) / blocks);
}

// +1 or -1 by `signs` bits of a word.
void write_signs(std::int64_t index, HashAxis axis, const SketchSpec& spec, double* out) {
  std::uint64_t bits = 0;
  for (std::int64_t j = 0; j < spec.signs; ++j) {
    if (j % 64 == 0) bits = sign_bits(index, axis, spec.seed, static_cast<std::uint64_t>(j / 64));
    out[j] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(1.0) | bits << 63);
    bits >>= 1;
  }
}

// The bits that fingerprints are of.
void write_bits(DType dtype, std::span<const std::byte> bytes, std::span<const double> values,
                std::uint64_t* out) {
  if (is_float(dtype)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i] = std::isnan(values[i]) ? any_nan : std::bit_cast<std::uint64_t>(values[i]);
    return;
  }
  const std::size_t size = size_of(dtype);
  const bool is_signed =
      dtype == DType::int64 || dtype == DType::int32 || dtype == DType::int16 || dtype == DType::int8;
  const int unused = static_cast<int>(64 - 8 * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t code = 0;
    std::memcpy(&code, bytes.data() + i * size, size);
    out[i] =
        is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(code << unused) >> unused) : code;
  }
}

struct Magnitudes {
  double square = 0, peak = 0;
};

Magnitudes magnitudes_of(std::span<const double> x) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> squares{}, peaks{};
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const double a = std::abs(x[i + l]);
      squares[l] += a * a;
      peaks[l] = a > peaks[l] ? a : peaks[l];
    }
  }
  for (; i < x.size(); ++i) {
    squares[0] += x[i] * x[i];
    peaks[0] = std::max(peaks[0], std::abs(x[i]));
  }
  Magnitudes m;
  for (std::size_t l = 0; l < lanes; ++l) {
    m.square += squares[l];
    m.peak = std::max(m.peak, peaks[l]);
  }
  return m;
}

}  // namespace

// What is known of a stretch of columns.
struct Sketcher::Columns {
  struct Stretch {  // of one block
    std::int64_t block, begin, end;
  };
  std::int64_t first = 0, count = 0;
  std::size_t lanes = 0;
  std::vector<double> signs;        // [count, lanes]
  std::vector<std::uint64_t> keys;  // of fingerprints
  std::vector<Stretch> stretches;
};

const Sketcher::Columns& Sketcher::columns_of(std::int64_t first, std::int64_t count) {
  if (columns_ == nullptr) columns_ = std::make_shared<Columns>();
  Columns* const columns = columns_.get();
  if (columns->first == first && columns->count == count) return *columns;
  const SketchSpec& spec = sketch_.spec;
  columns->first = first;
  columns->count = count;
  columns->lanes = (static_cast<std::size_t>(spec.signs) + sign_lanes - 1) / sign_lanes * sign_lanes;
  columns->keys.resize(static_cast<std::size_t>(count));
  if (!prints_only_) columns->signs.resize(static_cast<std::size_t>(count) * columns->lanes);
  columns->stretches.clear();
  each_in_parallel(count, grain_of(spec.signs), [&](std::int64_t c) {
    const auto at = static_cast<std::size_t>(c);
    columns->keys[at] = fingerprint_key(first + c, HashAxis::column, spec.seed);
    if (!prints_only_)
      write_signs(first + c, HashAxis::column, spec, columns->signs.data() + at * columns->lanes);
  });
  for (std::int64_t c = first; c < first + count;) {
    const std::int64_t block = block_of(c, spec.grid_columns, extents_.columns);
    const std::int64_t end =
        std::min(first + count, begin_of(block + 1, spec.grid_columns, extents_.columns));
    columns->stretches.push_back({block, c - first, end - first});
    c = end;
  }
  return *columns;
}

// What some rows of a box add, in some columns.
class Sketcher::Rows {
 public:
  Rows(const Sketcher& all, const Columns& columns) : all_(all), columns_(columns) {}

  /// @param column  of the box, at which `columns` begin
  void take(const TensorSource& box, const Shape& offsets, std::int64_t first, std::int64_t count,
            std::int64_t column) {
    thread_local std::vector<double> values;
    thread_local std::vector<std::uint64_t> bits;
    const std::int64_t width = matrix_extents(box.shape()).columns;
    values.resize(static_cast<std::size_t>(count * columns_.count));
    bits.resize(values.size());
    values_ = values;
    bits_ = bits;
    if (columns_.count == width) {
      decode_into(box.window(first * width, count * width), 0);
    } else {
      for (std::int64_t r = 0; r < count; ++r)
        decode_into(box.window((first + r) * width + column, columns_.count), r * columns_.count);
    }
    measure();
    const SketchSpec& spec = all_.sketch_.spec;
    if (!all_.prints_only_) sums_.assign(static_cast<std::size_t>(spec.size()), 0.0);
    std::vector<std::int64_t> ids;
    for (std::int64_t r = 0; r < count; ++r) ids.push_back(all_.row_of(first + r, box.shape(), offsets));
    print(ids);
    if (!all_.prints_only_) project(ids);
  }

  void add_to(Sketch& sketch) const {
    for (std::size_t i = 0; i < sums_.size(); ++i) sketch.values[i] += sums_[i];
    sketch.nan += nan_;
    sketch.positive_infinities += positive_;
    sketch.negative_infinities += negative_;
    sketch.square = *sketch.square + magnitudes_.square;
    sketch.peak = std::max(*sketch.peak, magnitudes_.peak);
    sketch.fingerprint = *sketch.fingerprint + print_;
  }

 private:
  void decode_into(const Tensor& window, std::int64_t at) {
    const auto values =
        values_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(window.size()));
    decode(window.dtype(), window.bytes(), values);
    write_bits(window.dtype(), window.bytes(), values, bits_.data() + at);
  }

  // What is not finite is counted, and zero from here on.
  void measure() {
    magnitudes_ = magnitudes_of(values_);
    if (std::isfinite(magnitudes_.square)) return;
    for (double& v : values_) {
      if (std::isfinite(v)) continue;
      ++(std::isnan(v) ? nan_ : v > 0 ? positive_ : negative_);
      v = 0;
    }
    magnitudes_ = magnitudes_of(values_);
  }

  void print(const std::vector<std::int64_t>& ids) {
    const auto width = static_cast<std::size_t>(columns_.count);
    for (std::size_t r = 0; r < ids.size(); ++r)
      print_ +=
          print_row(bits_.data() + r * width, width,
                    fingerprint_key(ids[r], HashAxis::row, all_.sketch_.spec.seed), columns_.keys.data());
  }

  void project(const std::vector<std::int64_t>& ids) {
    const SketchSpec& spec = all_.sketch_.spec;
    const auto width = static_cast<std::size_t>(columns_.count), signs = static_cast<std::size_t>(spec.signs);
    std::vector<double> row_signs(ids.size() * signs), w(ids.size() * columns_.lanes);
    for (std::size_t r = 0; r < ids.size(); ++r)
      write_signs(ids[r], HashAxis::row, spec, row_signs.data() + r * signs);
    for (const Columns::Stretch& s : columns_.stretches) {
      const auto begin = static_cast<std::size_t>(s.begin);
      project_rows(values_.data() + begin, width, ids.size(), static_cast<std::size_t>(s.end - s.begin),
                   columns_.signs.data() + begin * columns_.lanes, columns_.lanes, w.data());
      for (std::size_t r = 0; r < ids.size(); ++r) {
        const std::int64_t block = block_of(ids[r], spec.grid_rows, all_.extents_.rows);
        double* const sum = sums_.data() + (block * spec.grid_columns + s.block) * spec.signs;
        for (std::size_t j = 0; j < signs; ++j)
          sum[j] += row_signs[r * signs + j] * w[r * columns_.lanes + j];
      }
    }
  }

  const Sketcher& all_;
  const Columns& columns_;
  std::span<double> values_;  // only while it takes
  std::span<std::uint64_t> bits_;
  std::vector<double> sums_;
  std::int64_t nan_ = 0, positive_ = 0, negative_ = 0;
  Magnitudes magnitudes_;
  std::uint64_t print_ = 0;
};

Sketcher::Sketcher(const Shape& shape, const SketchSpec& spec, bool prints_only)
    : sketch_(Sketch::nothing(shape, spec)), extents_(matrix_extents(shape)), prints_only_(prints_only) {}

// The global row of a row of a box.
std::int64_t Sketcher::row_of(std::int64_t row, const Shape& box, const Shape& offsets) const {
  std::int64_t id = 0, stride = 1;
  for (std::size_t d = box.empty() ? 0 : box.size() - 1; d-- > 0;) {
    id += (offsets[d] + row % box[d]) * stride;
    row /= box[d];
    stride *= sketch_.shape[d];
  }
  return id;
}

void Sketcher::add(const TensorSource& box, const Shape& offsets) {
  const Shape& shape = box.shape();
  bool fits = shape.size() == sketch_.shape.size() && offsets.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d)
    fits = offsets[d] >= 0 && shape[d] <= sketch_.shape[d] - offsets[d];
  if (!fits)
    throw Error("a box of {} at {} is not in a tensor of {}", to_string(shape), to_string(offsets),
                to_string(sketch_.shape));
  if (box.size() == 0) return;
  const auto [rows, width] = matrix_extents(shape);
  for (std::int64_t column = 0; column < width; column += most_columns) {
    const std::int64_t count = std::min(most_columns, width - column);
    const Columns& columns = columns_of((shape.empty() ? 0 : offsets.back()) + column, count);
    const std::int64_t height = std::max<std::int64_t>(1, part_elements / count);
    for (std::int64_t batch = 0; batch < rows; batch += height * most_parts) {
      const std::int64_t parts = std::min(most_parts, (rows - batch + height - 1) / height);
      std::vector<Rows> sums(static_cast<std::size_t>(parts), Rows(*this, columns));
      each_in_parallel(parts, 1, [&](std::int64_t p) {
        const std::int64_t first = batch + p * height;
        sums[static_cast<std::size_t>(p)].take(box, offsets, first, std::min(height, rows - first), column);
      });
      for (const Rows& part : sums) part.add_to(sketch_);  // in order, whoever made them
    }
  }
}

Sketch sketch_of(const TensorSource& tensor, const SketchSpec& spec) {
  Sketcher sketcher(tensor.shape(), spec_for(tensor.shape(), spec));
  sketcher.add(tensor, Shape(tensor.shape().size(), 0));
  return sketcher.result();
}

std::uint64_t fingerprint_of_bits(const TensorSource& tensor) {
  Sketcher sketcher(tensor.shape(), {}, true);  // prints know no blocks
  sketcher.add(tensor, Shape(tensor.shape().size(), 0));
  return sketcher.result().fingerprint.value();
}

}  // namespace assay
