#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace assay {

/// The world is wrong (a file, a shape, an option): what() is one sentence that says where, what was found,
/// what was expected and what to do. Numbers that differ are never errors; they are values.
class Error : public std::runtime_error {
 public:
  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace assay
