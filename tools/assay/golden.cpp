#include "assay/operators/golden.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "assay/compare/case.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"
#include "output.h"
#include "verbs.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// The case again, with golden outputs in place of the given ones: inputs copied, every output listed.
void write_case(const Case& c, const std::vector<NamedTensor>& outputs, const fs::path& folder) {
  auto json = nlohmann::ordered_json::parse(c.json);
  auto& listed = json["outputs"];
  const auto old = std::move(listed);
  listed = nlohmann::ordered_json::array();
  fs::create_directories(folder);
  for (const auto& input : json["inputs"]) {
    const auto file = input["file"].get<std::string>();
    fs::copy_file(c.folder / file, folder / file, fs::copy_options::overwrite_existing);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, tensor] = outputs[i];
    std::string file = fmt::format("golden_{}.npy", i),
                role = name.starts_with("grad_") ? "grad_input" : "output";
    for (const auto& given : old) {
      if (given["name"] == name) file = given["file"];
    }
    write_npy(folder / file, tensor);
    listed.push_back({{"name", name},
                      {"file", file},
                      {"dtype", assay::name(tensor.dtype())},
                      {"shape", tensor.shape()},
                      {"role", role}});
  }
  write_text((folder / "case.json").string(), json.dump(1) + "\n");
}

}  // namespace

int run(const GoldenVerb& verb) {
  const Level level = parse_level(verb.level);
  std::vector<fs::path> cases;
  for (const std::string& path : verb.cases) {
    const auto found = find_cases(path);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  for (const fs::path& folder : cases) {
    const Case c = load_case(folder);
    const fs::path target = cases.size() == 1 ? fs::path(verb.output) : fs::path(verb.output) / c.name;
    std::error_code none;
    if (!verb.output.empty() && fs::exists(target, none) && !fs::is_empty(target, none)) {
      throw Error("{}: is there already and not empty; expected a new folder", target.string());
    }
    const std::vector<NamedTensor> outputs = compute_golden(*c.op, c.inputs, c.attributes, level);
    fmt::print("{}\n", printable(c.name));
    for (const auto& [name, tensor] : outputs) {
      fmt::print("  {:<16} {} {}\n", name, assay::name(tensor.dtype()), to_string(tensor.shape()));
    }
    if (verb.output.empty()) continue;
    try {
      write_case(c, outputs, target);
    } catch (...) {
      fs::remove_all(target, none);  // new or empty a moment ago: no half case stays
      throw;
    }
    fmt::print("  written to {}\n", printable(target.string()));
  }
  return 0;
}

}  // namespace assay
