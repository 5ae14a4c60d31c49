#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/relation.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// Losses that a program does not record as calls: that in which its model ends, of the last values and the
/// tokens, and those that it adds, as the auxiliary loss of a router. What one gives to the gradient of a
/// value shows in the reference, up to a factor: of the model's own one for each micro-batch, as these may
/// count by their tokens; of what is added to it the same times that.
class HiddenLosses {
 public:
  /// The gradient that a known loss gives to that value; nothing if none is known.
  std::optional<DerivedValue> gradient(const SideValues&, const RecordedCalls&, const Name& value,
                                       const Identity& frame) const;
  /// Looks for a loss whose gradient is what is missing to the recorded gradient of a value of the reference.
  /// Returns whether there is one.
  /// @param missing  recorded minus expected, or all that was recorded where nothing else is known
  /// @param allowed  the error of each element of it
  bool fit(const SideValues&, const RecordedCalls&, const Name& value, const Identity& frame,
           const std::vector<double>& missing, const std::vector<double>& allowed, bool is_all = false);
  /// What was done where a gradient is that of the model's loss with other tokens. Nothing if it is not.
  std::optional<Diagnosis> mistake(const SideValues&, const RecordedCalls&, const Name& value,
                                   const LogicalTensor& gradient, const SideTensor& recorded) const;
  /// The same of the loss as a number, where the gradient of its value proves it.
  std::optional<Diagnosis> mistake_of_value(const SideValues&, const RecordedCalls&,
                                            const LogicalTensor& loss, double recorded) const;
  bool knows(const Name& value) const { return known_.contains(value); }
  bool knows_added() const { return !added_losses().empty(); }
  /// "0.25 times the gradient of cross_entropy"; and the index that the loss was given.
  std::string describe(const Name& value, const Identity& frame) const;
  const LogicalTensor* index_of(const SideValues&, const Name& value, const Identity& frame) const;

  /// The value of a loss that was recorded as a number only, with what it was made of; nothing if it is not
  /// known.
  struct Value {
    DerivedValue expected;
    std::string how;
    std::vector<const LogicalTensor*> sources;
  };
  std::optional<Value> value(const SideValues&, const RecordedCalls&, const Identity& loss) const;
  /// Finds out which losses of a run were made by which operator: in all micro-batches with the share that
  /// their gradients have, with none, or with one factor. Returns whether all are known.
  bool find_values(const SideValues&, const RecordedCalls&);

 private:
  using Frame = std::pair<std::int64_t, std::int64_t>;  // step and micro-batch
  struct Loss {
    const Operator* op = nullptr;
    CallVariant variant;
    double factor = 0;
    std::optional<Name> index = {};  ///< the tokens, of a loss that concludes, where its targets are some
    bool stores = false;             ///< its steps keep their results in the dtype of the value
    int numbers = 1;                 ///< that were fitted: its factor, an attribute
    int ahead = 0;   ///< each place should foresee the token so many places behind it; the last ones none
    int rolled = 0;  ///< places by which the tokens were moved before, with wrap-around
    std::int64_t of_micro_batch = -1;  ///< whose tokens; -1: its own
    bool of_all_layers = false;        ///< of the tokens of all layers at once
    struct Share {
      double factor = 0, reach = 0;
    };
    std::map<Frame, Share> shares = {};  ///< of micro-batches, of a loss that concludes
    double reach = 0;                    ///< what the factor may be off by
    /// What its factor n / d says against an accident, as x (1 +- r) holds about r n d fractions whose n and
    /// d have no larger product, less what other numbers cost that were fitted.
    double bits = 0;
    /// Of one that is added to the model's: the share of the micro-batch in which it was fitted.
    std::optional<Share> of_model = {};
    /// The class of each place whose gradient in the reference is lowest, its target if no tokens tell; -1
    /// without one, where all are 0: padding, a prompt.
    std::map<Frame, std::vector<double>> shown = {};
    Share share_in(const Identity& frame) const;
    bool concludes() const { return op != nullptr && op->concludes; }
  };
  struct OneCall {
    Call call;
    CallVariant variant;
    std::int64_t begin = 0;  ///< of the value in what was put together
    std::int64_t step = 1;   ///< of the rows of the value every so many
  };
  /// @param result  nullptr: not known
  /// @param enough  rows of a loss that concludes; 0: all
  static std::optional<OneCall> call_of(const Loss&, const SideValues&, const RecordedCalls&,
                                        const LogicalTensor& value, const std::string& output,
                                        const std::vector<double>* result = nullptr, std::int64_t enough = 0);
  /// What the places of a loss that concludes should foresee.
  struct Targets {
    std::vector<double> classes;
    std::int64_t shown = 0;  ///< so many by the gradient alone
  };
  static std::optional<Targets> targets(const Loss&, const SideValues&, const Identity& frame,
                                        std::int64_t places, double ignored);
  static std::optional<OneCall> of_layers(const Loss&, const SideValues&, const RecordedCalls&,
                                          const LogicalTensor& value, const std::string& output);
  static std::vector<const LogicalTensor*> in_all_layers(const SideValues&, const LogicalTensor& value);
  static std::vector<Loss> concluding(const SideValues&, const LogicalTensor& value);
  static std::vector<Loss> solved(const Loss&, const SideValues&, const RecordedCalls&,
                                  const LogicalTensor& value, const std::vector<double>& gradient);
  struct Mistake {
    Loss loss;
    Diagnosis diagnosis;
  };
  const Loss* model() const;
  Loss in_frame(const Loss&, const Identity& frame) const;
  std::optional<Mistake> find_mistake(const SideValues&, const RecordedCalls&, const Name& value,
                                      const LogicalTensor& gradient, const SideTensor& recorded) const;
  static std::vector<double> lowest_classes(const std::vector<double>& gradient, const Shape&);
  struct Interval {
    double low, high;
  };
  static std::optional<Interval> factors(double sign, const DerivedValue& unit,
                                         const std::vector<double>& missing,
                                         const std::vector<double>& allowed);
  static bool may_fit(const Loss&, const SideValues&, const RecordedCalls&, const LogicalTensor& value,
                      const std::vector<double>& missing, const std::vector<double>& allowed);
  /// @param choices  bits of what was chosen by the gradient itself
  static bool fit_factor(Loss&, const DerivedValue& unit, const std::vector<double>& missing,
                         const std::vector<double>& allowed, double choices);
  static std::optional<DerivedValue> gradient_of(const Loss&, const SideValues&, const RecordedCalls&,
                                                 const Name& value, const Identity& frame);
  struct Recorded {
    Loss loss;
    Name value;                   ///< the operator's first input
    std::vector<Recorded> added;  ///< in units of the loss
    bool is_factor_free = false;  ///< not yet known: that of the first number
  };
  std::vector<Recorded> added_losses() const;
  static std::optional<Value> value_of(const Recorded&, const SideValues&, const RecordedCalls&,
                                       const Identity& frame);
  static bool makes(Recorded&, const SideValues&, const RecordedCalls&,
                    const std::vector<const LogicalTensor*>& losses, double tried);

  std::map<Name, Loss> known_;
  std::map<Name, int> tries_;
  std::map<Name, Recorded> recorded_;
};

}  // namespace assay
