#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// The dimensions of a call's tensors by name: equal names are the same index of the formula. They are its
/// letters, "K0" of both factors of a product, or of operators that say which dimensions of the result their
/// inputs have (Usage::dims_in_result) the numbers of those, "Y0".
class Labels {
 public:
  Labels(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
         const std::vector<NamedValue>& outputs);
  const std::vector<std::string>& of(const std::string& tensor) const { return of_.at(tensor); }

 private:
  void by_letters(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
                  const std::vector<NamedValue>& outputs);
  void by_dims(const Operator&, const std::vector<NamedValue>& inputs, const Attributes&,
               const std::vector<NamedValue>& outputs);
  std::map<std::string, std::vector<std::string>, std::less<>> of_;
};

}  // namespace assay::align
