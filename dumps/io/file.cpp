#include "assay/dumps/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "assay/golden/error.h"

namespace assay {

// A kernel allows a process 65530 mappings (vm.max_map_count), and a file of one page is read as soon as
// mapped: folders of many small files are not mapped.
constexpr std::size_t page = 4096;

MappedFile::MappedFile(const std::filesystem::path& path, int open_flags) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | open_flags);
  if (fd < 0 && errno == ELOOP && (open_flags & O_NOFOLLOW) != 0) {
    throw Error("{}: is a link, which a name from a file may not be: copy the folder with cp -rL",
                path.string());
  }
  if (fd < 0) throw Error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw Error("{}: not a regular file", path.string());
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = size > page ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  // ENOMEM: as many mappings as the kernel allows a process.
  if (size <= page || (address == MAP_FAILED && errno == ENOMEM)) {
    read_whole(fd, size);
    ::close(fd);
    return;
  }
  const int mmap_error = errno;
  ::close(fd);
  if (address == MAP_FAILED)
    throw Error("{}: cannot be mapped: {}", path.string(), std::strerror(mmap_error));
  bytes_ = {static_cast<const std::byte*>(address), size};
  watch_.emplace(address, size, path);
}

void MappedFile::read_whole(int fd, std::size_t size) {
  copy_.resize(size);
  std::size_t done = 0;
  while (done < size) {
    const ::ssize_t more = ::read(fd, copy_.data() + done, size - done);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      const std::string why = more < 0 ? std::strerror(errno) : "it has become shorter";
      ::close(fd);
      throw Error("{}: cannot be read: {}", path_.string(), why);
    }
    done += static_cast<std::size_t>(more);
  }
  bytes_ = copy_;
}

MappedFile::~MappedFile() {
  if (watch_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  return std::shared_ptr<const MappedFile>(new MappedFile(path, 0));
}

std::shared_ptr<const MappedFile> MappedFile::open_in(const std::filesystem::path& folder,
                                                      std::string_view name) {
  if (!is_plain_name(name)) {
    throw Error("{}: names the file '{}', expected letters, digits, '_', '.' and '-' only", folder.string(),
                std::string(name).c_str());  // up to a NUL
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(folder / name, O_NOFOLLOW));
}

std::span<const std::byte> MappedFile::range(std::uint64_t offset, std::uint64_t length,
                                             std::string_view what) const {
  if (offset > bytes_.size() || length > bytes_.size() - offset) {
    throw Error("{}: {} is {} bytes at {}, but the file ends at {}: it is truncated or damaged",
                path_.string(), what, length, offset, bytes_.size());
  }
  return bytes_.subspan(offset, length);
}

bool is_plain_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return !name.empty() && name != "." && name != ".." && std::all_of(name.begin(), name.end(), is_plain);
}

}  // namespace assay
