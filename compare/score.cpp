#include "assay/compare/score.h"

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/case_check.h"
#include "assay/compare/calls/prove.h"

namespace assay {
namespace {

double root_mean_square(const Tensor& actual, const Tensor& golden) {
  const std::vector<double> a = actual.values(), g = golden.values();
  if (a.size() != g.size() || a.empty()) return infinity;
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_none = std::isnan(a[i]) && std::isnan(g[i]);
    if (!both_none && a[i] != g[i]) square += (a[i] - g[i]) * (a[i] - g[i]);
  }
  return std::isnan(square) ? infinity : std::sqrt(square / static_cast<double>(a.size()));
}

// The share of the way from a worthless one that an error has left, in the unit that f gives.
double share(double error, double worthless) {
  return worthless > 0 && std::isfinite(error) ? std::clamp(1 - error / worthless, 0.0, 1.0) : 0;
}

}  // namespace

double score(const MadeCall& made, const CheckOptions& given) {
  CheckOptions options = given;
  options.causes = options.prove = false;
  options.error_maps = 0;
  const Report report = check(made, options);
  const Case c = as_case(made);
  CaseCheck gate(c, options);
  double least = report.findings.empty() ? 0 : 1;
  std::vector<WrongOutput> worthless;
  for (std::size_t k = 0; k < report.findings.size(); ++k) {
    const Finding& f = report.findings[k];
    if (f.verdict == Verdict::passed) continue;
    if (f.verdict != Verdict::failed || !std::isfinite(f.ratio) || !is_float(f.actual_dtype)) return 0;
    if (worthless.empty())
      worthless = trivial_outputs(c, compute_golden(*c.op, c.inputs, c.attributes, Level::fp64));
    double ratio = infinity, error = infinity;
    Tensor golden;
    for (const WrongOutput& w : worthless) {
      if (w.output != c.outputs[k].name) continue;
      Finding of_none;
      gate.judge_output(of_none, c.outputs[k], {w.actual, {}, {}});
      golden = w.golden;
      if (of_none.verdict == Verdict::passed) return 0;
      if (std::isfinite(of_none.ratio)) ratio = std::min(ratio, of_none.ratio);
      error = std::min(error, root_mean_square(w.actual, w.golden));
    }
    const double by_worst = ratio > 1 ? share(std::log(std::max(f.ratio, 1.0)), std::log(ratio)) : 0;
    least =
        std::min({least, by_worst, share(root_mean_square(made.outputs[k].tensor.whole(), golden), error)});
  }
  return least;
}

}  // namespace assay
