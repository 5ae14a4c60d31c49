#include "assay/dumps/whole_file.h"

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
  // Through a link to what it names: the link stays a link.
  const auto target = std::filesystem::exists(status) ? std::filesystem::canonical(path) : path;
  std::string part = target.string() + ".XXXXXX";
  const int descriptor = mkstemp(part.data());
  if (descriptor < 0) fail(path, errno);
  // mkstemp makes files for the owner alone; a report is for whom the umask says.
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(descriptor, 0666 & ~mask);
  int reason = write_and_close(fdopen(descriptor, "wb"), parts);
  if (reason == 0 && std::rename(part.c_str(), target.c_str()) != 0) reason = errno;
  if (reason == 0) return;
  std::remove(part.c_str());
  fail(path, reason);
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
