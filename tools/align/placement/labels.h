#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// The dimensions of a call's tensors by name: equal names are the same index of the formula. "K0" of x and w
/// in a linear, but what is moved (reshape, transpose, ..) keeps the names that it had in x.
class Labels {
 public:
  Labels(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
         const std::vector<NamedValue>& outputs);
  const std::vector<std::string>& of(const std::string& tensor) const { return of_.at(tensor); }

 private:
  void by_letters(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
                  const std::vector<NamedValue>& outputs);
  void moved(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
             const NamedValue& output);
  std::map<std::string, std::vector<std::string>, std::less<>> of_;
};

}  // namespace assay::align
