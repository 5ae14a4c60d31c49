#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <mutex>
#include <string>
#include <utility>

namespace assay {

/// A file descriptor, closed at the end of its scope.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  operator int() const { return fd_; }  // NOLINT: it stands for the number in every call
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// The program that holds the HDF5 library, at work: the library crashes, loops and takes all memory on
/// damaged files, and it is not thread-safe, so that no process of ours has it.
struct Hdf5Process {
  pid_t id = 0;
  Descriptor socket;
  pid_t owner = 0;

  /// A process that was forked from the owner has the socket, too, but neither a say in it nor its answers.
  bool is_ours() const;
  /// Returns whether all of it was taken; where not, the process has ended.
  bool send(const std::string& bytes) const;
};

/// A process that is forked while another thread holds this lock finds it free, and what it guards whole.
template <std::mutex& lock>
int free_in_forked() {
  return ::pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });
}

/// @param work   "read" or "write"
/// @param file   what it gets to read; -1: nothing
/// @param where  what errors name
Hdf5Process start_hdf5_process(const std::string& work, int file, const std::string& where);

/// A descriptor of the program, which is part of this library: nothing has to be installed beside it or found
/// at run time.
/// @param where  what errors name
int hdf5_worker_program(const std::string& where);

}  // namespace assay
