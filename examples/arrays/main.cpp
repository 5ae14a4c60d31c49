#include "assay/compare/diff.h"
#include "assay/golden/xtensor.h"
#include "assay/operators/engine/golden.h"

int main() {
  const xt::xarray<float> x = {{0, 1, 2}, {2, 1, 0}};
  const std::vector<assay::NamedTensor> inputs = {{"x", x}};
  const auto outputs = assay::compute_golden(assay::find_operator("softmax"), inputs, {}, assay::Level::fp64);
  const auto y = assay::as_xtensor<double>(assay::output_named(outputs, "y"));
  fmt::print("{:.6f} {:.6f} {:.6f}\n", y(0, 0), y(0, 1), y(0, 2));

  // What a kernel stored in Fortran order, with a fault in one element.
  xt::xarray<float, xt::layout_type::column_major> stored = y;
  stored(1, 2) *= 1.01f;
  assay::DiffOptions options;
  options.policies = {assay::load_policy("torch")};
  const assay::Report report = assay::diff({{"probabilities", stored}}, {{"probabilities", y}}, options);
  const assay::Finding& f = report.findings.front();
  fmt::print("{}: {} at {}\n", f.name, assay::name(f.verdict),
             assay::to_string(assay::unravel(f.metrics->max_abs_at, f.actual_shape)));
  return report.exit_status() == 1 ? 0 : 1;
}
