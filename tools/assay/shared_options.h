#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/record/dump.h"
#include "options.h"

/// The options that several verbs have, each declared once, and what their values stand for.
namespace assay {

/// Folders of operator cases.
void add_cases(Options&, std::vector<std::string>& cases);
std::vector<std::filesystem::path> find_all_cases(const std::vector<std::string>& folders);

/// --tolerance: policies by name or file.
void add_tolerances(Options&, std::vector<std::string>& names, const std::string& meaning);
std::vector<Policy> load_policies(const std::vector<std::string>& names);

/// --only, a pattern that the command of a finding sets to its name.
/// @param of  "tensors"
void add_only(Options&, std::string& only, const std::string& of = "tensors");

/// --rules, a TOML file; none: no rules.
Option& add_rules(Options&, std::string& file,
                  const std::string& meaning = "TOML file with mesh, renumber and layout rules");
Rules load_rules(const std::string& file);

/// --threads; 0 means one per core.
void add_threads(Options&, int& threads);
int thread_count(int option);

/// --accumulator and --intermediate, the arithmetic of a device.
void add_device(Options&, std::string& accumulator, std::string& intermediate);
/// An option's text as a dtype; empty: none. Throws Error for an unknown one.
std::optional<DType> parse_dtype_option(std::string_view option, const std::string& text);

/// --dtype-hint.
void add_dtype_hint(Options&, std::string& dtype,
                    const std::string& arrays = "arrays whose file cannot say it (numpy V2: bfloat16)");
/// --raw.
void add_raw(Options&, std::string& raw);
/// How files are read by --dtype-hint and --raw; empty: none. Throws Error for a value that is none.
OpenOptions open_options(const std::string& dtype_hint, const std::string& raw);

}  // namespace assay
