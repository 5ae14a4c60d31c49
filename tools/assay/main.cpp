#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "arguments.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"
#include "assay/golden/error.h"
#include "output.h"

namespace {

using namespace assay;

std::string command_line(int argc, char** argv) {
  std::string line = "assay";
  for (int i = 1; i < argc; ++i) line += " " + shell_quoted(argv[i]);
  return line;
}

// An unset shell variable must not turn an option off: --actual "" is an error.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands({})) {
    refuse_empty_values(*verb);
    for (CLI::Option* option : verb->get_options()) {
      option->check(
          [](const std::string& value) { return value.empty() ? "expected a value, got nothing" : ""; });
    }
  }
}

// A name, not a negative number nor - for a stream.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
}

// CLI11 takes whatever follows an option for its value: --json --csv would write a file "--csv".
void refuse_options_as_values(const CLI::App& app, std::span<char*> words) {
  if (words.size() < 2) return;
  const auto verbs = app.get_subcommands([&](const CLI::App* verb) { return verb->check_name(words[1]); });
  if (verbs.empty()) return;
  const CLI::App* verb = verbs.front();
  for (const CLI::App* part : verb->get_subcommands([](const CLI::App*) { return true; })) {
    if (words.size() > 2 && part->check_name(words[2])) verb = part;
  }
  for (std::size_t i = 2; i + 1 < words.size(); ++i) {
    const std::string word = words[i], next = words[i + 1];
    if (word == "--") return;
    if (!looks_like_option(word) || !looks_like_option(next)) continue;
    const CLI::Option* option = verb->get_option_no_throw(word);
    if (option != nullptr && option->get_items_expected_min() > 0)
      throw Error("{0}: is followed by {1}, which looks like an option; expected a value, or {0}={1}", word,
                  next);
  }
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
// GnuTLS, which comes with HDF5's libcurl, keeps 16 bytes of its start where nobody finds them once threads
// have run.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libgnutls";
}
extern "C" const char* __lsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "print_suppressions=0";
}
#endif

int main(int argc, char** argv) {
  CLI::App app("assay tells whether the numbers of a training run are right.");
  app.set_version_flag("--version", std::string(version));
  app.require_subcommand(1);
  app.footer(
      "examples:\n"
      "  assay check cases/matmul --actual kernel_output   judge a kernel's outputs\n"
      "  assay diff npu_dump gpu_dump                      judge one platform by another\n"
      "  assay inspect run --stats                         see what was recorded\n\n"
      "exit status: 0 all compared and passed, 1 a finding, 2 trouble");
  std::function<int()> action;
  add_verbs(app, command_line(argc, argv), action);
  refuse_empty_values(app);
  try {
    refuse_options_as_values(app, {argv, static_cast<std::size_t>(argc)});
    app.parse(argc, argv);
    const int status = action();
    if (std::fflush(stdout) != 0)
      throw Error("standard output: cannot be written ({})", std::strerror(errno));
    return status;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "assay: {}\n", printable(sentence(e)));
    return 2;
  }
}
