#include "assay/dumps/io/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "assay/golden/error.h"

namespace assay {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int reason) {
  throw Error("{}: cannot be written ({})", path.string(), std::strerror(reason));
}

// 0, or the errno of what went wrong.
int write_and_close(std::FILE* out, std::initializer_list<std::span<const std::byte>> parts) {
  int reason = 0;
  for (const std::span<const std::byte> part : parts) {
    if (part.empty()) continue;  // its pointer may be null, which fwrite does not take
    if (reason == 0 && std::fwrite(part.data(), 1, part.size(), out) != part.size()) reason = errno;
  }
  if (std::fclose(out) != 0 && reason == 0) reason = errno;
  return reason;
}

// What becomes `target` once it is whole.
struct PartialFile {
  std::filesystem::path target;
  std::string name;
  int descriptor;
};

PartialFile begin_partial_file(const std::filesystem::path& path) {
  // Through a link to what it names: the link stays a link.
  std::error_code none;
  PartialFile part{std::filesystem::exists(path, none) ? std::filesystem::canonical(path) : path, "", -1};
  part.name = part.target.string() + ".XXXXXX";
  part.descriptor = mkstemp(part.name.data());
  if (part.descriptor < 0) fail(path, errno);
  return part;
}

}  // namespace

void write_whole(const std::filesystem::path& path, std::initializer_list<std::span<const std::byte>> parts) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    std::FILE* out = std::fopen(path.c_str(), "wb");
    const int reason = out == nullptr ? errno : write_and_close(out, parts);
    if (reason != 0) fail(path, reason);
    return;
  }
  const PartialFile part = begin_partial_file(path);
  // mkstemp makes files for the owner alone; a report is for whom the umask says.
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(part.descriptor, 0666 & ~mask);
  int reason = write_and_close(fdopen(part.descriptor, "wb"), parts);
  if (reason == 0 && std::rename(part.name.c_str(), part.target.c_str()) != 0) reason = errno;
  if (reason == 0) return;
  std::remove(part.name.c_str());
  fail(path, reason);
}

void check_can_write_whole(const std::filesystem::path& path) {
  const PartialFile part = begin_partial_file(path);
  ::close(part.descriptor);
  std::remove(part.name.c_str());
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  write_whole(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) fail(path, errno);
  const ssize_t written = ::write(file, text.data(), text.size());
  // A short write is a disk that is full: the next one would say so.
  const int reason = written < 0 ? errno : static_cast<std::size_t>(written) < text.size() ? ENOSPC : 0;
  ::close(file);
  if (reason != 0) fail(path, reason);
}

}  // namespace assay
