#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "assay/compare/flow/side_values.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// What tells which keys a query sees, among what one step and micro-batch recorded, whatever it is called:
/// masks that modules were given, and numbers of keys that an indexer chose.
class KeyMasks {
 public:
  struct Mask {
    const LogicalTensor* tensor = nullptr;
    Name name;
  };
  explicit KeyMasks(const SideValues& side) : side_(side) {}
  void clear() {
    masks_.clear();
    numbers_.clear();
  }
  /// Of any dtype, in the order of the program: of those with the same values the first stays, which the
  /// program was given, rather than what it handed on. Throws Error if it cannot be read.
  void add(const LogicalTensor&);
  /// Whether there is something for an argument with Role::index.
  bool has(const Arg& arg) const { return !of(arg).empty(); }
  /// What may be given for it, until `f` returns false: of masks the smallest first, of which others are
  /// made, of numbers the latest.
  void for_each(const Arg&, const std::function<bool(const Mask&)>& f) const;

 private:
  using Visible = std::vector<std::int64_t>;
  std::optional<Visible> visible(const LogicalTensor&) const;
  bool hides_some(const Name&);
  bool are_numbers(const LogicalTensor&) const;
  const std::vector<Mask>& of(const Arg& arg) const { return arg.hides ? masks_ : numbers_; }

  const SideValues& side_;
  std::vector<Mask> masks_, numbers_;
  std::map<Name, bool> hides_some_;  // in any step and micro-batch
};

}  // namespace assay
