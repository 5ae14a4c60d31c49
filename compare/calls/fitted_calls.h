#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/compare/calls/call_judge.h"

namespace assay {

/// The attributes of calls: the recorded ones, and others with which the recording of the reference is inside
/// the bound. Calls of one module have the same in all layers, or in some of them, as windows of attention.
class FittedCalls {
 public:
  explicit FittedCalls(CallJudge& judge) : judge_(judge) {}

  /// The attributes of this operator in modules of this name, if they are known already.
  /// @param recorded  by the call
  const CallVariant* known(const Operator&, std::string_view module, const Attributes& recorded) const;
  struct OfModule {
    const Operator& op;
    std::string module;
    const Attributes& recorded;
  };
  /// Those of the other modules of this name that differ from these.
  std::vector<CallVariant> others(const OfModule&, const CallVariant& but) const;
  /// These with one other value that was seen, but for what this module's results exclude.
  std::vector<CallVariant> seen_beside(const OfModule&, const CallVariant& but) const;
  /// They are known() until the trial ends, or they are taken.
  void try_out(const OfModule&, const CallVariant&);
  void end_trial() { trial_.reset(); }
  /// Whether they make another result of this module in the reference; else it excludes them.
  bool makes_too(const OfModule&, const Call& reference, const CallVariant&);
  /// Takes one of them for this module, whose own result does not tell them apart.
  void take(const OfModule&, const CallVariant&);
  /// Nothing if no attributes make the reference's result.
  std::optional<CallVariant> fit(const Call& reference, std::string_view module);
  /// Other attributes that make both results: what the reference does not tell apart is no mistake.
  std::optional<CallJudge::Fit> fit_both(const Call& actual, const Call& reference, const CallVariant& but,
                                         std::string_view module);

 private:
  using Key =
      std::tuple<const Operator*, std::string, std::string>;  ///< with the module, and what is recorded
  /// The variant to take where this one makes a call, if it is enough.
  using IsEnough = std::function<std::optional<CallVariant>(const CallVariant&)>;
  static Key key_in_all_layers(const Operator&, std::string_view module, const Attributes& recorded);
  std::optional<CallVariant> find(const Call& reference, const Key&);
  bool makes(const Call&, const CallVariant&);
  /// The beginning of the result first, if it has one: what makes it not makes it not as a whole.
  bool makes_from_beginning(const Call&, const CallVariant&);
  std::optional<CallVariant> first_that_makes(const Call&, const Key&, const IsEnough&);

  CallJudge& judge_;
  std::map<Key, std::vector<CallVariant>> known_;  ///< in all layers
  std::map<Key, CallVariant> of_module_;           ///< in one of them
  std::map<Key, std::set<std::string>> refused_;   ///< texts of the variants that a reference excluded
  std::map<Key, std::set<std::string>> excluded_;  ///< the same of one module
  std::optional<std::pair<Key, CallVariant>> trial_;
};

}  // namespace assay
