// CLI11's header takes longer to compile than all verbs together: this is the one file that includes it.
#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"
#include "assay/golden/error.h"
#include "log.h"

namespace assay {

Option& Option::holds(const std::string& word) {
  parsed_->type_name(word);
  return *this;
}

Option& Option::required() {
  parsed_->required();
  return *this;
}

Option& Option::one_of(std::vector<std::string> values) {
  parsed_->check(CLI::IsMember(std::move(values)));
  return *this;
}

template <class Number>
Option& Option::within(Number least, Number most) {
  parsed_->check(CLI::Range(least, most));
  return *this;
}
template Option& Option::within(long long, long long);
template Option& Option::within(unsigned long long, unsigned long long);
template Option& Option::within(double, double);

Option& Option::not_negative() {
  parsed_->check(CLI::NonNegativeNumber);
  return *this;
}

Option& Option::existing_file() {
  parsed_->check(CLI::ExistingFile);
  return *this;
}

Option& Option::needs(const Option& other) {
  parsed_->needs(other.parsed_);
  return *this;
}

Option& Option::excludes(const Option& other) {
  parsed_->excludes(other.parsed_);
  return *this;
}

Option& Option::not_repeated() {
  is_repeated_ = false;
  return *this;
}

Option& Options::add(CLI::Option* option) {
  // An unset shell variable must not turn an option off: --actual "" is an error.
  option->check(
      [](const std::string& value) { return value.empty() ? "expected a value, got nothing" : ""; });
  return declared_.emplace_back(option);
}

Option& Options::flag(const std::string& names, bool& value, const std::string& meaning) {
  return add(verb_->add_flag(names, value, meaning));
}

template <class T>
Option& Options::option(const std::string& names, T& value, const std::string& meaning) {
  CLI::Option* option = verb_->add_option(names, value, meaning);
  // One value each time, so that words behind it keep their places.
  if (requires { value.push_back(std::string()); } && !option->get_positional())
    option->allow_extra_args(false);
  return add(option);
}
template Option& Options::option(const std::string&, std::string&, const std::string&);
template Option& Options::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option& Options::option(const std::string&, int&, const std::string&);
template Option& Options::option(const std::string&, long long&, const std::string&);
template Option& Options::option(const std::string&, unsigned long long&, const std::string&);
template Option& Options::option(const std::string&, double&, const std::string&);
template Option& Options::option(const std::string&, std::optional<long long>&, const std::string&);
template Option& Options::option(const std::string&, std::optional<std::string>&, const std::string&);

namespace {

// As it was given, for a shell to read back, with a leading space; empty if it was not.
std::string text_of(const CLI::Option& option) {
  if (option.count() == 0) return "";
  const std::vector<std::string>& values = option.results();
  if (option.get_items_expected_max() == 0)  // a flag
    return fmt::format(" {}{}", option.get_name(), values.back() == "false" ? "=false" : "");
  std::string text;
  for (const std::string& value : values) {
    if (option.get_positional())
      text += " " + shell_quoted(value);
    else  // behind a space a dash would begin an option
      text +=
          fmt::format(" {}{}{}", option.get_name(), value.starts_with('-') ? "=" : " ", shell_quoted(value));
  }
  return text;
}

}  // namespace

bool Options::is_given(std::string_view name) const {
  return verb_->get_option(std::string(name))->count() > 0;
}

std::string Options::repeated_option(std::string_view name) const {
  return text_of(*verb_->get_option(std::string(name)));
}

std::string Options::repeated_options() const {
  std::string text;
  for (const Option& option : declared_) {
    if (option.is_repeated_ && !option.parsed_->get_positional()) text += text_of(*option.parsed_);
  }
  return text;
}

std::string Options::repeated_command(std::string_view verb) const {
  std::string text(verb);
  for (const Option& option : declared_) {
    if (option.parsed_->get_positional()) text += text_of(*option.parsed_);
  }
  return text + repeated_options();
}

namespace {

// A name, not a negative number nor - for a stream.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
}

class CommandLine {
 public:
  CommandLine(std::span<char*> words, std::span<const Verb* const> verbs) : words_(words) {
    app_.set_version_flag("--version", std::string(version));
    app_.require_subcommand(1);
    app_.footer(
        "examples:\n"
        "  assay check cases/matmul --actual kernel_output   judge a kernel's outputs\n"
        "  assay diff npu_dump gpu_dump                      judge one platform by another\n"
        "  assay inspect run --stats                         see what was recorded\n\n"
        "exit status: 0 all compared and passed, 1 a finding, 2 trouble");
    command_ = "assay";
    for (const char* word : words_.subspan(std::min<std::size_t>(words_.size(), 1)))
      command_ += " " + shell_quoted(word);
    for (const Verb* verb : verbs) add(app_, *verb, std::string(verb->name));
  }

  int run() {
    refuse_options_as_values();
    try {
      app_.parse(static_cast<int>(words_.size()), words_.data());
    } catch (const CLI::ParseError& problem) {
      return app_.exit(problem) == 0 ? 0 : 2;
    }
    return run_logged();
  }

 private:
  int run_logged() {
    open_log(log_, named_verb_);
    const auto begin = std::chrono::steady_clock::now();
    const auto say_end = [&](int status, const std::string& why) {
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      program_log().info("exit status {} after {:.3f} s{}", status, taken.count(), why);
      close_log();
    };
    program_log().info("assay {}: {}", version, command_);
    try {
      const int status = named_();
      say_end(status, "");
      return status;
    } catch (const std::exception& problem) {
      say_end(2, std::string(": ") + problem.what());
      throw;
    }
  }

  // --log-level and --log-file, which every verb has.
  void add_log(Options& options) {
    options
        .option("--log-level", log_.level,
                "what the program says of its work: off, error, warn, info, debug or trace;\n"
                "by default what ASSAY_LOG says, else warn")
        .holds("LEVEL")
        .not_repeated();
    options
        .option("--log-file", log_.file,
                "add the log to this file; standard error then gets warnings and errors only")
        .holds("F")
        .not_repeated();
  }

  /// @param name  "diff", "baseline-check"
  void add(CLI::App& above, const Verb& verb, const std::string& name) {
    CLI::App* app = above.add_subcommand(std::string(verb.name), std::string(verb.meaning));
    app->footer(fmt::format("example:  {}", verb.example));
    if (!verb.parts.empty()) app->require_subcommand(1);
    for (const Verb& part : verb.parts) add(*app, part, fmt::format("{}-{}", name, part.name));
    if (verb.declare == nullptr) return;
    Options& options = options_.emplace_back(*app, command_);
    app->callback([this, name, action = verb.declare(options)] {
      named_ = action;
      named_verb_ = name;
    });
    add_log(options);
  }

  // CLI11 takes the word behind an option for its value: --json --csv would write a file "--csv".
  void refuse_options_as_values() const {
    if (words_.size() < 2) return;
    const CLI::App* verb = part_of(app_, words_[1]);
    if (verb == nullptr) return;
    const CLI::App* part = words_.size() > 2 ? part_of(*verb, words_[2]) : nullptr;
    if (part != nullptr) verb = part;
    for (std::size_t i = 2; i + 1 < words_.size(); ++i) {
      const std::string word = words_[i], next = words_[i + 1];
      if (word == "--") return;
      if (!looks_like_option(word) || !looks_like_option(next)) continue;
      const CLI::Option* option = verb->get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_min() > 0)
        throw Error("{0}: is followed by {1}, which looks like an option; expected a value, or {0}={1}", word,
                    next);
    }
  }

  static const CLI::App* part_of(const CLI::App& app, const std::string& name) {
    const auto named = app.get_subcommands([&](const CLI::App* part) { return part->check_name(name); });
    return named.empty() ? nullptr : named.front();
  }

  CLI::App app_ = CLI::App("assay tells whether the numbers of a training run are right.");
  std::span<char*> words_;
  std::string command_;
  std::deque<Options> options_;
  LogOptions log_;
  std::function<int()> named_;  ///< runs the verb that the command line names
  std::string named_verb_;
};

}  // namespace

int run_command_line(std::span<char*> words, std::span<const Verb* const> verbs) {
  return CommandLine(words, verbs).run();
}

}  // namespace assay
