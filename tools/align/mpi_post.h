#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay::align {

/// What one process tells another.
struct Letter {
  enum class Kind : std::uint8_t { collective, message, ended, question, answer };
  Kind kind = Kind::message;
  std::string address;  ///< what the receiver looks for
  std::string what;
  Tensor tensor = {};
};

/// Carries letters between the processes of MPI, none of which waits. Calls must not overlap.
class Post {
 public:
  using Deliver = std::function<void(int from, Letter)>;

  explicit Post(int processes) : arriving_(static_cast<std::size_t>(processes)) {}

  void send(int to, const Letter&);
  /// Moves what can be moved. The letters of a sender are delivered in the order in which it sent them.
  /// Another program than this one among the senders ends all.
  void progress(const Deliver&);
  /// Whether letters are on their way from or to this process.
  bool is_busy() const;
  /// How many messages of MPI have come to their end; grows while a large tensor travels.
  std::int64_t moved() const { return moved_; }

 private:
  struct Leaving {
    std::string envelope;
    Tensor tensor;
    std::vector<MPI_Request> requests;
  };
  struct Arriving {
    Letter letter;
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;
    std::vector<MPI_Request> requests;
  };
  bool open_next_envelope();
  bool are_complete(std::vector<MPI_Request>&);

  std::list<Leaving> leaving_;
  std::vector<std::deque<Arriving>> arriving_;  ///< by sender
  std::int64_t moved_ = 0;
};

/// Says why on standard error and ends all processes with status 2.
[[noreturn]] void end_all_processes(const std::string& why);

}  // namespace assay::align
