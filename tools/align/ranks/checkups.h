#pragma once

#include <cstdint>
#include <vector>

namespace assay::align {

/// What a rank concludes from asking all others every few seconds: whether one is lost, and whether all wait
/// for each other. The caller keeps the time: a checkup ends where the next one begins.
class Checkups {
 public:
  /// The step of a rank that goes on by itself: it computes, or its tensors are on their way.
  static constexpr std::int64_t goes_on = 0;

  Checkups(int rank, int size);

  /// @param checkup  names it among all
  /// @param step     of this rank: positive where it waits; grows with every wait and every tensor that comes
  void begin(std::int64_t checkup, std::int64_t step);
  void has_begun(int rank);
  /// @param checkup  which one is answered; late answers show that the rank lives, not that it waits now
  void answers(int rank, std::int64_t checkup, std::int64_t step);
  /// Counts from the next checkup on: what the rank sent before may still be on its way.
  void has_ended(int rank);

  bool owes_an_answer(int rank) const;
  bool all_have_answered() const;
  /// The first that did not answer two checkups; -1: nobody. One that has not begun may take ten.
  int lost() const;
  /// Whether nobody has gone on from the answers of the last checkup to those of this one, to which all have
  /// answered: all wait, or have ended, at the same steps.
  /// @param step  of this rank, now
  bool is_standstill(std::int64_t step) const;

 private:
  const std::size_t rank_;
  std::int64_t checkup_ = 0;
  std::vector<std::int64_t> steps_, last_steps_;  ///< by rank: at this checkup, and at the one before
  std::vector<int> unanswered_;                   ///< by rank: checkups since it was heard
  std::vector<bool> has_begun_, has_ended_;
};

}  // namespace assay::align
