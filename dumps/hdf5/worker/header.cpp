#include "header.h"

#include <bit>
#include <cstring>

#include "bytes.h"
#include "objects.h"

namespace assay {
namespace {

// Jenkins's lookup3 (hashlittle), public domain, 2006.
std::uint32_t lookup3(std::span<const std::byte> bytes) {
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(bytes.size()), b = a, c = a;
  const auto add = [&](std::span<const std::byte> block) {
    std::uint32_t words[3] = {};
    std::memcpy(words, block.data(), block.size());
    a += words[0];
    b += words[1];
    c += words[2];
  };
  if (bytes.empty()) return c;
  for (; bytes.size() > 12; bytes = bytes.subspan(12)) {
    add(bytes.first(12));
    a = (a - c) ^ std::rotl(c, 4);
    c += b;
    b = (b - a) ^ std::rotl(a, 6);
    a += c;
    c = (c - b) ^ std::rotl(b, 8);
    b += a;
    a = (a - c) ^ std::rotl(c, 16);
    c += b;
    b = (b - a) ^ std::rotl(a, 19);
    a += c;
    c = (c - b) ^ std::rotl(b, 4);
    b += a;
  }
  add(bytes);
  c = (c ^ b) - std::rotl(b, 14);
  a = (a ^ c) - std::rotl(c, 11);
  b = (b ^ a) - std::rotl(a, 25);
  c = (c ^ b) - std::rotl(b, 16);
  a = (a ^ c) - std::rotl(c, 4);
  b = (b ^ a) - std::rotl(a, 14);
  c = (c ^ b) - std::rotl(b, 24);
  return c;
}

struct Header {
  bool has_space = false, has_type = false, has_layout = false;
  std::uint64_t size = 0;  ///< of the elements, or of one in chunks, as the layout says
  int chunk_rank = 0;      ///< 0: contiguous; else one more than the dataset's
  PlainDataset dataset{};
};

bool read_space(Bytes bytes, Header& header) {
  const auto version = bytes.take<std::uint8_t>(), rank = bytes.take<std::uint8_t>();
  bytes.take<std::uint8_t>();  // flags: maximal extents follow
  const auto kind = bytes.take<std::uint8_t>();
  if (version == 1) {
    bytes.take<std::uint32_t>();
  } else if (version != 2 || kind > 1) {
    return false;
  }
  if (rank > std::size(header.dataset.extents) || header.has_space) return false;
  header.dataset.rank = rank;
  for (int d = 0; d < rank; ++d) header.dataset.extents[d] = bytes.take<std::uint64_t>();
  header.has_space = true;
  return !bytes.failed();
}

bool read_type(Bytes bytes, Header& header) {
  const auto kind = bytes.take<std::uint8_t>();
  std::uint8_t bits[3];
  for (std::uint8_t& b : bits) b = bytes.take<std::uint8_t>();
  const auto size = bytes.take<std::uint32_t>();
  const auto offset = bytes.take<std::uint16_t>(), precision = bytes.take<std::uint16_t>();
  const int version = kind >> 4;
  if (version < 1 || version > 3 || size > 8 || offset != 0 || precision != 8 * size || header.has_type)
    return false;
  std::optional<DType> dtype;
  if ((kind & 15) == 0) {
    dtype = integer_type(size, (bits[0] & 8) != 0);
  } else if ((kind & 15) == 1 && (bits[0] & 0x40) == 0) {  // that bit: the byte order of a VAX
    FloatFields fields{size, bits[1], 0, 0, 0, 0, 0};
    fields.exponent = bytes.take<std::uint8_t>();
    fields.exponent_bits = bytes.take<std::uint8_t>();
    fields.fraction = bytes.take<std::uint8_t>();
    fields.fraction_bits = bytes.take<std::uint8_t>();
    fields.bias = bytes.take<std::uint32_t>();
    dtype = float_type(fields);
  }
  if (!dtype || bytes.failed()) return false;
  header.dataset.dtype = *dtype;
  header.dataset.big_endian = size > 1 && (bits[0] & 1) != 0;
  header.has_type = true;
  return true;
}

// What the extents of a chunk are matters only to those who read it. Behind them stands the size of an
// element.
bool read_chunked_layout(Bytes bytes, std::uint8_t version, Header& header) {
  unsigned width = 4;
  if (version == 4) bytes.take<std::uint8_t>();  // flags
  header.chunk_rank = bytes.take<std::uint8_t>();
  if (version == 4) {
    width = bytes.take<std::uint8_t>();
  } else {
    bytes.take<std::uint64_t>();  // where the index of the chunks lies
  }
  if (width == 0 || width > sizeof header.size) return false;
  for (int d = 0; d < header.chunk_rank; ++d) {
    header.size = 0;
    std::memcpy(&header.size, bytes.take(width).data(), bytes.failed() ? 0 : width);
    if (header.size == 0) return false;
  }
  header.has_layout = true;
  return header.chunk_rank > 0 && !bytes.failed();
}

bool read_layout(Bytes bytes, Header& header) {
  const auto version = bytes.take<std::uint8_t>(), kind = bytes.take<std::uint8_t>();
  constexpr std::uint8_t contiguous = 1, chunked = 2;
  if ((version != 3 && version != 4) || header.has_layout || bytes.failed()) return false;
  if (kind == chunked) return read_chunked_layout(bytes, version, header);
  header.dataset.offset = bytes.take<std::uint64_t>();
  header.size = bytes.take<std::uint64_t>();
  if (kind != contiguous || bytes.failed()) return false;
  header.has_layout = true;
  return header.dataset.offset != hdf5_none;
}

bool read_message(unsigned type, unsigned flags, std::span<const std::byte> content, Header& header) {
  constexpr unsigned space = 1, datatype = 3, external_files = 7, layout = 8, continuation = 16;
  constexpr unsigned elsewhere = 2;  // the message is shared by several objects
  switch (type) {
    case external_files:
    case continuation:
      return false;
    case space:
      return (flags & elsewhere) == 0 && read_space(Bytes(content), header);
    case datatype:
      return (flags & elsewhere) == 0 && read_type(Bytes(content), header);
    case layout:
      return (flags & elsewhere) == 0 && read_layout(Bytes(content), header);
    default:
      return true;
  }
}

// Version 1: 16 bytes, then messages of whole 8 bytes.
bool read_version_1(Bytes bytes, Header& header) {
  bytes.take<std::uint8_t>();
  const auto count = bytes.take<std::uint16_t>();
  bytes.take<std::uint32_t>();  // how many links lead here
  const auto size = bytes.take<std::uint32_t>();
  bytes.take<std::uint32_t>();
  Bytes messages(bytes.take(size));
  for (unsigned i = 0; i < count && !bytes.failed(); ++i) {
    const auto type = messages.take<std::uint16_t>(), length = messages.take<std::uint16_t>();
    const auto flags = messages.take<std::uint8_t>();
    messages.take(3);
    const auto content = messages.take(length);
    if (messages.failed() || !read_message(type, flags, content, header)) return false;
  }
  return !bytes.failed();
}

// Version 2: a checksum behind the messages.
bool read_version_2(std::span<const std::byte> whole, Header& header) {
  Bytes bytes(whole.subspan(4));
  const auto version = bytes.take<std::uint8_t>(), flags = bytes.take<std::uint8_t>();
  if (version != 2) return false;
  if ((flags & 0x20) != 0) bytes.take(16);  // times
  if ((flags & 0x10) != 0) bytes.take(4);   // limits of attributes
  std::uint64_t size = 0;
  for (unsigned i = 0; i < 1U << (flags & 3); ++i)
    size |= static_cast<std::uint64_t>(bytes.take<std::uint8_t>()) << (8 * i);
  const std::size_t head = whole.size() - bytes.size();
  Bytes messages(bytes.take(size));
  const auto checksum = bytes.take<std::uint32_t>();
  if (bytes.failed() || lookup3(whole.first(head + size)) != checksum) return false;
  const std::size_t message_head = (flags & 4) != 0 ? 6 : 4;
  while (messages.size() >= message_head) {  // less is a gap
    const auto type = messages.take<std::uint8_t>();
    const auto length = messages.take<std::uint16_t>();
    const auto message_flags = messages.take<std::uint8_t>();
    if ((flags & 4) != 0) messages.take(2);
    const auto content = messages.take(length);
    if (messages.failed() || !read_message(type, message_flags, content, header)) return false;
  }
  return true;
}

}  // namespace

std::optional<PlainDataset> read_header(std::span<const std::byte> file, std::uint64_t address) {
  if (address >= file.size() || std::endian::native != std::endian::little) return std::nullopt;
  const auto bytes = file.subspan(address);
  Header header;
  const bool is_new = bytes.size() > 4 && std::memcmp(bytes.data(), "OHDR", 4) == 0;
  Bytes old(bytes);
  const bool fits =
      is_new ? read_version_2(bytes, header) : old.take<std::uint8_t>() == 1 && read_version_1(old, header);
  if (!fits || !header.has_space || !header.has_type || !header.has_layout) return std::nullopt;
  std::uint64_t size = size_of(header.dataset.dtype);
  for (int d = 0; d < header.dataset.rank; ++d) {
    if (__builtin_mul_overflow(size, header.dataset.extents[d], &size)) return std::nullopt;
  }
  if (header.chunk_rank != 0) {
    const bool fits =
        header.chunk_rank == header.dataset.rank + 1 && header.size == size_of(header.dataset.dtype);
    if (!fits) return std::nullopt;
    header.dataset.offset = hdf5_none;
    return header.dataset;
  }
  if (size != header.size || size > file.size() || header.dataset.offset > file.size() - size)
    return std::nullopt;
  return header.dataset;
}

}  // namespace assay
