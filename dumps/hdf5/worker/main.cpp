// The process that has the HDF5 library (dumps/hdf5/process.h). To read, it gets a socket and the open file,
// and can open nothing else: the library crashes, loops and allocates on damaged files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "driver.h"
#include "files.h"
#include "objects.h"

namespace assay {
namespace {

// A question is a name, and names have a limit.
constexpr std::uint64_t max_question = 1 << 16;
// The library's and this program's own, before any file.
[[maybe_unused]] constexpr std::uint64_t own_memory = std::uint64_t{512} << 20;
constexpr rlim_t own_seconds = 10;

// Down to `most`, for good or, where more may be allowed later, for now. Somebody's own limit, which a batch
// system sets, stays above it: nobody may raise that.
enum class Until : std::uint8_t { later, the_end };
void limit(decltype(RLIMIT_AS) what, rlim_t most, Until until) {
  rlimit limits{};
  if (::getrlimit(what, &limits) != 0) ::_exit(hdf5_limits_refused);
  limits.rlim_cur = std::min(most, limits.rlim_max);
  if (until == Until::the_end) limits.rlim_max = limits.rlim_cur;
  if (::setrlimit(what, &limits) != 0) ::_exit(hdf5_limits_refused);
}

// Once and for all, before the library sees a byte.
void lock_down() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(hdf5_limits_refused);
  limit(RLIMIT_CORE, 0, Until::the_end);
  limit(RLIMIT_FSIZE, 0, Until::the_end);
  // No further descriptor: neither a plugin nor any file that another one names can be opened. UBSan tries
  // pointers with a pipe, and calls them invalid if it gets none.
#if !defined(ASSAY_SANITIZED)
  limit(RLIMIT_NOFILE, 0, Until::the_end);
#endif
}

// For the next question. An allowance is in bytes of memory; time follows from it, at the speed of the
// slowest filter.
void allow(std::uint64_t file_size, std::uint64_t allowance) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  constexpr std::uint64_t bytes_a_second = 8 << 20;
  const rlim_t now = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  limit(RLIMIT_CPU, now + own_seconds + allowance / bytes_a_second, Until::later);
  // AddressSanitizer reserves terabytes of addresses for itself, so its builds go without this one.
#if !defined(ASSAY_SANITIZED)
  limit(RLIMIT_AS, own_memory + file_size + allowance, Until::later);
#else
  static_cast<void>(file_size);
#endif
}

void receive(void* target, std::size_t size) {
  for (auto* at = static_cast<char*>(target); size != 0;) {
    const ssize_t count = ::read(hdf5_worker_socket, at, size);
    if (count <= 0) ::_exit(0);  // the reader has gone
    at += count;
    size -= static_cast<std::size_t>(count);
  }
}

void send(const std::string& bytes) {
  const std::uint64_t size = bytes.size();
  const auto put = [](const void* from, std::size_t left) {
    for (auto* at = static_cast<const char*>(from); left != 0;) {
      const ssize_t count = ::send(hdf5_worker_socket, at, left, MSG_NOSIGNAL);
      if (count <= 0) ::_exit(0);
      at += count;
      left -= static_cast<std::size_t>(count);
    }
  };
  put(&size, sizeof size);
  put(bytes.data(), bytes.size());
}

void look_up(hid_t file, Hdf5Question question, const std::string& name, MessageWriter& out) {
  if (file < 0) throw Error("the HDF5 library cannot open it: it is truncated or damaged");
  switch (question) {
    case Hdf5Question::list:
      return list(file, name, out);
    case Hdf5Question::chunks:
      return describe_chunks(file, name, out);
    case Hdf5Question::elements:
      return read_elements(file, name, out);
    case Hdf5Question::text:
      return read_text(file, name, out);
    case Hdf5Question::sources:
      return describe_sources(file, name, out);
  }
}

// The next message, of at most that many bytes.
std::string next_message(std::uint64_t most) {
  std::uint64_t size = 0;
  receive(&size, sizeof size);
  if (size > most) ::_exit(1);
  std::string text(size, '\0');
  receive(text.data(), size);
  return text;
}

template <class Work>
void answer(const Work& work) {
  MessageWriter out;
  out.number(Hdf5Answer::done);
  const auto refuse = [&](const std::string& why) {
    out = {};
    out.number(Hdf5Answer::failed);
    out.text(why);
  };
  try {
    work(out);
  } catch (const std::bad_alloc&) {
    refuse("needs more memory than a file of its size should: it is damaged");
  } catch (const Error& problem) {
    refuse(problem.what());
  }
  send(out.bytes());
}

[[noreturn]] void read(std::span<const std::byte> bytes) {
  const hid_t access = use_only(bytes);
  hid_t file = -1;
  for (bool first = true;; first = false) {
    const std::string text = next_message(max_question);
    MessageReader reader(std::as_bytes(std::span(text)), "question");
    const auto question = reader.choice(Hdf5Question::sources);
    allow(bytes.size(), reader.number());
    const std::string name = reader.text();
    if (first) file = H5Fopen("the file", H5F_ACC_RDONLY, access);
    answer([&](MessageWriter& out) { look_up(file, question, name, out); });
  }
}

[[noreturn]] void write() {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on files is a full disk
  for (;;) {
    const std::string text = next_message(hdf5_none);
    answer([&](MessageWriter& out) { serve_writer({std::as_bytes(std::span(text)), "order"}, out); });
  }
}

}  // namespace
}  // namespace assay

#if defined(ASSAY_SANITIZED)
// Crashes of the library, which is not instrumented, are expected, and look as in other builds.
extern "C" const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0";
}
#endif

int main(int argc, char** argv) {
  using namespace assay;
  ::close(hdf5_worker_image);
  set_up_hdf5();
  if (argc > 1 && std::string_view(argv[1]) == "write") {
    ::close(hdf5_worker_file);
    write();
  }
  struct stat status {};
  if (::fstat(hdf5_worker_file, &status) != 0) return 1;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, hdf5_worker_file, 0);
  if (address == MAP_FAILED) return 1;
  ::close(hdf5_worker_file);
  lock_down();
  read({static_cast<const std::byte*>(address), size});
}
