#include "assay/dumps/hdf5/windows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/pages.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t usual_capacity = std::size_t{64} << 20;
// What one thread takes at a time when all is asked for; less is not worth a thread.
constexpr std::size_t bytes_per_step = std::size_t{1} << 20;

class Windows {
 public:
  Windows(Hdf5Chunks chunks, const Hdf5File::Dataset& dataset, DType dtype,
          std::shared_ptr<const MappedFile> file)
      : chunks_(std::move(chunks)),
        dataset_(dataset),
        dtype_(dtype),
        file_(std::move(file)),
        element_(size_of(dtype)),
        size_(element_count(dataset.shape)),
        is_filled_(chunks_.extents.empty()),
        is_swapped_(dataset.big_endian && element_ > 1),
        grid_(is_filled_ ? Shape{size_} : dataset.shape, is_filled_ ? Shape{size_} : chunks_.extents),
        cache_(chunks_, dataset_, *file_,
               std::max(usual_capacity, is_filled_ ? 0 : grid_.open_chunks() * cost_of_chunk())) {
    if (!chunks_.filters.empty()) return;
    for (std::size_t i = 0; i < chunks_.places.size(); ++i) {
      const Hdf5Chunks::Place& place = chunks_.places[i];
      if (place.offset == hdf5_none || place.size == bytes_of_chunk(chunks_)) continue;
      throw Error("{}: the chunk at {} is damaged: it has {} bytes, expected {}",
                  where(*file_, dataset_.name), to_string(corner_of(i, dataset_.shape, chunks_.extents)),
                  place.size, bytes_of_chunk(chunks_));
    }
  }

  Tensor window(std::int64_t begin, std::int64_t count) const {
    const std::size_t bytes = static_cast<std::size_t>(count) * element_;
    if (const std::byte* place = in_place(begin, count)) return {dtype_, {count}, {place, bytes}, file_};
    if (bytes > bytes_per_step) {
      const Pages pages = allocate_pages(bytes, where(*file_, dataset_.name));
      fill_by_threads(begin, pages.bytes);
      return {dtype_, {count}, pages.bytes, pages.owner};
    }
    const std::shared_ptr<std::byte[]> out(new std::byte[bytes]);  // not zeroed: all is written
    fill(begin, {out.get(), bytes});
    return {dtype_, {count}, {out.get(), bytes}, out};
  }

 private:
  std::size_t cost_of_chunk() const { return bytes_of_chunk(chunks_) + Hdf5ChunkCache::cost_of_entry; }

  // nullptr where they do not lie so.
  const std::byte* in_place(std::int64_t begin, std::int64_t count) const {
    if (is_filled_ || is_swapped_ || !chunks_.filters.empty() || count == 0) return nullptr;
    const std::byte* place = nullptr;
    if (!grid_.is_one_run(begin, begin + count)) return nullptr;
    grid_.for_each_run(begin, begin + count, [&](std::size_t chunk, std::int64_t from, auto, auto) {
      if (chunks_.places[chunk].offset != hdf5_none)
        place = stored(chunk) + static_cast<std::size_t>(from) * element_;
    });
    return place;
  }

  // parse_chunks has seen that they lie in the file.
  const std::byte* stored(std::size_t chunk) const {
    return file_->bytes().data() + chunks_.places[chunk].offset;
  }

  void fill(std::int64_t begin, std::span<std::byte> out) const {
    if (is_filled_) {
      fill_with(out, chunks_.fill);
    } else {
      const std::int64_t end = begin + static_cast<std::int64_t>(out.size() / element_);
      const auto copy = [&](auto&& bytes_of) {
        grid_.for_each_run(
            begin, end, [&](std::size_t chunk, std::int64_t from, std::int64_t to, std::int64_t n) {
              const auto target = out.subspan(static_cast<std::size_t>(to) * element_,
                                              static_cast<std::size_t>(n) * element_);
              if (chunks_.places[chunk].offset == hdf5_none) {
                fill_with(target, chunks_.fill);
              } else {
                std::memcpy(target.data(), bytes_of(chunk) + static_cast<std::size_t>(from) * element_,
                            target.size());
              }
            });
      };
      if (chunks_.filters.empty()) {
        copy([&](std::size_t chunk) { return stored(chunk); });
      } else {
        const std::vector<std::size_t> touched = touched_by(begin, end);
        const Hdf5ChunkCache::Chunks decoded = cache_.get(touched);
        copy([&](std::size_t chunk) {
          const auto found = std::ranges::lower_bound(touched, chunk) - touched.begin();
          return decoded[static_cast<std::size_t>(found)]->bytes().data();
        });
      }
    }
    if (is_swapped_) swap_bytes(out, element_);
  }

  std::vector<std::size_t> touched_by(std::int64_t begin, std::int64_t end) const {
    std::vector<std::size_t> touched;
    grid_.for_each_run(begin, end, [&](std::size_t chunk, auto, auto, auto) {
      if (chunks_.places[chunk].offset != hdf5_none && (touched.empty() || touched.back() != chunk))
        touched.push_back(chunk);
    });
    std::ranges::sort(touched);
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    return touched;
  }

  void fill_by_threads(std::int64_t begin, std::span<std::byte> out) const {
    const std::size_t step = bytes_per_step / element_ * element_, steps = (out.size() + step - 1) / step;
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr problem;
    std::size_t problem_at = steps;
    const auto work = [&] {
      for (std::size_t i = next++; i < steps; i = next++) {
        try {
          fill(begin + static_cast<std::int64_t>(i * (step / element_)),
               out.subspan(i * step, std::min(step, out.size() - i * step)));
        } catch (...) {
          next = steps;
          const std::lock_guard lock(mutex);
          if (i < problem_at) {  // the first is named, whichever thread came to it
            problem_at = i;
            problem = std::current_exception();
          }
        }
      }
    };
    {
      const std::size_t threads = std::min<std::size_t>(std::thread::hardware_concurrency(), steps);
      std::vector<std::jthread> pool;
      for (std::size_t t = 1; t < threads; ++t) pool.emplace_back(work);
      work();
    }
    if (problem) std::rethrow_exception(problem);
  }

  Hdf5Chunks chunks_;
  Hdf5File::Dataset dataset_;
  DType dtype_;
  std::shared_ptr<const MappedFile> file_;
  std::size_t element_;
  std::int64_t size_;
  bool is_filled_, is_swapped_;
  ChunkGrid grid_;
  mutable Hdf5ChunkCache cache_;
};

}  // namespace

TensorSource windows_of(Hdf5Chunks chunks, const Hdf5File::Dataset& dataset, DType dtype,
                        std::shared_ptr<const MappedFile> file) {
  if (element_count(dataset.shape) == 0) return Tensor(dtype, dataset.shape);
  const auto windows = std::make_shared<const Windows>(std::move(chunks), dataset, dtype, std::move(file));
  return {dtype, dataset.shape,
          [windows](std::int64_t begin, std::int64_t count) { return windows->window(begin, count); }};
}

ChunkGrid::ChunkGrid(const Shape& shape, const Shape& extents) {
  std::size_t last = shape.size() - 1;
  std::int64_t inner = 1;
  for (; last > 0 && extents[last] == shape[last]; --last) inner *= shape[last];
  for (std::size_t d = 0; d <= last; ++d) {
    shape_.push_back(shape[d] * (d == last ? inner : 1));
    extents_.push_back(extents[d] * (d == last ? inner : 1));
    along_.push_back((shape[d] - 1) / extents[d] + 1);
  }
}

// Those beside each other in all dimensions behind the first in which a chunk holds more than one index.
std::size_t ChunkGrid::open_chunks() const {
  std::size_t d = 0, chunks = 1;
  while (d < shape_.size() && std::min(extents_[d], shape_[d]) == 1) ++d;
  while (++d < shape_.size()) chunks *= static_cast<std::size_t>(along_[d]);
  return chunks;
}

ChunkGrid::RowStart ChunkGrid::row_of(std::int64_t index) const {
  RowStart row{0, 0};
  std::int64_t chunks = along_.back(), elements = extents_.back();
  for (std::size_t d = shape_.size() - 1; d-- > 0;) {
    const std::int64_t at = index % shape_[d], chunk = at / extents_[d];
    index /= shape_[d];
    row.chunk += chunk * chunks;
    row.from += (at - chunk * extents_[d]) * elements;
    chunks *= along_[d];
    elements *= extents_[d];
  }
  return row;
}

}  // namespace assay
