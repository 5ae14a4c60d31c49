#include "assay/dumps/hdf5/chunks.h"

#include <algorithm>
#include <cstring>

#include "assay/dumps/io/claim.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::uint64_t max_filters = 32;  // of the file format

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
  const std::string what = "a chunk of '" + dataset.name + "'";
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = message.number(), size = message.number();
    chunks.places.push_back({offset, size, message.number()});
    if (offset == hdf5_none) continue;
    file.range(offset, size, what);
    stored += size;
    if (stored > file.bytes().size())
      throw Error("{}: its chunks overlap: the file is damaged", where(file, dataset.name));
  }
  message.expect_end();
  // A chunk is decoded whole, also where it is larger than the dataset.
  const auto claimed = static_cast<std::uint64_t>(element_count(dataset.shape)) * chunks.fill.size();
  check_claim(std::max<std::uint64_t>(claimed, stored == 0 ? 0 : bytes_of_chunk(chunks)), stored,
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

std::size_t bytes_of_chunk(const Hdf5Chunks& chunks) {
  return static_cast<std::size_t>(element_count(chunks.extents)) * chunks.fill.size();
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

void fill_with(std::span<std::byte> bytes, std::span<const std::byte> fill) {
  if (std::all_of(fill.begin(), fill.end(), [](std::byte b) { return b == std::byte{0}; })) {
    std::ranges::fill(bytes, std::byte{0});
    return;
  }
  for (std::size_t at = 0; at < bytes.size(); at += fill.size())
    std::memcpy(bytes.data() + at, fill.data(), fill.size());
}

}  // namespace assay
