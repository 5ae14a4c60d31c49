#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "assay/dumps/io/file.h"

namespace assay {

/// The file starts as an archive does, with a member or, empty, with its end.
bool is_zip(const MappedFile&);

/// A zip archive (PKWARE APPNOTE 6.3.10, with zip64) as numpy and torch write them. Only the central
/// directory is believed: torch leaves the sizes in the local headers zero.
class ZipArchive {
 public:
  struct Member {
    std::string name;
    std::uint64_t size = 0;         ///< of the content
    std::uint64_t stored_size = 0;  ///< in the archive
    std::uint64_t header = 0;       ///< offset of the local header
    std::uint64_t offset = 0;       ///< of the data
    std::uint32_t crc = 0;
    bool deflated = false;
  };
  struct Content {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  /// Throws Error unless the directory is whole, every member lies inside the file, no two overlap and none
  /// claims more than check_claim believes.
  explicit ZipArchive(std::shared_ptr<const MappedFile> file);
  /// The same for an archive that is `length` bytes at `offset` of the file.
  ZipArchive(std::shared_ptr<const MappedFile> file, std::uint64_t offset, std::uint64_t length);

  const MappedFile& file() const { return *file_; }
  /// For messages: the file's path, and which part of it if the archive is a part.
  const std::string& where() const { return where_; }
  /// In the order of the directory.
  const std::vector<Member>& members() const { return members_; }
  const Member* find(std::string_view name) const;
  /// The content, in place if it is stored, else inflated. The checksum is compared, once for a stored
  /// member.
  /// @param zero_crc_is_unknown  torch can be told to write 0 for every checksum
  Content read(const Member&, bool zero_crc_is_unknown = false) const;
  /// Returns at most the first `limit` bytes of the content, unchecked: enough to recognise it.
  Content read_head(const Member&, std::size_t limit) const;

 private:
  ZipArchive(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes, std::string where);
  std::string where_is(const Member&) const;
  void read_member(std::uint64_t& position, std::uint64_t directory_end);
  void check_overlap() const;

  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> bytes_;
  std::string where_;
  std::uint64_t directory_ = 0;
  std::vector<Member> members_;
  std::unordered_map<std::string, std::size_t> by_name_;
  mutable std::mutex mutex_;
  mutable std::vector<bool> verified_;
};

}  // namespace assay
