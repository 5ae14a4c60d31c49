#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "assay/compare/flow/side_values.h"

namespace assay {

/// Masks of keys among what the modules of one step and micro-batch were given, whatever they are called.
class KeyMasks {
 public:
  struct Mask {
    const LogicalTensor* tensor = nullptr;
    Name name;
  };
  explicit KeyMasks(const SideValues& side) : side_(side) {}
  void clear() { masks_.clear(); }
  /// Of any dtype, in the order of the program: of those with the same values the first stays, which the
  /// program was given, rather than what it handed on. Throws Error if it cannot be read.
  void add(const LogicalTensor&);
  bool empty() const { return masks_.empty(); }
  /// The smallest first, of which others are made, until `f` returns false.
  void for_each(const std::function<bool(const Mask&)>& f) const;

 private:
  using Visible = std::vector<std::int64_t>;
  std::optional<Visible> visible(const LogicalTensor&) const;
  bool hides_some(const Name&);

  const SideValues& side_;
  std::vector<Mask> masks_;
  std::map<Name, bool> hides_some_;  // in any step and micro-batch
};

}  // namespace assay
