#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace assay {

/// Calls `test` once for each instruction set that this processor and this build have, with Highway
/// restricted to it; then all of them are allowed again.
template <class Test>
void for_each_instruction_set(Test test) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace assay
