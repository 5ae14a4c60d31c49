#include "assay/align/ladder/configuration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/json.h"
#include "assay/golden/error.h"
#include "assay/golden/tensor.h"

namespace assay::align {
namespace {

constexpr std::size_t most_named = 3;

// Keys of a manifest that may differ between two runs of the same work.
constexpr std::array free_keys = {"parallel", "fault",  "program",  "routing",  "command",
                                  "weights",  "tokens", "modes_of", "framework"};

bool is_initial(const Finding& f) {
  return f.id.slot == "param" && f.id.phase == Phase::forward && f.id.step == 0;
}
bool is_data(const Finding& f) {
  return f.id.slot == "input" && !is_float(f.reference_dtype) && f.id.step == 0;
}
bool is_embedding(const Finding& f) {
  return is_initial(f) && f.reference_shape.size() == 2 && f.id.module.find("embed") != std::string::npos;
}
bool is_missing(const Finding& f) {
  return f.verdict == Verdict::missing_actual || f.verdict == Verdict::missing_reference;
}

// "12 of 80: a, b, c and 9 more"
std::string some(const std::vector<const Finding*>& wrong, std::size_t all, const auto& text) {
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(wrong.size(), most_named); ++i) named.push_back(text(*wrong[i]));
  const std::string more =
      wrong.size() > most_named ? fmt::format(" and {} more", wrong.size() - most_named) : "";
  return fmt::format("{} of {}: {}{}", wrong.size(), all, fmt::join(named, "; "), more);
}

class Configuration {
 public:
  Configuration(const Report& report, const Dump& subject, const Dump& reference)
      : report_(report), subject_(subject), reference_(reference) {}

  std::vector<ConfigurationCheck> run() {
    check_settings();
    check(
        "vocabulary", is_embedding, [](const Finding& f) { return f.actual_shape == f.reference_shape; },
        [](const Finding& f) {
          return fmt::format("{} has {}, the reference {}", f.id.module, assay::to_string(f.actual_shape),
                             assay::to_string(f.reference_shape));
        },
        "tables of equal size");
    check(
        "architecture", is_initial,
        [](const Finding& f) { return !is_missing(f) && f.actual_shape == f.reference_shape; },
        [](const Finding& f) {
          return is_missing(f)
                     ? f.name + " is " + f.reason
                     : fmt::format("{} is {}, the reference's {}", f.name, assay::to_string(f.actual_shape),
                                   assay::to_string(f.reference_shape));
        },
        "parameters of equal names and shapes");
    check(
        "initial weights", is_initial, [](const Finding& f) { return f.verdict == Verdict::passed; },
        [](const Finding& f) { return f.name + (f.reason.empty() ? "" : ": " + f.reason); },
        "parameters agree");
    check(
        "mixed precision",
        [](const Finding& f) { return f.id.step == 0 && !is_missing(f) && is_float(f.reference_dtype); },
        [](const Finding& f) { return f.actual_dtype == f.reference_dtype; },
        [](const Finding& f) {
          return fmt::format("{} is {}, the reference's {}", f.name, name(f.actual_dtype),
                             name(f.reference_dtype));
        },
        "tensors of equal dtype", true);
    check(
        "data", is_data, [](const Finding& f) { return f.verdict == Verdict::passed; },
        [](const Finding& f) { return f.name; }, "tensors of tokens and targets are equal");
    return std::move(checks_);
  }

 private:
  void check(const char* what, const auto& concerns, const auto& holds, const auto& text,
             const char* all_well, bool may_differ = false) {
    std::vector<const Finding*> wrong;
    std::size_t all = 0;
    for (const Finding& f : report_.findings) {
      if (f.verdict == Verdict::ignored || !concerns(f)) continue;
      ++all;
      if (!holds(f)) wrong.push_back(&f);
    }
    if (all == 0) return;
    checks_.push_back({what, wrong.empty() || may_differ,
                       wrong.empty() ? fmt::format("{} {}", all, all_well) : some(wrong, all, text),
                       !wrong.empty()});
  }

  // What both programs wrote into their manifests under the same key.
  void check_settings() {
    if (subject_.producer.empty() || reference_.producer.empty()) return;
    std::vector<std::string> differ;
    std::size_t equal = 0;
    try {
      const Json a = parse_json(subject_.producer, "manifest"),
                 g = parse_json(reference_.producer, "manifest");
      if (!a.is_object() || !g.is_object()) return;
      for (const auto& [key, value] : a.object("manifest")) {
        const Json* other = g.find(key);
        if (other == nullptr || std::ranges::find(free_keys, key) != free_keys.end()) continue;
        if (value.text() == other->text())
          ++equal;
        else
          differ.push_back(fmt::format("{} is {}, the reference's {}", printable(key),
                                       printable(value.text()), printable(other->text())));
      }
    } catch (const Error&) {
      return;  // a manifest that says nothing readable
    }
    if (equal + differ.size() == 0) return;
    checks_.push_back({"hyper-parameters", differ.empty(),
                       differ.empty() ? fmt::format("{} settings of the manifests are equal", equal)
                                      : fmt::format("{}", fmt::join(differ, "; "))});
  }

  const Report& report_;
  const Dump& subject_;
  const Dump& reference_;
  std::vector<ConfigurationCheck> checks_;
};

}  // namespace

std::vector<ConfigurationCheck> check_configuration(const Report& report, const Dump& subject,
                                                    const Dump& reference) {
  return Configuration(report, subject, reference).run();
}

}  // namespace assay::align
