#include "mpi_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "rank_error.h"

namespace assay::align {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long a process that runs may take to say what it is at, on a machine with fewer cores than processes.
constexpr milliseconds time_to_answer = std::chrono::seconds(1);
// Who waits asks the others so often. Who runs answers within milliseconds, so that two in a row without an
// answer are no load of the machine; and it is short enough for an error within seconds.
constexpr milliseconds time_between_checkups = std::chrono::seconds(3);
// How long a launcher may take to end all processes.
constexpr milliseconds time_to_end_all = std::chrono::seconds(10);
// An exchange is answered within microseconds or only when another rank has computed: then it may take the
// core.
constexpr milliseconds time_to_stay_awake(1);
constexpr microseconds nap(50);
// How often a process looks for letters while it computes.
constexpr milliseconds time_between_looks(5);

constexpr const char* no_answer = "does not answer";

// Between two looks for letters.
class Pause {
 public:
  template <class Lock>
  void operator()(Lock& lock, bool is_busy) {
    lock.unlock();
    if (is_busy || Clock::now() < asleep_from_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(nap);
    lock.lock();
  }

 private:
  Clock::time_point asleep_from_ = Clock::now() + time_to_stay_awake;
};

// Is over when nothing has moved for that time: a large tensor may travel for longer.
class Patience {
 public:
  Patience(const Post& post, milliseconds time) : post_(post), time_(time) { restart(); }
  void restart() {
    seen_ = post_.moved();
    end_ = Clock::now() + time_;
  }
  bool is_over() {
    if (post_.moved() != seen_) restart();
    return Clock::now() > end_;
  }

 private:
  const Post& post_;
  const milliseconds time_;
  std::int64_t seen_ = 0;
  Clock::time_point end_;
};

}  // namespace

MpiRank::MpiRank(int rank, int size, int run, milliseconds patience)
    : rank_(rank),
      patience_(patience),
      post_(size, run),
      states_(static_cast<std::size_t>(size), "has not met anyone yet"),
      checkups_(rank, size),
      ended_(states_.size()),
      problems_(states_.size()),
      servant_([this](std::stop_token stop) { serve_while_computing(std::move(stop)); }) {
  const Lock lock(mutex_);
  for (int r = 0; r < size; ++r) {
    if (r != rank_) post_.send(r, {.kind = Kind::begun});
  }
}

std::vector<Tensor> MpiRank::all_to_all(const std::vector<int>& group, const std::string& what,
                                        const std::vector<Tensor>& parts) {
  check_parts(group, rank_, what, parts.size());
  const std::string address = fmt::format("{}", fmt::join(group, " "));
  Lock lock(mutex_);
  for (std::size_t k = 0; k < group.size(); ++k) tell(group[k], {Kind::collective, address, what, parts[k]});
  wait_for_letters(lock, group, Kind::collective, address, what);
  std::vector<Tensor> result;
  for (const int from : group) result.push_back(take(from, Kind::collective, address));
  return result;
}

void MpiRank::send(int to, const std::string& what, const Tensor& tensor) {
  const Lock lock(mutex_);
  tell(to, {Kind::message, what, what, tensor});
}

Tensor MpiRank::receive(int from, const std::string& what) {
  Lock lock(mutex_);
  wait_for_letters(lock, {from}, Kind::message, what, what);
  return take(from, Kind::message, what);
}

void MpiRank::tell(int to, const Letter& letter) {
  if (to == rank_)
    deliver(rank_, letter);
  else
    post_.send(to, letter);
}

void MpiRank::progress() {
  post_.progress([this](int from, Letter letter) { deliver(from, std::move(letter)); });
}

void MpiRank::deliver(int from, Letter letter) {
  const auto sender = static_cast<std::size_t>(from);
  switch (letter.kind) {
    case Kind::collective:
    case Kind::message:
      ++steps_;
      waits_ = false;  // before this rank has looked whether it waits for that one
      letters_[{from, letter.kind, letter.address}].push_back(std::move(letter));
      break;
    case Kind::question:
      post_.send(from, {.kind = Kind::answer,
                        .what = states_[static_cast<std::size_t>(rank_)],
                        .checkup = letter.checkup,
                        .step = step()});
      break;
    case Kind::answer:
      checkups_.answers(from, letter.checkup, letter.step);
      states_[sender] = letter.what;
      break;
    case Kind::begun:
      checkups_.has_begun(from);
      break;
    case Kind::ended:
      checkups_.has_ended(from);
      ended_[sender] = true;
      states_[sender] = letter.what;
      problems_[sender] = letter.address;
      break;
  }
}

void MpiRank::serve_while_computing(std::stop_token stop) {
  Lock lock(mutex_);
  try {
    while (!stop.stop_requested()) {
      progress();
      nap_.wait_for(lock, stop, post_.is_busy() ? nap : microseconds(time_between_looks),
                    [] { return false; });
    }
  } catch (const std::exception& e) {
    give_up(e);
  }
}

Tensor MpiRank::take(int from, Kind kind, const std::string& address) {
  const auto letters = letters_.find({from, kind, address});
  Tensor tensor = std::move(letters->second.front().tensor);
  letters->second.pop_front();
  if (letters->second.empty()) letters_.erase(letters);
  return tensor;
}

void MpiRank::wait_for_letters(Lock& lock, const std::vector<int>& senders, Kind kind,
                               const std::string& address, const std::string& what) {
  Patience patience(post_, patience_);
  std::string& state = states_[static_cast<std::size_t>(rank_)];
  state = "waits in " + what;
  ++steps_;
  next_checkup_ = Clock::now() + time_between_checkups;
  const auto is_missing = [&](int from) { return !letters_.contains({from, kind, address}); };
  const auto has_gone = [&](int from) { return is_missing(from) && ended_[static_cast<std::size_t>(from)]; };
  for (Pause pause;; pause(lock, post_.is_busy())) {
    progress();
    check_agreement(senders, kind, address, what);
    if (std::ranges::none_of(senders, is_missing)) break;
    waits_ = true;
    if (const auto gone = std::ranges::find_if(senders, has_gone); gone != senders.end()) {
      ask_for_states(lock);
      throw has_ended(*gone, rank_, what, states_);
    }
    if (patience.is_over()) {
      ask_for_states(lock);
      throw has_waited(patience_, rank_, what, states_);
    }
    check_up();
    if (const int lost = checkups_.lost(); lost >= 0) throw is_lost(lost, rank_, what, states_);
    if (checkups_.is_standstill(step())) throw is_stuck(rank_, what, states_);
  }
  waits_ = false;
  state = "computes behind " + what;
}

void MpiRank::check_agreement(const std::vector<int>& senders, Kind kind, const std::string& address,
                              const std::string& what) const {
  for (const int from : senders) {
    const auto letters = letters_.find({from, kind, address});
    if (letters != letters_.end() && letters->second.front().what != what)
      throw do_not_agree(senders, rank_, what, letters->second.front().what);
  }
}

// Of this rank, for the checkups.
std::int64_t MpiRank::step() const {
  return waits_ && !post_.carries_tensors() ? steps_ : Checkups::goes_on;
}

void MpiRank::check_up() {
  if (Clock::now() < next_checkup_) return;
  note_the_silent();
  ask_all();
}

void MpiRank::ask_all() {
  const Clock::time_point now = Clock::now();
  const std::int64_t checkup = now.time_since_epoch().count();  // another one in every run, too
  next_checkup_ = now + time_between_checkups;
  checkups_.begin(checkup, step());
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) post_.send(r, {.kind = Kind::question, .checkup = checkup});
  }
}

void MpiRank::note_the_silent() {
  for (int r = 0; r < size(); ++r) {
    if (checkups_.owes_an_answer(r)) states_[static_cast<std::size_t>(r)] = no_answer;
  }
}

// Of all, for an error that is certain.
void MpiRank::ask_for_states(Lock& lock) {
  ask_all();
  const Clock::time_point end = Clock::now() + time_to_answer;
  for (Pause pause; Clock::now() < end && !checkups_.all_have_answered(); pause(lock, post_.is_busy()))
    progress();
  note_the_silent();
}

std::string MpiRank::end(const std::string& problem) {
  Lock lock(mutex_);
  const auto me = static_cast<std::size_t>(rank_);
  if (first_problem().empty()) problems_[me] = problem;  // else it follows from the other's
  states_[me] = problem.empty() ? "is done" : "has thrown";
  waits_ = false;
  ended_[me] = true;
  try {
    announce_end();
    wait_for_the_end_of_all(lock);
  } catch (const std::exception& e) {
    give_up(e);
  }
  return first_problem();
}

// Where the others cannot be told: they would wait.
void MpiRank::give_up(const std::exception& e) const {
  end_all_processes(fmt::format("rank {}: {}", rank_, e.what()));
}

void MpiRank::announce_end() {
  const auto me = static_cast<std::size_t>(rank_);
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) post_.send(r, {Kind::ended, problems_[me], states_[me]});
  }
}

// Others may compute for long: who does answers, also when it has ended.
void MpiRank::wait_for_the_end_of_all(Lock& lock) {
  next_checkup_ = Clock::now() + time_between_checkups;
  Clock::time_point trouble_began = Clock::now();
  bool one_was_lost = false;
  // Others may ask as long as one of them is not here.
  const auto is_over = [&] {
    return std::ranges::find(ended_, false) == ended_.end() && !post_.is_busy() && post_.has_met_all();
  };
  for (Pause pause; !is_over(); pause(lock, post_.is_busy())) {
    progress();
    check_up();
    const int lost = checkups_.lost();
    if (lost >= 0 && first_problem().empty()) {
      problems_[static_cast<std::size_t>(rank_)] = is_lost(lost, rank_, "the end of all", states_).what();
      announce_end();
    }
    const std::string& problem = first_problem();
    const bool one_is_lost = lost >= 0;
    if (problem.empty() || one_is_lost != one_was_lost) trouble_began = Clock::now();
    one_was_lost = one_is_lost;
    if (problem.empty()) continue;
    // Who has the problem says it once for all; the others if that one is not there any more.
    const bool is_mine = &problem == &problems_[static_cast<std::size_t>(rank_)];
    const milliseconds grace = (one_is_lost ? milliseconds(0) : patience_) + 2 * time_to_answer;
    if (Clock::now() - trouble_began > grace + (is_mine ? milliseconds(0) : time_to_end_all))
      end_all_processes(problem);
  }
}

const std::string& MpiRank::first_problem() const {
  const auto first = std::ranges::find_if(problems_, [](const std::string& p) { return !p.empty(); });
  return first == problems_.end() ? problems_.front() : *first;
}

}  // namespace assay::align
