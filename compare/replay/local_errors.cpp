#include "assay/compare/replay/local_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "assay/compare/metrics.h"

namespace assay {
namespace {

// Replays of one comparison: what they may add up together, about a minute at the 1.5e7 terms a second that
// bounds take. A root stands before what follows from it, so that little is left out that would say more.
constexpr double most_work = 0x1p30;

constexpr double share_of_values = 1. / 40;  // of that of bounds: 6e8 terms a second

std::string pattern(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

std::string text_of(const CallVariant& v) {
  return v.text.empty() ? "its defaults" : v.text;
}

}  // namespace

LocalErrors::LocalErrors(const Sides& sides)
    : sides_(sides), actual_calls_(sides.actual_tensors), reference_calls_(sides.reference_tensors) {}

std::optional<Replay> LocalErrors::prepare(const Dump& dump, const RecordedCalls& calls,
                                           const LogicalTensor& tensor, const Finding& f) const {
  std::vector<RecordedCall> made_by = calls.of(tensor);
  if (made_by.empty() || !std::ranges::all_of(made_by, &RecordedCall::is_complete)) return {};
  return std::make_optional<Replay>(dump, std::move(made_by), merge(dump, tensor).tensor.whole(),
                                    worst_element(*f.metrics));
}

std::optional<LocalErrors::Local> LocalErrors::of(const Finding& f, const Pair& pair) {
  if (!f.metrics || pair.actual == nullptr || pair.reference == nullptr || work_ > most_work) return {};
  try {
    const auto reference = prepare(sides_.reference, reference_calls_, *pair.reference, f);
    if (!reference) return {};
    const auto variant = fitting(*reference, f.id);
    if (!variant) return {};
    const auto actual = prepare(sides_.actual, actual_calls_, *pair.actual, f);
    if (!actual) return {};
    work_ += actual->work();
    const std::optional<double> ratio = actual->ratio(*variant);
    if (!ratio) return {};
    Local local{*ratio,
                fmt::format("{}{} on its own recorded inputs: error/allowed {:.3g}", actual->op().name,
                            variant->text.empty() ? "" : " (" + variant->text + ")", *ratio),
                {}};
    if (*ratio > 1) local.diagnoses = mistakes(*actual, *variant);
    return local;
  } catch (const std::exception&) {  // it cannot be read, or not be held in float64: nothing can be said
    return {};
  }
}

bool LocalErrors::fits(const Replay& replay, const CallVariant& variant, const Arithmetic& arithmetic) {
  if (work_ > most_work) return false;
  work_ += replay.work() * share_of_values;
  if (!replay.may_fit(variant, arithmetic)) return false;
  work_ += replay.work();
  const std::optional<double> ratio = replay.ratio(variant, arithmetic);
  return ratio && *ratio <= 1;
}

std::vector<CallVariant> LocalErrors::with_fitted_epsilon(const Replay& replay) {
  work_ += replay.evaluations_to_fit_epsilon() * replay.work() * share_of_values;
  return work_ > most_work ? std::vector<CallVariant>() : replay.with_fitted_epsilon();
}

// The attributes with which the reference's recording is right.
std::optional<CallVariant> LocalErrors::fitting(const Replay& reference, const Identity& id) {
  const auto key = std::pair(&reference.op(), pattern(id.module));
  if (const auto known = known_.find(key); known != known_.end() && fits(reference, known->second))
    return known->second;
  auto found = first_fit(reference, variants_of(reference.op()));
  if (!found) found = first_fit(reference, with_fitted_epsilon(reference));
  if (found) known_[key] = *found;
  return found;
}

std::optional<CallVariant> LocalErrors::first_fit(const Replay& replay,
                                                  const std::vector<CallVariant>& among) {
  const auto found = std::ranges::find_if(among, [&](const CallVariant& v) { return fits(replay, v); });
  return found == among.end() ? std::nullopt : std::optional(*found);
}

std::vector<Diagnosis> LocalErrors::mistakes(const Replay& actual, const CallVariant& right) {
  const auto claim = [&](const char* kind, const CallVariant& variant, const Arithmetic& arithmetic,
                         const std::string& what) {
    const double ratio = actual.ratio(variant, arithmetic).value_or(1);
    return std::vector<Diagnosis>{{kind, fmt::format("{}; error/allowed {:.2g}", what, ratio), ratio}};
  };
  auto mistake = first_fit(actual, mistakes_for(actual.op(), right));
  if (!mistake) mistake = first_fit(actual, with_fitted_epsilon(actual));
  if (mistake)
    return claim("attribute", *mistake, {},
                 fmt::format("it is {} with {}, where the reference has {}", actual.op().name,
                             text_of(*mistake), text_of(right)));
  for (const Arithmetic& narrow : narrow_arithmetics()) {
    if (fits(actual, right, narrow))
      return claim(narrow.inputs ? "input_precision" : "accumulator_precision", right, narrow,
                   fmt::format("it is {} {}", actual.op().name, describe(narrow)));
  }
  return {};
}

}  // namespace assay
