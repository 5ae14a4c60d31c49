#include "shared_options.h"

#include <algorithm>
#include <thread>

#include "assay/compare/calls/case.h"
#include "assay/golden/error.h"
#include "log.h"

namespace assay {

void add_cases(Options& options, std::vector<std::string>& cases) {
  options.option("case", cases, "folder with case.json, or a folder of such").required().holds("CASE");
}

std::vector<std::filesystem::path> find_all_cases(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> cases;
  for (const std::string& folder : folders) {
    const auto found = find_cases(folder);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  return cases;
}

void add_tolerances(Options& options, std::vector<std::string>& names, const std::string& meaning) {
  options.option("--tolerance", names, meaning).holds("POLICY");
}

std::vector<Policy> load_policies(const std::vector<std::string>& names) {
  std::vector<Policy> policies;
  for (const std::string& name : names) policies.push_back(load_policy(name));
  return policies;
}

void add_only(Options& options, std::string& only, const std::string& of) {
  options.option("--only", only, "only " + of + " of this name; * and ? as in a shell")
      .holds("NAME")
      .not_repeated();
}

Option& add_rules(Options& options, std::string& file, const std::string& meaning) {
  return options.option("--rules", file, meaning).holds("F");
}

Rules load_rules(const std::string& file) {
  return file.empty() ? Rules() : Rules::load(file);
}

void add_threads(Options& options, int& threads) {
  options.option("--threads", threads, "0: one per core").not_repeated();
}

int thread_count(int option) {
  if (option < 0) throw Error("--threads {}: expected a number >= 0", option);
  return option > 0 ? option : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void add_device(Options& options, std::string& accumulator, std::string& intermediate) {
  options
      .option(
          "--accumulator", accumulator,
          "how the device adds: float32 (default), bfloat16, hopper, .. (docs/check.md),\nor a file of assay "
          "order -o")
      .holds("A");
  options
      .option("--intermediate", intermediate,
              "dtype of what lies between the steps of a kernel: bfloat16 if eager")
      .holds("T");
}

std::optional<DType> parse_dtype_option(std::string_view option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype || (option == "--intermediate" && !is_float(*dtype))) {
    throw Error("{} {}: is no dtype for it; expected a torch name such as bfloat16", option, text);
  }
  return dtype;
}

void add_dtype_hint(Options& options, std::string& dtype, const std::string& arrays) {
  options.option("--dtype-hint", dtype, "dtype of " + arrays);
}

void add_raw(Options& options, std::string& raw) {
  options.option("--raw", raw, "what a file of no known format holds, little-endian: float32:4,8")
      .holds("T:N,N");
}

OpenOptions open_options(const std::string& dtype_hint, const std::string& raw) {
  OpenOptions options;
  options.log = program_log();
  options.dtype_hint = parse_dtype_option("--dtype-hint", dtype_hint);
  if (raw.empty()) return options;
  try {
    options.raw = parse_raw(raw);
  } catch (const Error& problem) {
    throw Error("--raw {}", problem.what());
  }
  return options;
}

}  // namespace assay
