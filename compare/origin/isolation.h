#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/causes/causes.h"
#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/flow/flow.h"
#include "assay/compare/origin/inputs.h"
#include "assay/compare/origin/judging_progress.h"
#include "assay/compare/origin/local_errors.h"
#include "assay/compare/origin/result_shapes.h"

namespace assay {

/// Judges every tensor by what the actual side made it of, whatever the end-to-end comparison says: a result
/// of an operator by its inputs, all else by the values that it follows from.
class Isolation {
 public:
  /// All must outlive this.
  Isolation(std::vector<Finding>&, const std::vector<Pair>&, const Sides&, const StepOrigins&, LocalErrors&);

  const Flow& flow() const { return flow_; }
  void take_inputs(const Inputs& inputs) { inputs_ = &inputs; }

  /// Judges all findings. One that is wrong has failed.
  void judge_all(const JudgingProgress&);
  /// The judgement of a result of an operator; nothing if it could not be judged.
  std::optional<LocalErrors::Judgement> result(std::size_t i) const;
  /// A sentence, if the tensor is not what it follows from.
  const std::string* broken(std::size_t i) const;
  /// What tensors that do not follow from what they were made of should be, by finding.
  RightValues take_right_values() { return std::move(right_); }
  /// Its exemption, if it is right by the values that it follows from. Nothing for a result of an operator.
  std::optional<Exemption> right_by_flow(std::size_t i) const;
  /// Whether one side lacks the tensor because no token chose what it belongs to, and that choice is right.
  bool is_absent_by_choice(std::size_t i) const;
  /// Its exemption, if it is in a module whose results are right, or one side lacks it there.
  std::optional<Exemption> part_of_right(std::size_t i) const;
  /// Whether all results of that module agree with the reference's, whatever its inputs followed from.
  bool is_part_of_passed(std::size_t i) const;
  /// Whether it is the value that it comes from, up to a cast.
  bool is_copy(std::size_t i) const;
  /// The first tensor that may hide a fault behind the tolerance: finding `i` itself, or one that it was made
  /// of. Nothing if it and all before it are right for certain.
  std::optional<std::size_t> unsettled(std::size_t i) const;

  /// Of runs: plain files hold no results of anything.
  std::optional<Coverage> coverage() const;
  /// Whether any tensor could be judged so.
  bool judges_any() const { return judged_ > 0; }
  /// Why a tensor was not judged, or not in whole, and what would have to be recorded.
  std::string why_unjudged(std::size_t i) const;

  /// Whether it was made of what other choices made.
  bool follows_tie(std::size_t i) const;

 private:
  std::vector<std::size_t> made_of(std::size_t i) const;
  void judge(std::size_t i);
  /// By the values that it follows from, or as the result of a call. Whether that could be done.
  bool judge_by_flow(std::size_t i);
  bool judge_as_result(std::size_t i);
  static bool is_given(const Finding&);
  bool is_called(std::size_t i) const;
  void leave_out(std::size_t i);
  void take_parts();
  void take_cause_of_whole(Finding&, const std::vector<std::size_t>& results) const;
  bool is_made_as_reference(std::size_t i) const;
  void settle();
  bool is_right(std::size_t i) const;

  std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const StepOrigins& steps_;
  LocalErrors& local_;
  Flow flow_;
  const Inputs* inputs_ = nullptr;
  std::map<std::size_t, LocalErrors::Judgement> results_;
  std::map<std::size_t, Flow::Judgement> flows_;
  std::map<std::size_t, std::vector<std::size_t>> parts_;  ///< the results of the whole that it is in
  std::set<Identity> unplaced_;                            ///< nobody knows how ranks hold them
  RightValues right_;
  ResultShapes shapes_;
  std::vector<bool> is_certain_;  ///< whatever made it: equal bits, a source, nothing to judge
  std::vector<std::optional<std::size_t>> unsettled_;
  std::int64_t judged_ = 0, sources_ = 0, unjudged_ = 0;
  std::optional<std::size_t> first_unjudged_;
};

}  // namespace assay
