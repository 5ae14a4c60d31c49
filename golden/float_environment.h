#pragma once

#include <cfenv>

namespace assay {

/// The calling thread's floating-point environment is IEEE 754's default for the scope: to nearest even, no
/// flag set, no trap, subnormals kept. Whoever called may have chosen otherwise (-ffast-math flushes them for
/// the whole process), and gets the own environment back, flags included.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
    std::feclearexcept(FE_ALL_EXCEPT);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&callers_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace assay
