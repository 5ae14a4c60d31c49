#include "checkups.h"

#include <algorithm>

namespace assay::align {
namespace {

constexpr std::int64_t has_stopped = -1;  // the step of a rank that has ended

constexpr int most_unanswered = 2;
// Launchers start processes one after the other: on a loaded machine seconds apart.
constexpr int most_unanswered_before_it_begins = 10;

}  // namespace

Checkups::Checkups(int rank, int size)
    : rank_(static_cast<std::size_t>(rank)),
      steps_(static_cast<std::size_t>(size), goes_on),
      last_steps_(steps_),
      unanswered_(steps_.size()),
      has_begun_(steps_.size()),
      has_ended_(steps_.size()) {}

void Checkups::begin(std::int64_t checkup, std::int64_t step) {
  checkup_ = checkup;
  last_steps_ = steps_;
  for (std::size_t r = 0; r < steps_.size(); ++r) {
    steps_[r] = has_ended_[r] ? has_stopped : goes_on;
    if (r != rank_) ++unanswered_[r];
  }
  steps_[rank_] = step;
}

void Checkups::has_begun(int rank) {
  has_begun_[static_cast<std::size_t>(rank)] = true;
}

void Checkups::answers(int rank, std::int64_t checkup, std::int64_t step) {
  const auto r = static_cast<std::size_t>(rank);
  unanswered_[r] = 0;
  if (checkup == checkup_ && steps_[r] != has_stopped) steps_[r] = step;
}

void Checkups::has_ended(int rank) {
  has_ended_[static_cast<std::size_t>(rank)] = true;
}

bool Checkups::owes_an_answer(int rank) const {
  return unanswered_[static_cast<std::size_t>(rank)] > 0;
}

bool Checkups::all_have_answered() const {
  return std::ranges::all_of(unanswered_, [](int n) { return n == 0; });
}

// The question of the checkup that begins has not been answered yet either.
int Checkups::lost() const {
  for (std::size_t r = 0; r < unanswered_.size(); ++r) {
    const int most = has_begun_[r] ? most_unanswered : most_unanswered_before_it_begins;
    if (unanswered_[r] > most) return static_cast<int>(r);
  }
  return -1;
}

bool Checkups::is_standstill(std::int64_t step) const {
  return steps_[rank_] == step && steps_ == last_steps_ && std::ranges::find(steps_, goes_on) == steps_.end();
}

}  // namespace assay::align
