#include "assay/dumps/hdf5/filters.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "assay/dumps/io/file.h"

namespace assay {
namespace {

// Behind the own ones: szip, nbit, scaleoffset.
constexpr std::uint64_t last_of_library = 6;
constexpr std::size_t checksum_size = 4;

bool is_own(const Hdf5Filter& filter) {
  return filter.id >= hdf5_deflate && filter.id <= hdf5_fletcher32;
}

template <class Word>
void join_bytes(const std::byte* from, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i) {
    Word word = 0;
    for (std::size_t b = 0; b < sizeof word; ++b)
      word =
          static_cast<Word>(word | static_cast<Word>(std::to_integer<Word>(from[b * count + i]) << (8 * b)));
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
}

// All first bytes of the elements stand first, then all second ones, .. A rest is not shuffled.
std::unique_ptr<std::byte[]> unshuffled(std::span<const std::byte> bytes, std::size_t element) {
  std::unique_ptr<std::byte[]> made(new std::byte[bytes.size()]);
  const std::size_t count = element == 0 ? 0 : bytes.size() / element;
  switch (element) {  // the compiler makes vectors of the usual ones
    case 2:
      join_bytes<std::uint16_t>(bytes.data(), count, made.get());
      break;
    case 4:
      join_bytes<std::uint32_t>(bytes.data(), count, made.get());
      break;
    default:
      for (std::size_t b = 0; b < element && count != 0; ++b) {
        for (std::size_t i = 0; i < count; ++i) made[i * element + b] = bytes[b * count + i];
      }
  }
  std::ranges::copy(bytes.subspan(count * element), made.get() + count * element);
  return made;
}

}  // namespace

Hdf5Decoder decoder_of(const std::vector<Hdf5Filter>& filters) {
  const auto is_known = [](const Hdf5Filter& filter) {
    return filter.id >= 1 && filter.id <= last_of_library;
  };
  if (!std::all_of(filters.begin(), filters.end(), is_known)) return Hdf5Decoder::none;
  // What lies between two deflates has no size that is known before.
  const auto deflates = std::count_if(filters.begin(), filters.end(),
                                      [](const Hdf5Filter& filter) { return filter.id == hdf5_deflate; });
  const bool own = std::all_of(filters.begin(), filters.end(), is_own) && deflates <= 1;
  return own ? Hdf5Decoder::own : Hdf5Decoder::library;
}

std::string unknown_filter(const std::vector<Hdf5Filter>& filters) {
  for (const Hdf5Filter& filter : filters) {
    if (filter.id == 0 || filter.id > last_of_library)
      return "filter " + std::to_string(filter.id) + (filter.name.empty() ? "" : " (" + filter.name + ")");
  }
  return "";
}

Hdf5Unfilter::Hdf5Unfilter(const std::vector<Hdf5Filter>& filters, std::size_t size)
    : filters_(filters), size_(size) {
  if (inflateInit(&stream_) != Z_OK) throw std::bad_alloc();
}

Hdf5Unfilter::~Hdf5Unfilter() {
  inflateEnd(&stream_);
}

Hdf5Unfilter::Chunk Hdf5Unfilter::operator()(std::span<const std::byte> stored, std::uint64_t skipped) {
  const auto is_applied = [&](std::size_t i) { return (skipped >> i & 1) == 0; };
  // What deflate was given: the chunk, and the checksums that were added before.
  std::size_t deflated = size_;
  for (std::size_t i = 0; i < filters_.size() && filters_[i].id != hdf5_deflate; ++i) {
    if (filters_[i].id == hdf5_fletcher32 && is_applied(i)) deflated += checksum_size;
  }
  Chunk chunk{stored, nullptr};
  for (std::size_t i = filters_.size(); i-- > 0;) {
    if (!is_applied(i)) continue;
    switch (filters_[i].id) {
      case hdf5_deflate:
        chunk.owner = inflate(chunk.bytes, deflated);
        if (chunk.owner == nullptr) return {};
        chunk.bytes = {chunk.owner.get(), deflated};
        break;
      case hdf5_shuffle:
        chunk.owner = unshuffled(chunk.bytes, filters_[i].parameter);
        chunk.bytes = {chunk.owner.get(), chunk.bytes.size()};
        break;
      default: {
        if (chunk.bytes.size() < checksum_size) return {};
        const std::size_t size = chunk.bytes.size() - checksum_size;
        const std::uint32_t expected = load_little<std::uint32_t>(chunk.bytes, size);
        chunk.bytes = chunk.bytes.first(size);
        const std::uint32_t sum = fletcher32(chunk.bytes);
        // HDF5 1.6.2 and before wrote both halves in the other byte order, and the library still takes that.
        const std::uint32_t old = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);
        if (expected != sum && expected != old) return {};
      }
    }
  }
  if (chunk.bytes.size() != size_) return {};
  return chunk;
}

// Nothing if that is not its size.
std::unique_ptr<std::byte[]> Hdf5Unfilter::inflate(std::span<const std::byte> stored, std::size_t size) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();
  if (stored.size() > most || size > most || inflateReset(&stream_) != Z_OK) return nullptr;
  std::unique_ptr<std::byte[]> made(new std::byte[size]);  // not zeroed: a claim costs nothing by itself
  stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(stored.data()));
  stream_.avail_in = static_cast<uInt>(stored.size());
  stream_.next_out = reinterpret_cast<Bytef*>(made.get());
  stream_.avail_out = static_cast<uInt>(size);
  const bool whole = ::inflate(&stream_, Z_FINISH) == Z_STREAM_END && stream_.avail_out == 0;
  return whole ? std::move(made) : nullptr;
}

// Fletcher 1982 over words of 16 bits, high byte first; an odd last byte is the high one.
std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  constexpr std::size_t block = 360;  // words that a 32-bit sum takes without an overflow
  std::uint32_t low = 0, high = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const std::size_t words = bytes.size() / 2;
  for (std::size_t at = 0; at < words;) {
    for (const std::size_t end = std::min(words, at + block); at < end; ++at) {
      low += byte(2 * at) << 8 | byte(2 * at + 1);
      high += low;
    }
    low = fold(low);
    high = fold(high);
  }
  if (bytes.size() % 2 != 0) {
    low += byte(bytes.size() - 1) << 8;
    high += low;
    low = fold(low);
    high = fold(high);
  }
  return fold(high) << 16 | fold(low);
}

}  // namespace assay
