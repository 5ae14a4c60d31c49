// Ranks as threads of one process.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "assay/align/ranks/communicator.h"
#include "rank_error.h"

namespace assay::align {
namespace {

// What a group is exchanging. A rank may be at the next exchange only when all have taken this one.
struct Meeting {
  std::string what;
  std::vector<std::vector<Tensor>> given;  ///< by rank of the group, to each
  std::vector<bool> is_given, is_taken;
};

// Shared by all ranks; everything is guarded by `mutex`.
struct Hall {
  explicit Hall(int size)
      : changed(static_cast<std::size_t>(size)),
        state(static_cast<std::size_t>(size), "has not met anyone yet"),
        waiting(static_cast<std::size_t>(size)),
        ended(static_cast<std::size_t>(size)) {}
  std::mutex mutex;
  std::deque<std::condition_variable> changed;  ///< of each rank: whether it can go on
  std::map<std::vector<int>, Meeting> meetings;
  std::map<std::pair<int, int>, std::map<std::string, std::deque<Tensor>>> sent;  ///< from, to; by name
  std::vector<std::string> state;              ///< of each rank, for messages
  std::vector<std::function<bool()>> waiting;  ///< of each rank, whether it can go on; none: it computes
  std::vector<bool> ended;                     ///< by returning or by throwing

  // Nobody computes, and nobody can go on.
  bool is_stuck() const {
    for (std::size_t r = 0; r < ended.size(); ++r) {
      if (!ended[r] && (!waiting[r] || waiting[r]())) return false;
    }
    return true;
  }
  void wake(int rank) { changed[static_cast<std::size_t>(rank)].notify_one(); }
  void wake_all() {
    for (std::condition_variable& of_rank : changed) of_rank.notify_one();
  }
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(Hall& hall, int rank, std::chrono::milliseconds patience)
      : hall_(hall), rank_(rank), patience_(patience) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hall_.state.size()); }

  std::vector<Tensor> all_to_all(const std::vector<int>& group, const std::string& what,
                                 const std::vector<Tensor>& parts) override {
    check_parts(group, rank_, what, parts.size());
    const auto me = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank_) - group.begin());
    std::unique_lock lock(hall_.mutex);
    waits(what);
    Meeting& meeting = hall_.meetings[group];
    const auto somebody_is_lost = [&] { return lost(group); };
    // those who still take the last exchange
    wait(lock, what, somebody_is_lost, [&] { return meeting.is_given.empty() || !meeting.is_given[me]; });
    if (meeting.is_given.empty()) {
      meeting = {what, std::vector<std::vector<Tensor>>(group.size()), std::vector<bool>(group.size()),
                 std::vector<bool>(group.size())};
    }
    if (meeting.what != what) throw do_not_agree(group, rank_, what, meeting.what);
    meeting.given[me] = parts;
    meeting.is_given[me] = true;
    if (all(meeting.is_given)) wake(group);
    wait(lock, what, somebody_is_lost, [&] { return all(meeting.is_given); });
    std::vector<Tensor> result;
    for (const std::vector<Tensor>& from : meeting.given) result.push_back(from[me]);
    meeting.is_taken[me] = true;
    if (all(meeting.is_taken)) {
      meeting = {};
      wake(group);
    }
    computes_behind(what);
    return result;
  }

  void send(int to, const std::string& what, const Tensor& tensor) override {
    const std::lock_guard lock(hall_.mutex);
    hall_.sent[{rank_, to}][what].push_back(tensor);
    hall_.wake(to);
  }

  Tensor receive(int from, const std::string& what) override {
    std::unique_lock lock(hall_.mutex);
    waits(what);
    std::deque<Tensor>& arrived = hall_.sent[{from, rank_}][what];
    wait(
        lock, what, [&] { return hall_.ended[static_cast<std::size_t>(from)] ? from : -1; },
        [&] { return !arrived.empty(); });
    Tensor tensor = std::move(arrived.front());
    arrived.pop_front();
    computes_behind(what);
    return tensor;
  }

 private:
  static bool all(const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), false) == flags.end();
  }
  // The first of the group that has ended and does not come any more; -1: none.
  int lost(const std::vector<int>& group) const {
    const Meeting& meeting = hall_.meetings.at(group);
    for (std::size_t k = 0; k < group.size(); ++k) {
      const bool came = k < meeting.is_given.size() && meeting.is_given[k];
      if (!came && hall_.ended[static_cast<std::size_t>(group[k])]) return group[k];
    }
    return -1;
  }
  void waits(const std::string& what) { hall_.state[static_cast<std::size_t>(rank_)] = "waits in " + what; }
  void computes_behind(const std::string& what) {
    hall_.state[static_cast<std::size_t>(rank_)] = "computes behind " + what;
  }
  void wake(const std::vector<int>& group) {
    for (const int rank : group) hall_.wake(rank);
  }
  template <class Lost, class Done>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& what, Lost who_is_lost, Done done) {
    if (done()) return;
    const auto can_go_on = [&] { return done() || who_is_lost() >= 0; };
    std::function<bool()>& waiting = hall_.waiting[static_cast<std::size_t>(rank_)];
    waiting = can_go_on;
    if (hall_.is_stuck()) hall_.wake_all();
    hall_.changed[static_cast<std::size_t>(rank_)].wait_for(lock, patience_,
                                                            [&] { return can_go_on() || hall_.is_stuck(); });
    const bool stuck = hall_.is_stuck();
    waiting = nullptr;
    if (done()) return;
    const int gone = who_is_lost();
    if (gone >= 0) throw has_ended(gone, rank_, what, hall_.state);
    if (stuck) throw is_stuck(rank_, what, hall_.state);
    throw has_waited(patience_, rank_, what, hall_.state);
  }

  Hall& hall_;
  const int rank_;
  const std::chrono::milliseconds patience_;
};

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& work, std::chrono::milliseconds patience) {
  Hall hall(size);
  std::exception_ptr first_problem;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        ThreadCommunicator communicator(hall, rank, patience);
        std::exception_ptr problem;
        try {
          work(communicator);
        } catch (...) {
          problem = std::current_exception();
        }
        const std::lock_guard lock(hall.mutex);
        hall.ended[static_cast<std::size_t>(rank)] = true;
        hall.state[static_cast<std::size_t>(rank)] = problem ? "has thrown" : "is done";
        if (problem && !first_problem) first_problem = problem;
        hall.wake_all();
      });
    }
  }
  if (first_problem) std::rethrow_exception(first_problem);
}

}  // namespace assay::align
