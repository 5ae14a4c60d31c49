#include "assay/dumps/io/zip.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "assay/dumps/io/claim.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::uint32_t local_magic = 0x04034b50, member_magic = 0x02014b50, end_magic = 0x06054b50;
constexpr std::uint32_t end64_magic = 0x06064b50, locator64_magic = 0x07064b50;
constexpr std::size_t local_size = 30, member_size = 46, end_size = 22, end64_size = 56, locator64_size = 20;
constexpr std::size_t max_comment = 65535;
// Flag bits: encrypted, strongly encrypted, masked directory.
constexpr std::uint16_t encrypted = 0x2041;
// What deflate can reach at most; more is a lie.
constexpr std::uint64_t max_ratio = 1032;

struct Directory {
  std::uint64_t offset = 0, size = 0, count = 0;
};

// The end record is the last one whose comment ends exactly where the file ends.
std::uint64_t find_end(std::span<const std::byte> bytes, std::string_view where) {
  if (bytes.size() >= end_size) {
    const std::size_t lowest = bytes.size() - std::min(bytes.size(), end_size + max_comment);
    for (std::size_t at = bytes.size() - end_size + 1; at-- > lowest;) {
      if (load_little<std::uint32_t>(bytes, at) == end_magic &&
          at + end_size + load_little<std::uint16_t>(bytes, at + 20) == bytes.size()) {
        return at;
      }
    }
  }
  throw Error("{}: the zip archive has no end record: it is truncated", where);
}

Directory find_directory(std::span<const std::byte> bytes, std::string_view where) {
  const std::uint64_t end = find_end(bytes, where);
  bool one_disk = load_little<std::uint16_t>(bytes, end + 4) == 0 &&
                  load_little<std::uint16_t>(bytes, end + 6) == 0 &&
                  load_little<std::uint16_t>(bytes, end + 8) == load_little<std::uint16_t>(bytes, end + 10);
  Directory directory{load_little<std::uint32_t>(bytes, end + 16),
                      load_little<std::uint32_t>(bytes, end + 12),
                      load_little<std::uint16_t>(bytes, end + 10)};
  std::uint64_t directory_end = end;
  const bool saturated =
      directory.offset == 0xffffffff || directory.size == 0xffffffff || directory.count == 0xffff;
  const bool has_locator =
      end >= locator64_size && load_little<std::uint32_t>(bytes, end - locator64_size) == locator64_magic;
  if (saturated || has_locator) {
    const std::uint64_t at =
        has_locator ? load_little<std::uint64_t>(bytes, end - locator64_size + 8) : bytes.size();
    // The record's own length must lead to the locator: nothing hides between them.
    if (at > end || end - at < end64_size + locator64_size ||
        load_little<std::uint32_t>(bytes, at) != end64_magic ||
        load_little<std::uint64_t>(bytes, at + 4) != end - locator64_size - at - 12) {
      throw Error("{}: the zip archive has no zip64 end record where it says", where);
    }
    const Directory large{load_little<std::uint64_t>(bytes, at + 48),
                          load_little<std::uint64_t>(bytes, at + 40),
                          load_little<std::uint64_t>(bytes, at + 32)};
    // Readers that look at one record only must not see another directory than those that look at both.
    if ((directory.offset != 0xffffffff && directory.offset != large.offset) ||
        (directory.size != 0xffffffff && directory.size != large.size) ||
        (directory.count != 0xffff && directory.count != large.count)) {
      throw Error("{}: the end records of the zip archive contradict each other", where);
    }
    one_disk = one_disk && load_little<std::uint32_t>(bytes, at + 16) == 0 &&
               load_little<std::uint32_t>(bytes, at + 20) == 0 &&
               load_little<std::uint64_t>(bytes, at + 24) == large.count &&
               load_little<std::uint32_t>(bytes, end - locator64_size + 4) == 0;
    directory = large;
    directory_end = at;
  }
  if (!one_disk) throw Error("{}: is one disk of a zip archive on several, expected all in one file", where);
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset ||
      directory.count > directory.size / member_size) {
    throw Error(
        "{}: the zip directory ({} members in {} bytes at {}) does not end where its end record starts ({})",
        where, directory.count, directory.size, directory.offset, directory_end);
  }
  return directory;
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos ||
      name.find('\\') != std::string_view::npos || (name.size() > 1 && name[1] == ':')) {
    return false;
  }
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return false;
    at = slash + 1;
  }
  return true;
}

// The zip64 extra field holds, in this order, those of the sizes that are saturated in the fixed part.
void apply_zip64(std::span<const std::byte> extra, std::uint64_t& size, std::uint64_t& stored,
                 std::uint64_t& offset, std::string_view where) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t length = load_little<std::uint16_t>(extra, at + 2);
    if (length > extra.size() - at - 4) break;
    if (load_little<std::uint16_t>(extra, at) == 1) {
      std::size_t field = at + 4;
      for (std::uint64_t* value : {&size, &stored, &offset}) {
        if (*value != 0xffffffff) continue;
        if (field + 8 > at + 4 + length) throw Error("{}: the zip64 sizes of a member are cut off", where);
        *value = load_little<std::uint64_t>(extra, field);
        field += 8;
      }
      return;
    }
    at += 4 + length;
  }
}

struct Inflated {
  std::size_t read = 0, written = 0;  // more than there is room for: the content is longer
  bool at_end = false;
};

Inflated inflate_into(std::span<std::byte> target, std::span<const std::byte> stored) {
  z_stream stream{};
  Inflated result;
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return result;
  int status = Z_OK;
  Bytef surplus = 0;
  constexpr std::size_t step = std::numeric_limits<uInt>::max();
  while (status == Z_OK && result.written <= target.size()) {
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(stored.data() + result.read));
    stream.avail_in = static_cast<uInt>(std::min(step, stored.size() - result.read));
    // A full target gets one more byte of room: content that uses it is longer than it should be.
    const std::size_t room = std::min(step, target.size() - result.written);
    stream.next_out = room == 0 ? &surplus : reinterpret_cast<Bytef*>(target.data() + result.written);
    stream.avail_out = room == 0 ? 1 : static_cast<uInt>(room);
    const uInt in_before = stream.avail_in, out_before = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    result.read += in_before - stream.avail_in;
    result.written += out_before - stream.avail_out;
  }
  inflateEnd(&stream);
  result.at_end = status == Z_STREAM_END;
  return result;
}

}  // namespace

bool is_zip(const MappedFile& file) {
  return file.text().starts_with("PK\x03\x04") || file.text().starts_with("PK\x05\x06");
}

std::string ZipArchive::where_is(const Member& member) const {
  return where_ + ": the zip member '" + member.name + "'";
}

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file)
    : ZipArchive(file, file->bytes(), file->path().string()) {}

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file, std::uint64_t offset, std::uint64_t length)
    : ZipArchive(file, file->range(offset, length, "a zip archive"),
                 fmt::format("{} ({} bytes at {})", file->path().string(), length, offset)) {}

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes,
                       std::string where)
    : file_(std::move(file)), bytes_(bytes), where_(std::move(where)) {
  const Directory directory = find_directory(bytes_, where_);
  directory_ = directory.offset;
  std::uint64_t position = directory.offset;
  for (std::uint64_t i = 0; i < directory.count; ++i)
    read_member(position, directory.offset + directory.size);
  if (position != directory.offset + directory.size) {
    throw Error("{}: the zip directory holds more than its {} members", where_, directory.count);
  }
  check_overlap();
  verified_.resize(members_.size());
}

void ZipArchive::read_member(std::uint64_t& position, std::uint64_t directory_end) {
  const auto bytes = bytes_;
  const std::string& where = where_;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (directory_end - position < member_size || load_little<std::uint32_t>(bytes, position) != member_magic) {
    throw Error("{}: member {} of the zip directory is damaged", where, members_.size());
  }
  const auto flags = load_little<std::uint16_t>(bytes, position + 8);
  const auto method = load_little<std::uint16_t>(bytes, position + 10);
  const std::size_t name_size = load_little<std::uint16_t>(bytes, position + 28);
  const std::size_t extra_size = load_little<std::uint16_t>(bytes, position + 30);
  const std::size_t total =
      member_size + name_size + extra_size + load_little<std::uint16_t>(bytes, position + 32);
  if (directory_end - position < total)
    throw Error("{}: member {} of the zip directory is cut off", where, members_.size());

  Member member;
  member.name = text.substr(position + member_size, name_size);
  member.crc = load_little<std::uint32_t>(bytes, position + 16);
  member.stored_size = load_little<std::uint32_t>(bytes, position + 20);
  member.size = load_little<std::uint32_t>(bytes, position + 24);
  member.deflated = method == 8;
  std::uint64_t local = load_little<std::uint32_t>(bytes, position + 42);
  apply_zip64(bytes.subspan(position + member_size + name_size, extra_size), member.size, member.stored_size,
              local, where);
  const std::uint32_t unix_type = load_little<std::uint32_t>(bytes, position + 38) >> 28;
  if (!is_safe_name(member.name))
    throw Error("{}: the zip member '{}' has an unsafe name", where, member.name.c_str());  // up to a NUL
  if (!by_name_.emplace(member.name, members_.size()).second) {
    throw Error("{}: the zip member '{}' stands twice in the directory", where, member.name);
  }
  if ((flags & encrypted) != 0 || (method != 0 && method != 8) || unix_type == 0xa) {
    throw Error(
        "{}: the zip member '{}' is encrypted, a link or compressed by method {}, expected stored or "
        "deflated",
        where, member.name, method);
  }
  if ((method == 0 && member.size != member.stored_size) || member.size / max_ratio > member.stored_size) {
    throw Error("{}: the zip member '{}' claims {} bytes in {} stored ones", where, member.name, member.size,
                member.stored_size);
  }
  check_claim(member.size, member.stored_size, where_is(member));
  if (local > bytes.size() || local_size > bytes.size() - local) {
    throw Error("{}: the local header of zip member '{}' should be at {}, but the archive ends at {}", where,
                member.name, local, bytes.size());
  }
  member.header = local;
  const std::size_t local_name = load_little<std::uint16_t>(bytes, local + 26);
  const auto local_flags = load_little<std::uint16_t>(bytes, local + 6);
  // Streaming writers leave sizes and checksum zero (bit 3), zip64 leaves them saturated; else they must
  // agree.
  const auto agrees = [&](std::size_t field, std::uint64_t value) {
    const auto found = load_little<std::uint32_t>(bytes, local + field);
    return found == 0 || found == 0xffffffff || found == value || (local_flags & 8) != 0;
  };
  member.offset = local + local_size + local_name + load_little<std::uint16_t>(bytes, local + 28);
  if (load_little<std::uint32_t>(bytes, local) != local_magic ||
      load_little<std::uint16_t>(bytes, local + 8) != method || (local_flags & encrypted) != 0 ||
      !agrees(14, member.crc) || !agrees(18, member.stored_size) || !agrees(22, member.size) ||
      text.substr(local + local_size, local_name) != member.name) {
    throw Error("{}: the local header of zip member '{}' contradicts the directory", where, member.name);
  }
  if (member.offset > directory_ || member.stored_size > directory_ - member.offset) {
    throw Error("{}: the zip member '{}' ({} bytes at {}) reaches past the data", where, member.name,
                member.stored_size, member.offset);
  }
  members_.push_back(std::move(member));
  position += total;
}

void ZipArchive::check_overlap() const {
  std::vector<const Member*> sorted;
  for (const Member& member : members_) sorted.push_back(&member);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Member& before = *sorted[i - 1];
    if (before.offset + before.stored_size > sorted[i]->header) {
      throw Error("{}: the zip members '{}' and '{}' overlap", where_, before.name, sorted[i]->name);
    }
  }
}

const ZipArchive::Member* ZipArchive::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &members_[found->second];
}

ZipArchive::Content ZipArchive::read(const Member& member, bool zero_crc_is_unknown) const {
  const std::string& where = where_;
  const auto stored = bytes_.subspan(member.offset, member.stored_size);
  const auto verify = [&](std::span<const std::byte> bytes) {
    if (member.crc == 0 && zero_crc_is_unknown) return;
    const auto found = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    if (found != member.crc) {
      throw Error(
          "{}: the zip member '{}' has checksum {:08x}, the directory says {:08x}: the file is damaged",
          where, member.name, found, member.crc);
    }
  };
  if (!member.deflated) {
    const auto index = static_cast<std::size_t>(&member - members_.data());
    {
      const std::lock_guard lock(mutex_);
      if (verified_[index]) return {stored, file_};
    }
    verify(stored);
    const std::lock_guard lock(mutex_);
    verified_[index] = true;
    return {stored, file_};
  }

  auto inflated = std::make_shared<std::vector<std::byte>>(
      allocate_claim(member.size, member.stored_size, where_is(member)));
  const Inflated result = inflate_into(*inflated, stored);
  if (!result.at_end || result.written != member.size || result.read != stored.size()) {
    throw Error("{}: the zip member '{}' does not inflate to the {} bytes it claims: the file is damaged",
                where, member.name, member.size);
  }
  verify(*inflated);
  const std::span<const std::byte> bytes(*inflated);
  return {bytes, std::move(inflated)};
}

ZipArchive::Content ZipArchive::read_head(const Member& member, std::size_t limit) const {
  const auto stored = bytes_.subspan(member.offset, member.stored_size);
  const std::size_t size = std::min<std::uint64_t>(member.size, limit);
  if (!member.deflated) return {stored.first(size), file_};
  auto inflated = std::make_shared<std::vector<std::byte>>(size);
  const std::size_t written = std::min(inflate_into(*inflated, stored).written, size);
  const std::span<const std::byte> bytes(inflated->data(), written);
  return {bytes, std::move(inflated)};
}

}  // namespace assay
