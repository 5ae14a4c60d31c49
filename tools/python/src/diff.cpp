#include "diff.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "assay/compare/diff.h"
#include "assay/dumps/layout/layout_rules.h"
#include "computing.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

struct DiffSettings {
  std::vector<std::string> tolerances;
  std::optional<std::string> rules;
  std::string only;
  bool end_to_end = false;
  nb::object progress;  // of (what, done, total), or None
};

// Tells Python how far the work is, several times a second, and lets a Ctrl-C end it. Other threads than the
// caller's tell nothing.
class Progress {
 public:
  explicit Progress(const nb::object& told) : told_(told) {}

  void operator()(const char* what, double done, double total) {
    if (std::this_thread::get_id() != caller_ || std::chrono::steady_clock::now() < next_) return;
    next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    const nb::gil_scoped_acquire hold;
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (!told_.is_none()) told_(what, done, total);
  }

 private:
  const nb::object& told_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point next_;
};

DiffOptions options_of(const DiffSettings& s) {
  DiffOptions options;
  options.rules = s.rules ? Rules::load(*s.rules) : Rules();
  options.policies = policies_of(s.tolerances);
  options.only = s.only;
  options.end_to_end = s.end_to_end;
  options.error_maps = 8;
  const auto progress = std::make_shared<Progress>(s.progress);
  options.progress = [progress](double done, double total, const std::string&) {
    (*progress)("comparing", done, total);
  };
  options.judging = [progress](std::size_t done, std::size_t total, const std::string&) {
    (*progress)("judging", static_cast<double>(done), static_cast<double>(total));
  };
  return options;
}

Report diff_paths(const std::string& actual, const std::string& reference, const DiffSettings& settings) {
  const Computing computing;
  DiffOptions options = options_of(settings);
  options.threads = computing.threads();
  auto a = open_dump(actual), b = open_dump(reference);
  apply_layouts(a, b, options.rules.layout());
  return diff(*a, *b, options);
}

Report diff_tensors(const Named& actual, const Named& reference, const DiffSettings& settings) {
  const Computing computing;
  DiffOptions options = options_of(settings);
  options.threads = computing.threads();
  return diff(sources_of(actual), sources_of(reference), options);
}

}  // namespace

void bind_diff(nb::module_& m) {
  nb::class_<DiffSettings>(m, "DiffSettings")
      .def(
          "__init__",
          [](DiffSettings* s, std::vector<std::string> tolerances, std::optional<std::string> rules,
             std::string only, bool end_to_end, nb::object progress) {
            new (s) DiffSettings{std::move(tolerances), std::move(rules), std::move(only), end_to_end,
                                 std::move(progress)};
          },
          nb::arg("tolerances"), nb::arg("rules"), nb::arg("only"), nb::arg("end_to_end"),
          nb::arg("progress").none());
  m.def("diff_paths", &diff_paths);
  m.def("diff_tensors", &diff_tensors);
}

}  // namespace assay::python
