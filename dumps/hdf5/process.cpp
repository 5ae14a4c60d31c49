#include "assay/dumps/hdf5/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "assay/dumps/hdf5/message.h"
#include "assay/golden/error.h"

namespace assay {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool Hdf5Process::is_ours() const {
  return owner == ::getpid();
}

bool Hdf5Process::send(const std::string& bytes) const {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

namespace {

// Above those that the worker starts with, which are put in place one after the other.
Descriptor moved_up(int fd) {
  constexpr int above = 16;
  return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, above));
}

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Actions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~Actions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
};

// posix_spawn and not fork: the caller may have threads, which may hold the locks of malloc, and may have
// mapped more memory than the limits of the worker allow.
pid_t spawn(const std::string& work, int socket, int file, int program, const std::string& where) {
  Actions actions;
  for (int standard = 0; standard < 3; ++standard) {
#if defined(ASSAY_SANITIZED)
    if (standard == 2) continue;  // for the sanitizer's report
#endif
    posix_spawn_file_actions_addopen(&actions.files, standard, "/dev/null", O_RDWR, 0);
  }
  posix_spawn_file_actions_adddup2(&actions.files, socket, hdf5_worker_socket);
  posix_spawn_file_actions_adddup2(&actions.files, file, hdf5_worker_file);
  posix_spawn_file_actions_adddup2(&actions.files, program, hdf5_worker_image);
  posix_spawn_file_actions_addclosefrom_np(&actions.files, hdf5_worker_image + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&actions.attributes, &none);
  posix_spawnattr_setsigdefault(&actions.attributes, &all);
  // A group of its own: Ctrl-C is for the caller, whose end is the worker's.
  posix_spawnattr_setpgroup(&actions.attributes, 0);
  posix_spawnattr_setflags(&actions.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string name = "assay-hdf5-worker", what = work,
              image = "/proc/self/fd/" + std::to_string(hdf5_worker_image);
  std::string libraries = "LD_LIBRARY_PATH=";
  if (const char* value = std::getenv("LD_LIBRARY_PATH")) libraries += value;
  char* const arguments[] = {name.data(), what.data(), nullptr};
  char* const environment[] = {libraries.data(), nullptr};
  pid_t process = 0;
  const int problem =
      ::posix_spawn(&process, image.c_str(), &actions.files, &actions.attributes, arguments, environment);
  if (problem != 0) {
    throw Error(
        "{}: the process that would {} it cannot be started: {}; expected /proc and memory files that may be "
        "run",
        where, work, std::strerror(problem));
  }
  return process;
}

}  // namespace

Hdf5Process start_hdf5_process(const std::string& work, int file, const std::string& where) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw Error("{}: no socket for the process that would {} it: {}", where, work, std::strerror(errno));
  }
  Descriptor ours(sockets[0]);
  const Descriptor theirs(sockets[1]);
  const Descriptor socket = moved_up(theirs), program = moved_up(hdf5_worker_program(where)),
                   data = moved_up(file >= 0 ? file : static_cast<int>(theirs));
  if (socket < 0 || data < 0 || program < 0)
    throw Error("{}: no descriptor is left to {} it with: {}", where, work, std::strerror(errno));
  return {spawn(work, socket, data, program, where), std::move(ours), ::getpid()};
}

}  // namespace assay
