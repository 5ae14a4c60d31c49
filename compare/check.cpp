#include "assay/compare/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>

#include "assay/compare/calls/case_check.h"
#include "assay/compare/calls/prove.h"
#include "assay/compare/causes/call_mistakes.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/io/shrunk.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// The tensors that `--actual` points to, by name or by the stem of their file.
class ActualOutputs {
 public:
  ActualOutputs(const Case& c, const CheckOptions& options, bool single_case) : case_(c) {
    if (!options.actual) return;
    const auto hint = options.dtype_hint ? options.dtype_hint : declared_hint();
    dump_ = open_dump(folder_of(*options.actual, single_case), {.dtype_hint = hint, .log = options.log});
    tensors_ = logical_tensors(*dump_);
  }

  Merged read(const CaseOutput& output) const {
    if (!dump_) return {case_.read(output), {}, {}};
    const std::string stem = fs::path(output.file).stem();
    const LogicalTensor* by_name = find(output.name);
    const LogicalTensor* by_file = find(stem);
    if (by_name != nullptr && by_file != nullptr && by_name != by_file) {
      throw Error("{}: holds '{}' and '{}'; expected the output under one of these names only",
                  dump_->path.string(), output.name, stem);
    }
    if (by_name == nullptr && by_file == nullptr) {
      throw Error("{}: holds neither '{}' nor '{}'; expected the output under one of these names",
                  dump_->path.string(), output.name, stem);
    }
    Merged merged = merge(*dump_, by_name != nullptr ? *by_name : *by_file);
    merged.tensor = merged.tensor.whole();  // judged several times; a file may be slow to read
    return merged;
  }
  std::string format() const { return dump_ ? dump_->format : "case"; }
  std::vector<std::string> notes() const {
    if (!dump_) return {};
    std::vector<std::string> all = dump_->notes;
    for (const std::string& what : dump_->left_out) all.push_back("left out: " + what);
    for (const std::string& what : dump_->unreadable) all.push_back("unreadable: " + what);
    return all;
  }

 private:
  // By its whole name, else by what follows the name of the file it is in: "outputs/y".
  const LogicalTensor* find(const std::string& name) const {
    const LogicalTensor* inner = nullptr;
    for (const LogicalTensor& t : tensors_) {
      if (t.id.module == name) return &t;
      if (!t.id.module.ends_with("/" + name)) continue;
      if (inner != nullptr)
        throw Error("{}: holds '{}' and '{}'; expected one '{}'", dump_->path.string(), inner->id.module,
                    t.id.module, name);
      inner = &t;
    }
    return inner;
  }

  // Arrays of raw 1- or 2-byte items are what the case declares, where it declares one such dtype only.
  std::optional<DType> declared_hint() const {
    std::optional<DType> hint;
    for (const CaseOutput& output : case_.outputs) {
      if (size_of(output.dtype) > 2) continue;
      if (hint && hint != output.dtype) return {};
      hint = output.dtype;
    }
    return hint;
  }

  // A command that repeats one of several cases names the folder of them all.
  fs::path folder_of(const fs::path& root, bool single_case) const {
    for (const fs::path& below : {fs::path(case_.name), case_.folder.filename()}) {
      if (!below.empty() && fs::is_directory(root / below)) return root / below;
    }
    if (single_case) return root;
    throw Error("{}: has no folder '{}' for this case; expected one folder per case", root.string(),
                case_.name);
  }

  const Case& case_;
  std::unique_ptr<Dump> dump_;
  std::vector<LogicalTensor> tensors_;
};

Finding named_finding(const Case& c, const CaseOutput& output) {
  Finding f;
  f.name = c.name + " " + output.name;
  f.id.module = c.name;
  f.id.slot = "output";
  f.id.arg = output.name;
  return f;
}

Finding unreadable(std::string name, std::string why) {
  Finding f;
  f.name = name;
  f.id.module = std::move(name);
  f.verdict = Verdict::unreadable;
  f.reason = std::move(why);
  return f;
}

std::ptrdiff_t maps_of(const Report& report) {
  return std::ranges::count_if(report.findings, [](const Finding& f) { return f.error_map.has_value(); });
}

Report begun(std::string actual, const CheckOptions& options) {
  Report report;
  report.verb = "check";
  report.actual = std::move(actual);
  report.reference = fmt::format("golden, level {}", name(options.level));
  for (const Policy& p : options.policies) report.policies.push_back({p.name, p.table_sha256});
  return report;
}

// `names` are those of the cases before: with --actual two of one name would share a folder.
void check_case(const fs::path& folder, bool single_case, const CheckOptions& options,
                std::map<std::string, fs::path>& names, Report& report) {
  std::unique_ptr<Case> c;
  std::unique_ptr<CaseCheck> golden;
  std::unique_ptr<ActualOutputs> outputs;
  auto trouble = trouble_in([&] {
    c = std::make_unique<Case>(load_case(folder));
    if (options.actual && names.try_emplace(c->name, folder).first->second != folder) {
      throw Error(
          "{}: another case is called '{}' too; expected names of their own, since --actual goes by them",
          folder.string(), c->name);
    }
    golden = std::make_unique<CaseCheck>(*c, options);
    outputs = std::make_unique<ActualOutputs>(*c, options, single_case);
    if (c->outputs.empty())
      throw Error("{}: lists no outputs; expected at least one to judge", (folder / "case.json").string());
  });
  if (trouble) {  // the other cases go on
    report.findings.push_back(unreadable(c ? c->name : folder.string(), std::move(*trouble)));
    options.log.debug("{} is not checked: {}", report.findings.back().name, report.findings.back().reason);
    return;
  }
  report.actual_format = outputs->format();
  for (const std::string& note : outputs->notes()) report.notes.push_back(c->name + ": " + note);
  if (const std::string unlisted = golden->outputs_not_listed(); !unlisted.empty()) {
    report.notes.push_back(fmt::format("{}: case.json does not list {}: not judged", c->name, unlisted));
  }
  for (const CaseOutput& output : c->outputs) {
    Finding f = named_finding(*c, output);
    if (!options.only.empty() && !glob_match(options.only, f.name)) continue;
    trouble = trouble_in([&] {
      const Merged actual = outputs->read(output);
      const auto within = actual.replicas.empty() && actual.tensor.dtype() == output.dtype
                              ? within_rows(*c, {{output.name, actual.tensor}}, options)
                              : std::map<std::string, WithinRows, std::less<>>();
      if (const auto known = within.find(output.name); known != within.end())
        golden->judge_output(f, output, actual.tensor, known->second);
      else
        golden->judge_output(f, output, actual, maps_of(report) < options.error_maps);
      if (options.causes) explain_output(f, *golden, output, actual.tensor);
      check_not_shrunk(folder.string());
      if (options.actual) check_not_shrunk(options.actual->string());
    });
    if (trouble) {  // the other outputs go on
      f.verdict = Verdict::unreadable;
      f.reason = std::move(*trouble);
      options.log.debug("{} is not checked: {}", f.name, f.reason);
    }
    options.log.trace("{}: {}, {:.3g} of what is allowed by {}", f.name, name(f.verdict), f.ratio,
                      f.rule.empty() ? "no rule" : f.rule);
    f.repeat = "assay check " + shell_quoted(folder.string());
    if (options.actual) f.repeat += " --actual " + shell_quoted(options.actual->string());
    f.repeat += options.repeat + only_option(f.name);
    report.findings.push_back(std::move(f));
  }
  if (!options.prove) return;
  for (Finding& f : prove(*golden)) {
    if (!options.only.empty() && !glob_match(options.only, f.name)) continue;
    f.repeat = "assay check " + shell_quoted(folder.string()) + options.repeat + only_option(f.name);
    report.findings.push_back(std::move(f));
  }
}

}  // namespace

Report check(const std::vector<fs::path>& cases, const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Report report = begun(options.actual ? options.actual->string() : "outputs of the cases", options);
  std::map<std::string, fs::path> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (options.progress) options.progress(i, cases.size(), cases[i].string());
    check_case(cases[i], cases.size() == 1, options, names, report);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  options.log.info("{}, in {:.3f} s", report.summary(), report.seconds);
  return report;
}

Case as_case(const MadeCall& made) {
  Case c;
  c.name = made.op->name;
  c.op = made.op;
  c.inputs = made.inputs;
  c.attributes = made.attributes;
  for (const NamedSource& t : made.outputs)
    c.outputs.push_back({t.name, "", t.tensor.dtype(), t.tensor.shape()});
  return c;
}

Report check(const MadeCall& made, const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Case c = as_case(made);
  CaseCheck golden(c, options);
  MadeOutputs outputs;
  for (const NamedSource& t : made.outputs) outputs.emplace(t.name, t.tensor);
  const auto within = within_rows(c, outputs, options);
  Report report = begun("the kernel's outputs", options);
  for (std::size_t k = 0; k < made.outputs.size(); ++k) {
    const TensorSource& actual = made.outputs[k].tensor;
    Finding f = named_finding(c, c.outputs[k]);
    if (!options.only.empty() && !glob_match(options.only, f.name)) continue;
    if (const auto known = within.find(made.outputs[k].name); known != within.end())
      golden.judge_output(f, c.outputs[k], actual, known->second);
    else
      golden.judge_output(f, c.outputs[k], {actual, {}, {}}, maps_of(report) < options.error_maps);
    if (options.causes) explain_output(f, golden, c.outputs[k], actual);
    report.findings.push_back(std::move(f));
  }
  if (options.prove) {
    for (Finding& f : prove(golden)) report.findings.push_back(std::move(f));
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace assay
