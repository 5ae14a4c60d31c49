#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "assay/dumps/hdf5/message.h"
#include "assay/dumps/hdf5/process.h"
#include "assay/dumps/io/file.h"

namespace assay {

/// A process that opens one HDF5 file with the HDF5 library and answers questions about it. The library
/// crashes, loops or takes all memory on damaged files; then the process ends, and the question is an Error.
///
/// It is limited in memory and processor time by the size of the file and the question, has ten minutes more
/// than that to answer (it may be one of many on a busy machine), can open no further file, and gets none of
/// the environment but LD_LIBRARY_PATH, by which the library itself may have to be found.
class Hdf5Worker {
 public:
  /// @param patience  how long an answer may take beyond the time for its size
  explicit Hdf5Worker(const MappedFile& file, std::chrono::milliseconds patience = std::chrono::minutes(10));
  ~Hdf5Worker();
  Hdf5Worker(const Hdf5Worker&) = delete;
  Hdf5Worker& operator=(const Hdf5Worker&) = delete;

  /// The answer behind Hdf5Answer::done, which starts at answer_head.
  /// @param allowance  bytes of memory that the answer explains
  /// @throws Error if the worker says so, dies, takes too long, or answers more than the allowance. After
  ///         any but the first it stays dead and every later question has the same answer.
  std::vector<std::byte> ask(Hdf5Question, const std::string& name, std::uint64_t allowance);
  static constexpr std::size_t answer_head = sizeof(std::uint64_t);
  static std::span<const std::byte> content(const std::vector<std::byte>& answer) {
    return std::span(answer).subspan(answer_head);
  }

  /// 0 once it is dead.
  pid_t process() const { return process_.id; }
  /// Whether it is of the process that this one was forked from, whose questions it answers.
  bool is_of_parent() const { return process_.id != 0 && !process_.is_ours(); }

 private:
  void receive(void* target, std::size_t size);
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void report_death();
  int end();

  std::string path_;
  std::chrono::milliseconds patience_;
  std::chrono::steady_clock::time_point deadline_;
  Hdf5Process process_;
  std::string death_;
};

}  // namespace assay
