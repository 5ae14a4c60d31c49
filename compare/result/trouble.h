#pragma once

#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "assay/golden/error.h"

namespace assay {

/// Carries out `action` on one tensor or one case, and says why that was not possible; nothing if it was. The
/// caller reports the sentence and goes on with the next one.
///
/// Trouble is a tensor that cannot be read (Error), a file that the system refuses (system_error), or a
/// tensor larger than the memory that is left (bad_alloc, length_error). Any other exception is a bug of the
/// program and leaves it.
template <class Action>
std::optional<std::string> trouble_in(const Action& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& problem) {
    return problem.what();
  } catch (const std::system_error& problem) {
    return problem.what();
  } catch (const std::length_error& problem) {
    return problem.what();
  } catch (const std::bad_alloc& problem) {
    return problem.what();
  }
}

}  // namespace assay
