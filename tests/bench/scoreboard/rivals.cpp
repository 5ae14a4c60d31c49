#include "rivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace assay::bench {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// What Megatron-LM calls eps: 2^-7 of bfloat16, 2^-23 of float32.
double eps_of(const Finding& f) {
  return f.actual_dtype == DType::bfloat16 ? 0x1p-7 : f.actual_dtype == DType::float16 ? 0x1p-10 : 0x1p-23;
}

bool is_float_pair(const Finding& f) {
  return f.metrics && is_float(f.actual_dtype);
}
bool is_gradient(const Finding& f) {
  return f.id.slot == "grad" && f.id.arg.find("unreduced") == std::string::npos;
}
bool is_missing(const Finding& f) {
  return f.verdict == Verdict::missing_actual || f.verdict == Verdict::missing_reference ||
         f.verdict == Verdict::replicas_differ;
}

double ratio(double value, double allowed) {
  return std::isnan(value) ? inf : value / allowed;
}

double flat(const Finding& f, const Finding*, int) {
  constexpr double allowed = 0.0829;
  if (!is_gradient(f)) return 0;
  return is_missing(f) ? inf : is_float_pair(f) ? ratio(f.metrics->relative_l2, allowed) : 0;
}

double theorem(const Finding& f, const Finding*, int layers) {
  constexpr double k = 4, c = 1.03;
  if (!is_gradient(f)) return 0;
  if (is_missing(f)) return inf;
  return is_float_pair(f) ? ratio(f.metrics->relative_l2,
                                  k * std::pow(c, layers + 1 - layer_of(f.id.module, layers)) * eps_of(f))
                          : 0;
}

// TTrace's estimate: the change that an input perturbed by a machine epsilon makes, times a factor.
double perturbation(const Finding& f, const Finding* perturbed, int) {
  constexpr double factor = 10;
  if (is_missing(f)) return inf;
  if (!is_float_pair(f) || perturbed == nullptr || !perturbed->metrics) return 0;
  const double noise = std::max(perturbed->metrics->relative_l2, eps_of(f));
  return ratio(f.metrics->relative_l2, factor * noise);
}

double msprobe(const Finding& f, const Finding*, int) {
  if (is_missing(f)) return inf;
  if (!is_float_pair(f)) return 0;
  const double by_cosine = ratio(f.metrics->one_minus_cosine, 0.01),
               by_size = ratio(f.metrics->max_abs, 0.001);
  return std::min(std::max(by_cosine, 0.0), by_size);
}

double close_to(const Finding& f, const Finding*, int) {
  if (is_missing(f)) return inf;
  const auto torch = std::ranges::find(f.others, "torch", &Opinion::policy);
  return torch == f.others.end() ? 0 : torch->ratio;
}

double loss_only(const Finding& f, const Finding*, int) {
  constexpr double allowed = 0.05;
  const bool is_loss = f.id.slot == "loss" && f.id.arg == "loss" && f.id.module == "step";
  return is_loss ? ratio(std::abs(f.actual_value - f.reference_value) / std::abs(f.reference_value), allowed)
                 : 0;
}

double hashes(const Finding& f, const Finding*, int) {
  if (is_missing(f)) return inf;
  return f.metrics && f.metrics->different_bits > 0 ? 2 : 0;
}

}  // namespace

int layer_of(const std::string& module, int layers) {
  const std::string prefix = "model.layers.";
  if (!module.starts_with(prefix)) return module.starts_with("model.embed") ? 0 : layers + 1;
  int layer = 0;
  std::from_chars(module.data() + prefix.size(), module.data() + module.size(), layer);
  return layer + 1;
}

const std::vector<Rival>& rivals() {
  static const std::vector<Rival> all = {
      {"flat 8.29 % of gradients", "Megatron-LM test_optimizer_grads_match.py", flat},
      {"4 x 1.03^(L+1-l) eps", "TTrace theorem 5.3, arXiv 2506.09280", theorem},
      {"perturbation x 10", "TTrace's estimate; the factor is ours", perturbation},
      {"cosine 0.99 and 0.001", "msprobe compare", msprobe},
      {"assert_close", "torch.testing, defaults by dtype", close_to},
      {"loss within 5 %", "Megatron-LM golden values", loss_only},
      {"equal hashes", "OpGuard, torchtitan", hashes},
  };
  return all;
}

}  // namespace assay::bench
