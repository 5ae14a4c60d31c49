#pragma once

#include <filesystem>
#include <vector>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/check_options.h"
#include "assay/compare/named_source.h"
#include "assay/compare/result/finding.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// Judges the outputs of operator cases against golden values, which it computes from the inputs of each
/// case.
/// A case that cannot be read becomes one unreadable finding; the other cases go on.
Report check(const std::vector<std::filesystem::path>& cases, const CheckOptions&);

/// A call of an operator in memory, and what a kernel made of it.
struct MadeCall {
  const Operator* op = nullptr;
  std::vector<NamedTensor> inputs;
  std::vector<NamedSource> outputs;
  Attributes attributes;
};
/// The same as an operator case, without files.
Case as_case(const MadeCall&);
/// Judges these outputs. CheckOptions::actual means nothing here, and no finding has a command that repeats
/// it.
/// @throws Error  for inputs and attributes that do not fit the operator, and for outputs that it does not
///                make
Report check(const MadeCall&, const CheckOptions&);

}  // namespace assay
