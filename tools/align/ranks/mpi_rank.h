#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "assay/align/ranks/communicator.h"
#include "checkups.h"
#include "mpi_post.h"

namespace assay::align {

/// A rank that is a process of MPI. A second thread of its answers the others while it computes.
class MpiRank : public Communicator {
 public:
  /// @param run  how many this process has run before
  MpiRank(int rank, int size, int run, std::chrono::milliseconds patience);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(states_.size()); }

  std::vector<Tensor> all_to_all(const std::vector<int>& group, const std::string& what,
                                 const std::vector<Tensor>& parts) override;
  void send(int to, const std::string& what, const Tensor&) override;
  Tensor receive(int from, const std::string& what) override;

  /// Tells the others that this rank is done or, if it has a problem, has thrown, and waits until all have
  /// ended and none reads letters any more; where there is a problem and one of them does not end, it ends
  /// all processes.
  /// @return  the first problem of any rank; ""
  std::string end(const std::string& problem);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Kind = Letter::Kind;

  void tell(int to, const Letter&);
  void progress();
  void deliver(int from, Letter);
  void serve_while_computing(std::stop_token);
  Tensor take(int from, Kind, const std::string& address);
  void wait_for_letters(Lock&, const std::vector<int>& senders, Kind, const std::string& address,
                        const std::string& what);
  void check_agreement(const std::vector<int>& senders, Kind, const std::string& address,
                       const std::string& what) const;
  std::int64_t step() const;
  void check_up();
  void ask_all();
  void ask_for_states(Lock&);
  void note_the_silent();
  [[noreturn]] void give_up(const std::exception&) const;
  void announce_end();
  void wait_for_the_end_of_all(Lock&);
  const std::string& first_problem() const;

  const int rank_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  ///< guards all below
  Post post_;
  std::map<std::tuple<int, Kind, std::string>, std::deque<Letter>> letters_;  ///< by sender and address
  std::vector<std::string> states_;                                           ///< by rank, for messages
  std::int64_t steps_ = 0;  ///< waits begun, and tensors that came
  bool waits_ = false;
  Checkups checkups_;
  std::chrono::steady_clock::time_point next_checkup_;
  std::vector<bool> ended_;
  std::vector<std::string> problems_;  ///< by rank; of those that no other problem was known to
  std::condition_variable_any nap_;    ///< of the servant, who is never woken
  std::jthread servant_;
};

}  // namespace assay::align
