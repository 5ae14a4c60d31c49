#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace assay {

/// One option of a verb, as --help shows it. Everything here is said before the command line is parsed.
class Option {
 public:
  explicit Option(CLI::Option* parsed) : parsed_(parsed) {}

  /// The word that --help shows for its value: "F", "KEY=N,..".
  Option& holds(const std::string& word);
  Option& required();
  Option& one_of(std::vector<std::string> values);
  template <class Number>
  Option& within(Number least, Number most);
  Option& not_negative();
  Option& existing_file();
  Option& needs(const Option&);
  Option& excludes(const Option&);
  /// The command that repeats one finding leaves it out: it decides no verdict (where reports go, --threads),
  /// or that command sets it for the one finding (--only).
  Option& not_repeated();

 private:
  friend class Options;
  CLI::Option* parsed_;
  bool is_repeated_ = true;
};

/// The options of a verb: which it has, and after parsing, which were given.
class Options {
 public:
  /// @param command  the command line as it was given
  Options(CLI::App& verb, std::string command) : verb_(&verb), command_(std::move(command)) {}

  /// An option with a value, which goes into `value`; a vector takes one each time that it is given.
  /// @param names  "-o,--output"; without dashes: a word at its place, of a vector all the words from there
  /// on
  template <class T>
  Option& option(const std::string& names, T& value, const std::string& meaning);
  Option& flag(const std::string& names, bool& value, const std::string& meaning);

  /// The command line as it was given, for reports.
  const std::string& command() const { return command_; }
  bool is_given(std::string_view name) const;
  /// The words at their places and all options that were given and decide a verdict, for a shell to read
  /// back: "assay diff a r --rules r.toml".
  /// @param verb  "assay diff"
  std::string repeated_command(std::string_view verb) const;
  /// The same options alone, each with a leading space.
  std::string repeated_options() const;
  /// One option as it was given, with a leading space; empty if it was not.
  std::string repeated_option(std::string_view name) const;

 private:
  Option& add(CLI::Option*);

  CLI::App* verb_;
  std::string command_;
  std::deque<Option> declared_;  ///< in the order of --help
};

}  // namespace assay
