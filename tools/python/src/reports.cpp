#include "reports.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "assay/compare/report/report.h"
#include "assay/compare/team.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

// The findings of a report for another process, named after who asked for them.
nb::bytes packed(const Report& r, const std::string& by) {
  Share share{{}, r.findings, {}};
  for (Finding& f : share.findings) {
    if (!by.empty()) f.name = by + ": " + f.name;
  }
  const std::string text = pack(share);
  return nb::bytes(text.data(), text.size());
}

// What reports of many calls say together.
Report unpacked(const std::vector<nb::bytes>& all) {
  Report report;
  report.verb = "check";
  report.actual = "outputs of kernels";
  report.reference = "golden";
  for (const nb::bytes& one : all) {
    Share share = unpack_share(std::string(one.c_str(), one.size()));
    std::ranges::move(share.findings, std::back_inserter(report.findings));
  }
  return report;
}

double largest_ratio(const Report& r) {
  double largest = 0;
  for (const Finding& f : r.findings) {
    if (!f.injected) largest = std::isnan(f.ratio) || f.ratio > largest ? f.ratio : largest;
  }
  return largest;
}

nb::tuple findings(const Report& r) {
  nb::list all;
  for (const Finding& f : r.findings) {
    nb::dict d;
    const std::string_view verdict = assay::name(f.verdict), dtype = assay::name(f.actual_dtype);
    d["name"] = f.name;
    d["verdict"] = nb::str(verdict.data(), verdict.size());
    d["output"] = f.id.arg;
    d["dtype"] = nb::str(dtype.data(), dtype.size());
    d["ratio"] = f.ratio;
    d["reason"] = f.reason;
    d["rule"] = f.rule;
    d["injected"] = f.injected;
    nb::list causes;
    for (const Diagnosis& cause : f.diagnoses) causes.append(sentence(cause));
    d["causes"] = nb::tuple(causes);
    d["notes"] = nb::tuple(nb::cast(f.notes));
    const std::int64_t at = f.metrics ? worst_element(*f.metrics) : -1;
    d["worst_index"] = at < 0 ? nb::none() : nb::object(nb::tuple(nb::cast(unravel(at, f.actual_shape))));
    d["actual"] = f.actual_value;
    d["expected"] = f.reference_value;
    all.append(d);
  }
  return nb::tuple(all);
}

}  // namespace

void bind_reports(nb::module_& m) {
  nb::class_<Report>(m, "Report")
      .def_prop_ro("exit_status", &Report::exit_status)
      .def_prop_ro("verdict", [](const Report& r) { return std::string(r.verdict()); })
      .def_prop_ro("summary", &Report::summary)
      .def_prop_ro("ratio", largest_ratio)
      .def_prop_ro("findings", findings)
      .def(
          "text",
          [](const Report& r, bool all, bool color, int width) {
            return to_text(r, {.color = color, .all = all, .width = width, .written = {}});
          },
          nb::arg("all") = false, nb::arg("color") = false, nb::arg("width") = 100)
      .def("json", &to_json)
      .def("html", &to_html)
      .def("markdown", &to_markdown)
      .def("junit", &to_junit)
      .def("packed", &packed)
      .def("set_repeat", [](Report& r, const std::string& command) {
        for (Finding& f : r.findings) f.repeat = f.verdict == Verdict::passed ? "" : command;
      });
  m.def("unpacked", &unpacked);
}

}  // namespace assay::python
