#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/case_writer.h"
#include "assay/compare/calls/stated_accumulator.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/certified.h"
#include "output.h"
#include "shared_options.h"
#include "verb.h"

namespace assay {
namespace {

struct GoldenVerb {
  std::vector<std::string> cases;
  std::string output, accumulator, intermediate;
  std::string level = "fp64";
};

namespace fs = std::filesystem;

bool is_listed(const nlohmann::ordered_json& outputs, const std::string& name) {
  return std::ranges::any_of(outputs, [&](const auto& output) { return output["name"] == name; });
}

// The case again, with golden outputs in place of the given ones: inputs copied, every output listed.
void write_golden(const Case& c, const std::vector<NamedTensor>& outputs, const fs::path& folder) {
  auto json = nlohmann::ordered_json::parse(c.json);
  auto& listed = json["outputs"];
  const auto old = std::move(listed);
  listed = nlohmann::ordered_json::array();
  fs::create_directories(folder);
  std::set<std::string> old_files;
  for (const auto& output : old) old_files.insert(output["file"].get<std::string>());
  for (const auto& input : json["inputs"]) {
    const auto file = input["file"].get<std::string>();
    old_files.insert(file);
    fs::copy_file(c.folder / file, folder / file, fs::copy_options::overwrite_existing);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, tensor] = outputs[i];
    const Role role = output_arg(*c.op, name).role;
    std::string file;
    for (const auto& given : old) {
      if (given["name"] == name) file = given["file"];
    }
    for (std::size_t n = i; file.empty() || (old_files.contains(file) && !is_listed(old, name)); ++n) {
      file = fmt::format("golden_{}.npy", n);
    }
    old_files.insert(file);
    write_npy(folder / file, tensor);
    listed.push_back({{"name", name},
                      {"file", file},
                      {"dtype", assay::name(tensor.dtype())},
                      {"shape", tensor.shape()},
                      {"role", assay::name(role == Role::output_index ? Role::index : role)}});
  }
  write_text((folder / "case.json").string(), json.dump(1) + "\n");
}

// The outputs of one level, and in words what is known of each.
struct Outputs {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> remarks;
};

Outputs compute(const Case& c, Level level, const ErrorModel& device) {
  if (level == Level::bound) return {compute_bound(*c.op, c.inputs, c.attributes, device), {}};
  if (level != Level::certified) return {compute_golden(*c.op, c.inputs, c.attributes, level), {}};
  Outputs outputs;
  for (CertifiedTensor& t : compute_certified(*c.op, c.inputs, c.attributes)) {
    const Proof& p = t.proof;
    outputs.remarks.push_back(fmt::format("{} exact, {} certified, {} repaired{}", p.exact, p.certified,
                                          p.repaired,
                                          p.unproved > 0 ? fmt::format(", {} unproved", p.unproved) : ""));
    outputs.tensors.push_back(std::move(t.value));
  }
  return outputs;
}

ErrorModel device_of(const GoldenVerb& verb, Level level) {
  const auto intermediate = parse_dtype_option("--intermediate", verb.intermediate);
  if (level != Level::bound && (intermediate || !verb.accumulator.empty())) {
    throw Error("--accumulator and --intermediate describe a device; expected them with --level bound");
  }
  ErrorModel device = float32_device;
  if (!verb.accumulator.empty()) device.accumulator = parse_accumulator(stated_accumulator(verb.accumulator));
  if (intermediate) device.stored_roundoff = unit_roundoff(*intermediate);
  return device;
}

void declare(GoldenVerb& verb, Options& options) {
  add_cases(options, verb.cases);
  options.option("-o,--output", verb.output, "write the case with golden outputs into this folder")
      .holds("DIR");
  options.option("--level", verb.level,
                 "report (float32), fp64, certified (float32 with proof) or bound (errors)");
  add_device(options, verb.accumulator, verb.intermediate);
}

int run(const GoldenVerb& verb, const Options&) {
  const Level level = parse_level(verb.level);
  const ErrorModel device = device_of(verb, level);
  const std::vector<fs::path> cases = find_all_cases(verb.cases);
  for (const fs::path& folder : cases) {
    const Case c = load_case(folder);
    const fs::path target = cases.size() == 1 ? fs::path(verb.output) : fs::path(verb.output) / c.name;
    if (!verb.output.empty()) expect_new_folder(target);
    const Outputs outputs = compute(c, level, device);
    fmt::print("{}\n", printable(c.name));
    for (std::size_t i = 0; i < outputs.tensors.size(); ++i) {
      const auto& [name, tensor] = outputs.tensors[i];
      const std::string what = fmt::format("{} {}", assay::name(tensor.dtype()), to_string(tensor.shape()));
      fmt::print("  {:<16} {}{}\n", name, what, outputs.remarks.empty() ? "" : ": " + outputs.remarks[i]);
    }
    if (verb.output.empty()) continue;
    try {
      write_golden(c, outputs.tensors, target);
    } catch (...) {
      std::error_code none;
      fs::remove_all(target, none);  // new or empty a moment ago: no half case stays
      throw;
    }
    fmt::print("  written to {}\n", printable(target.string()));
  }
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb golden = {"golden", "compute golden outputs of operator cases",
                                "assay golden cases/rms_norm/rows_6x33 -o golden", declared<GoldenVerb>};
}

}  // namespace assay
