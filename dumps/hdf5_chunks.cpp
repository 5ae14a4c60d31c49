#include "assay/dumps/hdf5_chunks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "assay/dumps/claim.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::uint64_t max_filters = 32;  // of the file format
// Less is not worth a thread.
constexpr std::size_t bytes_per_thread = std::size_t{1} << 20;

std::size_t bytes_of_chunk(const Hdf5Chunks& chunks) {
  return static_cast<std::size_t>(element_count(chunks.extents)) * chunks.fill.size();
}

// The part of a chunk that lies inside the tensor, row by row: a row is as long as both are contiguous.
template <class Row>
void for_each_row(const Shape& shape, const Shape& extents, const Shape& corner, Row&& row) {
  const std::size_t rank = shape.size();
  std::size_t last = rank - 1;
  while (last > 0 && extents[last] == shape[last]) --last;
  Shape size(rank);
  for (std::size_t d = 0; d < rank; ++d) size[d] = std::min(extents[d], shape[d] - corner[d]);
  std::int64_t inner = 1;
  for (std::size_t d = last + 1; d < rank; ++d) inner *= shape[d];
  Shape at(rank, 0);
  while (true) {
    std::int64_t from = 0, to = 0;
    for (std::size_t d = 0; d <= last; ++d) {
      from = from * extents[d] + at[d];
      to = to * shape[d] + corner[d] + at[d];
    }
    row(static_cast<std::size_t>(from * inner), static_cast<std::size_t>(to * inner),
        static_cast<std::size_t>(size[last] * inner));
    std::size_t d = last;
    while (d-- > 0) {
      if (++at[d] < size[d]) break;
      at[d] = 0;
    }
    if (d > last) return;  // wrapped: all rows are done
  }
}

Shape corner_of(std::size_t chunk, const Shape& shape, const Shape& extents) {
  Shape corner(shape.size());
  auto rest = static_cast<std::int64_t>(chunk);
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::int64_t along = (shape[d] - 1) / extents[d] + 1;
    corner[d] = rest % along * extents[d];
    rest /= along;
  }
  return corner;
}

class Assembly {
 public:
  Assembly(const Hdf5Chunks& chunks, const Hdf5File::Dataset& dataset, const MappedFile& file,
           std::span<std::byte> target)
      : chunks_(chunks), dataset_(dataset), file_(file), target_(target) {}

  void run() {
    const std::size_t threads = std::clamp<std::size_t>(
        std::min<std::size_t>(std::thread::hardware_concurrency(), target_.size() / bytes_per_thread), 1,
        chunks_.places.size());
    {
      std::vector<std::jthread> pool;
      for (std::size_t t = 1; t < threads; ++t) pool.emplace_back([this] { work(); });
      work();
    }
    if (problem_) std::rethrow_exception(problem_);
  }

 private:
  void work() {
    try {
      Hdf5Unfilter unfilter(chunks_.filters, bytes_of_chunk(chunks_));
      for (std::size_t i = next_++; i < chunks_.places.size(); i = next_++) place(i, unfilter);
    } catch (...) {
      next_ = chunks_.places.size();
      const std::lock_guard lock(mutex_);
      problem_ = std::current_exception();
    }
  }

  void place(std::size_t index, Hdf5Unfilter& unfilter) {
    const Hdf5Chunks::Place& chunk = chunks_.places[index];
    const Shape corner = corner_of(index, dataset_.shape, chunks_.extents);
    const std::size_t element = chunks_.fill.size();
    if (chunk.offset == hdf5_none) {
      for_each_row(dataset_.shape, chunks_.extents, corner, [&](std::size_t, std::size_t to, std::size_t n) {
        fill_with(target_.subspan(to * element, n * element), chunks_.fill);
      });
      return;
    }
    bool is_edge = false;
    for (std::size_t d = 0; d < corner.size(); ++d)
      is_edge = is_edge || corner[d] + chunks_.extents[d] > dataset_.shape[d];
    const std::uint64_t skipped = is_edge && chunks_.edges_are_unfiltered ? hdf5_none : chunk.skipped;
    const auto bytes =
        unfilter(file_.range(chunk.offset, chunk.size, "a chunk of '" + dataset_.name + "'"), skipped);
    if (bytes.empty()) {
      throw Error("{}: the chunk at {} is damaged: it does not inflate to {} bytes, or fails its checksum",
                  where(file_, dataset_.name), to_string(corner), bytes_of_chunk(chunks_));
    }
    for_each_row(dataset_.shape, chunks_.extents, corner,
                 [&](std::size_t from, std::size_t to, std::size_t n) {
                   std::memcpy(target_.data() + to * element, bytes.data() + from * element, n * element);
                 });
  }

  const Hdf5Chunks& chunks_;
  const Hdf5File::Dataset& dataset_;
  const MappedFile& file_;
  std::span<std::byte> target_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr problem_;
};

}  // namespace

Hdf5Chunks parse_chunks(MessageReader message, const Hdf5File::Dataset& dataset, const MappedFile& file) {
  Hdf5Chunks chunks;
  const std::string fill = message.text();
  if (fill.size() != size_of(*dataset.dtype)) message.fail();
  const auto bytes = std::as_bytes(std::span(fill));
  chunks.fill.assign(bytes.begin(), bytes.end());
  const std::uint64_t rank = message.number_to(dataset.shape.size());
  if (rank == 0) {
    message.expect_end();
    return chunks;
  }
  if (rank != dataset.shape.size()) message.fail();
  std::uint64_t count = 1;
  constexpr std::uint64_t max_extent = std::uint64_t{1} << 32;  // of the file format
  for (const std::int64_t extent : dataset.shape) {
    const auto along = static_cast<std::int64_t>(message.number_to(max_extent));
    if (along == 0) message.fail();
    chunks.extents.push_back(along);
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>((extent + along - 1) / along), &count))
      message.fail();
  }
  if (static_cast<std::uint64_t>(element_count(chunks.extents)) > max_extent) message.fail();
  chunks.edges_are_unfiltered = message.number_to(1) == 1;
  const std::uint64_t filters = message.number_to(max_filters);
  for (std::uint64_t i = 0; i < filters; ++i) {
    const std::uint64_t id = message.number();
    std::string name = message.text();
    chunks.filters.push_back({id, std::move(name), message.number()});
  }
  if (message.number_to(hdf5_max_chunks) != count) message.fail();
  // Chunks do not share bytes, so that together they are no more than the file.
  std::uint64_t stored = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = message.number(), size = message.number();
    chunks.places.push_back({offset, size, message.number()});
    if (offset == hdf5_none) continue;
    file.range(offset, size, "a chunk of '" + dataset.name + "'");
    stored += size;
    if (stored > file.bytes().size())
      throw Error("{}: its chunks overlap: the file is damaged", where(file, dataset.name));
  }
  message.expect_end();
  check_claim(static_cast<std::uint64_t>(element_count(dataset.shape)) * chunks.fill.size(), stored,
              where(file, dataset.name));
  return chunks;
}

std::uint64_t elements_in_place(const Hdf5Chunks& chunks, const Hdf5File::Dataset& dataset) {
  if (!chunks.filters.empty() || chunks.places.empty()) return hdf5_none;
  if (!std::equal(chunks.extents.begin() + 1, chunks.extents.end(), dataset.shape.begin() + 1))
    return hdf5_none;
  const std::uint64_t size = bytes_of_chunk(chunks);
  std::uint64_t expected = chunks.places.front().offset;
  for (const Hdf5Chunks::Place& place : chunks.places) {
    if (place.offset == hdf5_none || place.offset != expected || place.size != size) return hdf5_none;
    expected += size;
  }
  return chunks.places.front().offset;
}

Pages assemble(const Hdf5Chunks& chunks, const Hdf5File::Dataset& dataset, const MappedFile& file) {
  const std::size_t size = static_cast<std::size_t>(element_count(dataset.shape)) * chunks.fill.size();
  Pages pages = allocate_pages(size, where(file, dataset.name));
  if (chunks.extents.empty()) {
    fill_with(pages.bytes, chunks.fill);
  } else if (size != 0) {
    Assembly(chunks, dataset, file, pages.bytes).run();
  }
  return pages;
}

void fill_with(std::span<std::byte> bytes, std::span<const std::byte> fill) {
  if (std::all_of(fill.begin(), fill.end(), [](std::byte b) { return b == std::byte{0}; })) return;
  for (std::size_t at = 0; at < bytes.size(); at += fill.size())
    std::memcpy(bytes.data() + at, fill.data(), fill.size());
}

}  // namespace assay
