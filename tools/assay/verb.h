#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "options.h"

namespace assay {

/// A verb of the command line. It has a file, which ends with its row, and a word in CMakeLists.txt.
struct Verb {
  std::string_view name, meaning, example;
  /// Declares the options. What is returned runs the verb with what was parsed: it returns the exit status,
  /// and throws Error for trouble.
  std::function<int()> (*declare)(Options&) = nullptr;
  std::span<const Verb> parts = {};  ///< verbs below it, one of which has to be named; it has no options then
};

/// Verb::declare of a struct that holds the values of the options; its file has declare(T&, Options&) and
/// run(const T&, const Options&).
template <class T>
std::function<int()> declared(Options& options) {
  const auto verb = std::make_shared<T>();
  declare(*verb, options);
  return [verb, &options] { return run(*verb, options); };
}

}  // namespace assay
