#include "assay/dumps/hdf5/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "assay/golden/error.h"

namespace assay {
namespace {

// Answers grow in steps, so that a length that lies costs nothing.
constexpr std::size_t step = std::size_t{16} << 20;
// The slowest filters, on a busy machine.
constexpr std::uint64_t bytes_a_second = 4 << 20;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return fd_; }  // NOLINT: it stands for the number in every call
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Above those that the worker starts with, which are put in place one after the other.
int moved_up(int fd) {
  constexpr int above = 16;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, above);
  return moved;
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

// posix_spawn and not fork: the caller may have threads, which may hold the locks of malloc or of the HDF5
// library, and may have mapped more memory than the limits of the worker allow.
pid_t spawn(int socket, int file, int program, const std::string& path) {
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
  // A group of its own: Ctrl-C is for the reader, whose end is the worker's.
  posix_spawnattr_setpgroup(&actions.attributes, 0);
  posix_spawnattr_setflags(&actions.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string name = "assay-hdf5-worker", image = "/proc/self/fd/" + std::to_string(hdf5_worker_image);
  std::string libraries = "LD_LIBRARY_PATH=";
  if (const char* value = std::getenv("LD_LIBRARY_PATH")) libraries += value;
  char* const arguments[] = {name.data(), nullptr};
  char* const environment[] = {libraries.data(), nullptr};
  pid_t process = 0;
  const int problem =
      ::posix_spawn(&process, image.c_str(), &actions.files, &actions.attributes, arguments, environment);
  if (problem != 0) {
    throw Error(
        "{}: the process that would read it cannot be started: {}; expected /proc and memory files "
        "that may be run",
        path, std::strerror(problem));
  }
  return process;
}

}  // namespace

Hdf5Worker::Hdf5Worker(const MappedFile& file, std::chrono::milliseconds patience)
    : path_(file.path().string()), patience_(patience) {
  const Descriptor opened(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (opened < 0 || ::fstat(opened, &status) != 0)
    throw Error("{}: cannot be opened: {}", path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != file.bytes().size())
    throw Error("{}: has changed while it was read", path_);
  if (status.st_size == 0) throw Error("{}: is empty, expected an HDF5 file; record it again", path_);
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    throw Error("{}: no socket for the process that would read it: {}", path_, std::strerror(errno));
  Descriptor ours(sockets[0]);
  const Descriptor theirs(sockets[1]);
  const Descriptor socket(moved_up(theirs)), data(moved_up(opened)), program(moved_up(hdf5_worker_program()));
  if (socket < 0 || data < 0 || program < 0)
    throw Error("{}: no descriptor is left to read it with: {}", path_, std::strerror(errno));
  process_ = spawn(socket, data, program, path_);
  socket_ = ours.release();
}

Hdf5Worker::~Hdf5Worker() {
  end();
}

// Nothing of a worker is worth waiting for.
int Hdf5Worker::end() {
  int status = 0;
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = 0;
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  return status;
}

void Hdf5Worker::give_up(const std::string& why) {
  end();
  death_ = why;
  throw Error("{}: {}", path_, death_);
}

void Hdf5Worker::report_death() {
  int status = 0;
  pid_t ended = 0;
  // Its socket is closed, so it is about to end, if it has not; unless it was taken over.
  for (int waited = 0; waited < 100 && (ended = ::waitpid(process_, &status, WNOHANG)) == 0; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (ended != 0) process_ = 0;
  if (ended > 0 && WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU)
      give_up("takes the HDF5 library more processor time than a file of its size should: it is damaged");
    give_up(fmt::format(
        "the process that reads it was ended by signal {} ({}): the file is damaged or malicious; write it "
        "anew from its source",
        WTERMSIG(status), ::strsignal(WTERMSIG(status))));
  }
  give_up(fmt::format(
      "the process that reads it ended with status {}: is the HDF5 library that assay was built with "
      "installed?",
      ended > 0 ? WEXITSTATUS(status) : -1));
}

void Hdf5Worker::send(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      report_death();
    }
  }
}

void Hdf5Worker::receive(void* target, std::size_t size) {
  for (auto* at = static_cast<char*>(target); size != 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    pollfd ready{socket_, POLLIN, 0};
    const int events =
        ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (events == 0) give_up("takes the HDF5 library longer than a file of its size should: it is damaged");
    if (events < 0) {
      if (errno == EINTR) continue;
      give_up(std::strerror(errno));
    }
    const ssize_t count = ::recv(socket_, at, size, 0);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) report_death();
    if (count < 0 && errno != EINTR) give_up(std::strerror(errno));
    if (count < 0) continue;
    at += count;
    size -= static_cast<std::size_t>(count);
  }
}

std::vector<std::byte> Hdf5Worker::ask(Hdf5Question question, const std::string& name,
                                       std::uint64_t allowance) {
  if (!death_.empty()) throw Error("{}: {}", path_, death_);
  deadline_ = std::chrono::steady_clock::now() + patience_ + std::chrono::seconds(allowance / bytes_a_second);
  MessageWriter text, whole;
  text.number(question);
  text.number(allowance);
  text.text(name);
  whole.text(text.bytes());
  send(whole.bytes());

  std::uint64_t size = 0;
  receive(&size, sizeof size);
  if (size < answer_head || size > answer_head + allowance)
    give_up("the process that reads it does not keep to its protocol: the file is malicious");
  std::vector<std::byte> answer;
  while (answer.size() < size) {
    const std::size_t at = answer.size();
    if (at == 0) answer.reserve(std::min<std::size_t>(size, 4 * step));
    answer.resize(std::min<std::size_t>(size, at + step));
    receive(answer.data() + at, answer.size() - at);
  }
  MessageReader reader(answer, path_);
  if (reader.choice(Hdf5Answer::failed) == Hdf5Answer::failed) throw Error("{}: {}", path_, reader.text());
  return answer;
}

}  // namespace assay
