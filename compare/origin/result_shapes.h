#pragma once

#include <map>
#include <set>
#include <vector>

#include "assay/compare/flow/side_values.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// The shapes that results have on both sides.
class ResultShapes {
 public:
  /// Both must outlive this.
  ResultShapes(const std::vector<Finding>& findings, const std::vector<Pair>& pairs)
      : findings_(findings), pairs_(pairs) {}

  /// Whether result `i` has a shape that no choice explains: all calls of a side have the same, what it was
  /// made of has the reference's shapes, and no choice is in that.
  /// @param given  the findings of the inputs of its call
  bool is_wrong(std::size_t i, const std::vector<std::size_t>& given);

 private:
  struct Shapes {
    std::set<Shape> actual, reference;
    std::int64_t pairs = 0;
  };
  void read();

  const std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  std::map<Name, Shapes> by_name_;
};

}  // namespace assay
