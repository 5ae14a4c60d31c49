#include "assay/compare/calls/call_judge.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

constexpr double share_of_values = 1. / 40;  // of that of bounds: 6e8 terms a second
// Of a quick look: each element is read and measured, terms are of two products of matrices: 4e7 and 1e10 a
// second.
constexpr double share_of_elements = 0.4, share_of_products = 1. / 700;

double work_of_quick(const Call& call) {
  return share_of_elements * call.elements() + share_of_products * call.work();
}

}  // namespace

double evidence(const Call::Compared& right, const Call::Compared& fit) {
  const std::vector<double> actual = right.actual.values(), golden = right.golden.values();
  double bits = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double before = std::abs(actual[i] - golden[i]);
    if (fit.allowed[i] > 0 && std::isfinite(before))
      bits += std::log2(std::max(1.0, before / fit.allowed[i]));
  }
  return bits;
}

bool CallJudge::is_within(const Call::Compared& compared) const {
  return standard_ == Standard::whole ? compared.within() : compared.ratio <= 1;
}

std::optional<Call::Compared> CallJudge::compare_quickly(const Call& call, const CallVariant& variant) {
  if (call.work() <= work_of_a_look) return {};
  work_ += work_of_quick(call);
  return call.compare_quickly(variant);
}

std::optional<Call::Compared> CallJudge::first_look(const Call& call, const CallVariant& variant) const {
  if (call.work() > work_of_a_look) return call.compare_quickly(variant);
  auto compared = call.compare(variant, {}, standard_ == Standard::whole);
  return compared && is_within(*compared) ? compared : std::nullopt;
}

void CallJudge::spend_first_look(const Call& call) {
  work_ += call.work() > work_of_a_look ? work_of_quick(call) : call.work();
}

std::optional<Call::Compared> CallJudge::compare(const Call& call, const CallVariant& variant) {
  if (auto quick = compare_quickly(call, variant)) return quick;
  work_ += call.work();
  auto compared = call.compare(variant, {}, standard_ == Standard::whole);
  if (!compared || is_within(*compared)) return compared;
  for (const Arithmetic& way : call.admissible_arithmetics(variant)) {
    work_ += call.work() * share_of_values;
    auto other = call.compare(variant, way, standard_ == Standard::whole);
    if (other && (is_within(*other) || other->ratio < compared->ratio)) compared = std::move(other);
    if (is_within(*compared)) return compared;
  }
  auto in_any = call.compare_in_any_blocks(variant);
  return in_any ? in_any : compared;
}

std::optional<Call::Compared> CallJudge::fit(const Call& call, const CallVariant& variant,
                                             const Arithmetic& arithmetic, bool is_likely) {
  if (is_spent()) return {};
  const auto look = [&] { return arithmetic.inputs ? std::nullopt : compare_quickly(call, variant); };
  if (is_likely) {
    if (auto quick = look()) return quick;
  }
  work_ += call.work() * share_of_values;
  if (!call.may_fit(variant, arithmetic)) return {};
  if (!is_likely) {
    if (auto quick = look()) return quick;
  }
  work_ += call.work();
  auto compared = call.compare(variant, arithmetic);
  if (compared && is_within(*compared)) return compared;
  if (arithmetic.inputs) return {};
  for (Arithmetic way : call.admissible_arithmetics(variant)) {
    way.sums = arithmetic.sums;
    work_ += call.work() * share_of_values;
    compared = call.compare(variant, way, standard_ == Standard::whole);
    if (compared && is_within(*compared)) return compared;
  }
  return {};
}

std::optional<CallJudge::Fit> CallJudge::first_fit(const Call& call, const std::vector<CallVariant>& among) {
  for (const CallVariant& v : among) {
    if (auto compared = fit(call, v)) return Fit{v, std::move(*compared)};
  }
  return {};
}

std::vector<CallVariant> CallJudge::with_bisected(const Call& call, const CallVariant& from) {
  work_ += call.evaluations_to_bisect() * call.work() * share_of_values;
  return is_spent() ? std::vector<CallVariant>() : call.with_bisected(from);
}

std::optional<Call::Weights> CallJudge::fitted_weights(const Call& call, const CallVariant& variant) {
  work_ += call.work();
  return call.fitted_weights(variant);
}

}  // namespace assay
