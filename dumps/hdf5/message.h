#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "assay/golden/error.h"

namespace assay {

// The messages between the readers and writers of HDF5 files and their worker processes: 64-bit numbers in
// the byte order of the machine, and texts behind their length. The length of a message precedes it. The
// reader treats the worker as hostile, since a file may have taken it over: it checks everything that it
// receives.

/// A question is followed by its memory allowance in bytes and by the name of a dataset. The worker answers
/// `failed` and a text, or `done` and the requested data.
enum class Hdf5Question : std::uint64_t {
  list,      ///< one dataset, or all (empty name): Hdf5Item, ..; see Hdf5File::Dataset for the fields
  chunks,    ///< fill value, extents of a chunk, edges are unfiltered, filters, then place of every chunk
  elements,  ///< of any dataset, read by the library
  text,      ///< of a dataset that holds one string
  sources,   ///< of a virtual dataset
};
enum class Hdf5Answer : std::uint64_t { done, failed };
enum class Hdf5Item : std::uint64_t { dataset, note, left_out };
/// Where the elements lie. `filled`: nowhere, they all are the fill value. `packed`: in the object header.
enum class Hdf5Storage : std::uint64_t { in_file, chunked, packed, filled, virtual_, elsewhere };
/// What a process that writes is told, with a number for the file and a name. It answers as to a question.
enum class Hdf5Order : std::uint64_t {
  create,   ///< the file of that path; an existing one is replaced
  dataset,  ///< DType, number of extents, extents; answered with where its bytes belong in the file
  close,
};
/// Part of a virtual dataset, or of one of its sources.
enum class Hdf5Selection : std::uint64_t { all, regular, other };

/// Stands for a number that is not there.
inline constexpr std::uint64_t hdf5_none = std::numeric_limits<std::uint64_t>::max();
/// A question about more chunks is not answered: terabytes in chunks of a megabyte.
inline constexpr std::uint64_t hdf5_max_chunks = 1'000'000;
inline constexpr std::uint64_t hdf5_max_sources = 100'000;

/// The exit status of a worker that may not limit itself.
inline constexpr int hdf5_limits_refused = 3;

// The descriptors that a worker starts with, beside the three of every process.
inline constexpr int hdf5_worker_socket = 3, hdf5_worker_file = 4, hdf5_worker_image = 5;

class MessageWriter {
 public:
  template <class T>
  void number(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    bytes_.append(reinterpret_cast<const char*>(&wide), sizeof wide);
  }
  void text(std::string_view text) {
    number(text.size());
    bytes_ += text;
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

/// Throws Error where the message is too short or a number is not below its limit.
class MessageReader {
 public:
  MessageReader(std::span<const std::byte> bytes, std::string where)
      : rest_(bytes), where_(std::move(where)) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    if (rest_.size() < sizeof value) fail();
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  std::uint64_t number_to(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value > most) fail();
    return value;
  }
  template <class Enum>
  requires std::is_enum_v<Enum> Enum choice(Enum last) {
    return static_cast<Enum>(number_to(static_cast<std::uint64_t>(last)));
  }
  std::string text() {
    const std::uint64_t size = number_to(rest_.size());
    const std::string text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }
  std::span<const std::byte> rest() const { return rest_; }
  void expect_end() const {
    if (!rest_.empty()) fail();
  }
  [[noreturn]] void fail() const {
    throw Error("{}: the process that reads it does not keep to its protocol: the file is malicious", where_);
  }

 private:
  std::span<const std::byte> rest_;
  std::string where_;
};

}  // namespace assay
