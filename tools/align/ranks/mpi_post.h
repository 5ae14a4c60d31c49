#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay::align {

/// What one process tells another.
struct Letter {
  enum class Kind : std::uint8_t { begun, collective, message, ended, question, answer };
  Kind kind = Kind::message;
  std::string address = {};  ///< what the receiver looks for
  std::string what = {};
  Tensor tensor = {};        ///< of a collective or a message
  std::int64_t checkup = 0;  ///< of a question and of its answer
  std::int64_t step = 0;     ///< of an answer: of Checkups
};

/// Carries letters between the processes of MPI, none of which waits. Calls must not overlap.
class Post {
 public:
  using Deliver = std::function<void(int from, Letter)>;

  /// @param run  Letters of the next run wait until this process reads those of that run.
  Post(int processes, int run);

  void send(int to, const Letter&);
  /// Moves what can be moved. The letters of a sender are delivered in the order in which it sent them, but
  /// questions and answers at once: a large tensor before them may travel for long.
  /// Another program than this one among the senders ends all.
  void progress(const Deliver&);
  /// Whether letters are on their way from or to this process.
  bool is_busy() const;
  /// Whether letters with tensors are.
  bool carries_tensors() const;
  /// How many messages of MPI with tensors have come to their end; grows while a large tensor travels.
  std::int64_t moved() const { return moved_; }
  /// To be called until it is true: when all processes have called it.
  bool has_met_all();

 private:
  struct Leaving {
    Letter::Kind kind;
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
  bool open_next_envelope(const Deliver&);
  bool are_complete(Letter::Kind, std::vector<MPI_Request>&);

  const int envelope_tag_, piece_tag_;
  std::list<Leaving> leaving_;
  std::vector<std::deque<Arriving>> arriving_;  ///< by sender
  std::int64_t moved_ = 0;
  std::optional<MPI_Request> meeting_;
};

/// Says why on standard error and ends all processes with status 2.
[[noreturn]] void end_all_processes(const std::string& why);

}  // namespace assay::align
