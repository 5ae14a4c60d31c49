#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/key_masks.h"
#include "assay/compare/flow/relations.h"

namespace assay {

/// Looks for the calls that programs make in no module of their own, of what several modules gave: the
/// attention between the projections.
class HiddenCalls {
 public:
  HiddenCalls(const RecordedCalls& calls, const Makes& makes, const EarlierValues& candidates,
              const KeyMasks& masks)
      : calls_(calls), makes_(makes), candidates_(candidates), masks_(masks) {}
  /// Looks for a call that makes the tensor, and adds it. Returns whether there is one.
  bool find(const LogicalTensor&, const SideTensor&, Relations&);

 private:
  static constexpr std::size_t most_values = 6;  // for an argument: the latest, as a layer makes them
  static constexpr std::size_t most_near = 4 * most_values;  // of which they are
  // That are tried: all orders of the values for three arguments.
  static constexpr std::size_t most_calls = 1 << 8;
  struct Source {
    const LogicalTensor* tensor;
    Name name;
  };
  using Given = std::vector<std::pair<const Arg*, Source>>;
  // What is sought: a call of an operator, whose attributes change the shapes of its inputs, that makes a
  // tensor.
  struct Sought {
    const Operator& op;
    Attributes attributes;
    const LogicalTensor& result;
  };
  // A call as other layers have it: of what, by names without numbers.
  struct Form {
    const Operator* op;
    std::vector<std::pair<const Arg*, std::string>> sources;
    bool operator==(const Form&) const = default;
    bool takes(const std::vector<const Arg*>& inputs) const {
      return std::ranges::equal(inputs, sources, {}, {}, &std::pair<const Arg*, std::string>::first);
    }
    std::string_view source(const Arg& arg) const {
      return std::ranges::find(sources, &arg, &std::pair<const Arg*, std::string>::first)->second;
    }
  };
  static const Arg* sought_output(const Operator&, const LogicalTensor&);
  static Form form_of(const Operator&, const Given&);
  bool find_of(const Operator&, const LogicalTensor&, const Form* known, Relations&);
  using Fits = std::function<bool(const Shape&)>;
  using TensorList = std::vector<const LogicalTensor*>;
  /// Goes through what may be given for an argument, the nearest first, until `f` returns false.
  /// @param known  whose sources are gone through only, if it is there
  void for_each_source(const Sought&, const Arg&, const Form* known, const Fits&,
                       const std::function<bool(const Source&)>& f) const;
  std::vector<std::size_t> results_beside(const LogicalTensor&) const;
  bool has_gradient(std::size_t candidate) const;
  struct Assignment {
    const Sought& sought;
    const std::vector<const Arg*>& inputs;
    const Form* known;
    std::map<std::vector<Shape>, std::vector<Source>> sources;  // by the shapes of those before
    std::vector<Given> all;
  };
  std::vector<Given> assigned(const Sought&, const std::vector<const Arg*>&, const Form* known) const;
  const std::vector<Source>& sources(Assignment&, const Given&) const;
  void assign(Assignment&, Given&, std::size_t rank) const;
  static RecordedCall call_of(const Sought&, const Given&);
  static LogicalTensor as_result(const Sought&, const LogicalTensor&);
  std::ptrdiff_t gradients_made(const Sought&, const Given&) const;
  Given in_right_order(const Sought&, Given) const;
  static std::vector<InputShape> shapes_of(const Given&);
  static bool may_make(const Operator&, const Given&, const Shape& result);
  static bool goes_with(const Operator&, const Given& before, const InputShape& next);
  static std::string module_for(const Operator&, const Identity& result, const Relations&);
  void take(const RecordedCall&, const Given&, const LogicalTensor&, Relations&) const;
  std::vector<std::pair<std::string, Name>> choices_beside(const RecordedCall&, const LogicalTensor&) const;

  const RecordedCalls& calls_;
  const Makes& makes_;
  const EarlierValues& candidates_;
  const KeyMasks& masks_;
  std::map<std::string, Form> known_;    // by the tensor's name without numbers
  std::map<std::string, int> failures_;  // searches without a find, by that and the call
};

}  // namespace assay
