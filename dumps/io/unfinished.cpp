#include "assay/dumps/io/unfinished.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "assay/golden/error.h"

namespace assay {

Unfinished::Unfinished(std::filesystem::path target, Kind kind) : target_(std::move(target)) {
  // "run/" is the folder "run".
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (std::filesystem::exists(std::filesystem::symlink_status(target_)))
    throw Error("{}: is there already; expected a new {}", target_.string(),
                kind == Kind::file ? "file" : "folder");
  if (target_.has_parent_path()) std::filesystem::create_directories(target_.parent_path());
  std::string name = target_.string() + ".unfinished.XXXXXX";
  const int file = kind == Kind::file ? ::mkstemp(name.data()) : -1;
  const bool made = kind == Kind::file ? file >= 0 : ::mkdtemp(name.data()) != nullptr;
  if (!made) throw Error("{}: cannot be made ({})", target_.string(), std::strerror(errno));
  if (file >= 0) ::close(file);
  path_ = name;
  // Both are made for the owner alone; who else may read is for the umask to say.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(path_.c_str(), (kind == Kind::file ? 0666 : 0777) & ~mask);
}

Unfinished::~Unfinished() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

void Unfinished::finish() {
  const int place = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  // A folder's files are many: one wait for all.
  const bool is_folder = std::filesystem::is_directory(path_);
  const bool synced = place >= 0 && (is_folder ? ::syncfs(place) : ::fsync(place)) == 0;
  const int problem = errno;
  if (place >= 0) ::close(place);
  if (!synced)
    throw Error("{}: cannot be written to the disk ({})", target_.string(), std::strerror(problem));
  int failed = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  // Not every file system knows the flag.
  if (failed != 0 && (errno == EINVAL || errno == ENOSYS) && !std::filesystem::exists(target_))
    failed = std::rename(path_.c_str(), target_.c_str());
  if (failed != 0)
    throw Error("{}: cannot get its name ({}); it is removed", target_.string(), std::strerror(errno));
  path_.clear();
  sync_to_disk(target_.has_parent_path() ? target_.parent_path() : std::filesystem::path("."));
}

void sync_to_disk(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int problem = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw Error("{}: cannot be written to the disk: {}", path.string(), std::strerror(problem));
}

}  // namespace assay
