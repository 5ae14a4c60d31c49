#include "assay/dumps/hdf5/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "assay/golden/error.h"

namespace assay {
namespace {

// Answers grow in steps, so that a length that lies costs nothing.
constexpr std::size_t step = std::size_t{16} << 20;
// The slowest filters, on a busy machine.
constexpr std::uint64_t bytes_a_second = 4 << 20;

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
  process_ = start_hdf5_process("read", opened, path_);
}

Hdf5Worker::~Hdf5Worker() {
  end();
}

// Nothing of a worker is worth waiting for.
int Hdf5Worker::end() {
  int status = 0;
  if (process_.id > 0 && process_.is_ours()) {
    ::kill(process_.id, SIGKILL);
    while (::waitpid(process_.id, &status, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = {};
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
  for (int waited = 0; waited < 100 && (ended = ::waitpid(process_.id, &status, WNOHANG)) == 0; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (ended != 0) process_.id = 0;
  if (ended > 0 && WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU)
      give_up("takes the HDF5 library more processor time than a file of its size should: it is damaged");
    give_up(fmt::format(
        "the process that reads it was ended by signal {} ({}): the file is damaged or malicious; write it "
        "anew from its source",
        WTERMSIG(status), ::strsignal(WTERMSIG(status))));
  }
  if (ended > 0 && WEXITSTATUS(status) == hdf5_limits_refused)
    give_up(
        "the process that reads it may not limit itself; expected a system that allows setrlimit and prctl");
  give_up(fmt::format(
      "the process that reads it ended with status {}: is the HDF5 library that assay was built with "
      "installed?",
      ended > 0 ? WEXITSTATUS(status) : -1));
}

void Hdf5Worker::receive(void* target, std::size_t size) {
  for (auto* at = static_cast<char*>(target); size != 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    pollfd ready{process_.socket, POLLIN, 0};
    const int events =
        ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (events == 0) give_up("takes the HDF5 library longer than a file of its size should: it is damaged");
    if (events < 0) {
      if (errno == EINTR) continue;
      give_up(std::strerror(errno));
    }
    const ssize_t count = ::recv(process_.socket, at, size, 0);
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
  if (!process_.send(whole.bytes())) report_death();

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
