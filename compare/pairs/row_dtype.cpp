#include "assay/compare/pairs/row_dtype.h"

#include <fmt/format.h>

#include "assay/compare/measure/measure.h"

namespace assay {
namespace {

bool are_floats(const Pair& p) {
  return p.actual != nullptr && p.reference != nullptr && is_float(p.actual->dtype) &&
         is_float(p.reference->dtype);
}

}  // namespace

RowDType::RowDType(const std::vector<Pair>& pairs) {
  for (const Pair& p : pairs) {
    if (!are_floats(p)) continue;
    excess_[{p.id().phase, p.id().slot}] += p.actual->dtype == p.reference->dtype ? 1 : -1;
  }
}

bool RowDType::deviates(const Pair& p) const {
  // Without phases there is no run: a file may hold anything beside what it was meant to hold.
  if (!are_floats(p) || p.actual->dtype == p.reference->dtype || p.id().phase == Phase::none) return false;
  return excess_.at({p.id().phase, p.id().slot}) > 0;
}

void RowDType::see(const Pair& p) {
  for (const LogicalTensor* tensor : {p.actual, p.reference}) {
    const bool counts =
        tensor != nullptr && is_float(tensor->dtype) && (tensor == p.reference || !deviates(p));
    if (counts && !first_.contains(tensor->dtype)) first_.emplace(tensor->dtype, to_string(tensor->id));
  }
}

void RowDType::apply(Expectation& e, DType own) const {
  e.row_dtype = own;
  for (const auto& [dtype, first] : first_) {
    // In fewer bits values are stored, not computed: what is made of them has a wider accumulator and dtype.
    if (size_of(dtype) < size_of(DType::bfloat16)) continue;
    if (dtype == e.row_dtype || coarser(e.row_dtype, dtype) != dtype || e.policy->rows_of(dtype).empty())
      continue;
    e.row_dtype = dtype;
    e.row_reason = fmt::format("{} was used upstream, first in {}", name(dtype), first);
  }
}

std::string deviation_text(const Pair& pair) {
  return fmt::format("{} against {}, while most tensors of its kind have one dtype on both sides",
                     name(pair.actual->dtype), name(pair.reference->dtype));
}

void note_deviations(Report& report, const std::vector<Pair>& pairs, const RowDType& row_dtype) {
  std::int64_t deviating = 0;
  std::string first;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (report.findings[i].verdict == Verdict::ignored || !row_dtype.deviates(pairs[i])) continue;
    if (deviating++ == 0) first = fmt::format("{}, {}", report.findings[i].name, deviation_text(pairs[i]));
  }
  if (deviating == 0) return;
  report.notes.push_back(
      fmt::format("another dtype in {} tensor{}, first in {}", deviating, deviating == 1 ? "" : "s", first));
}

}  // namespace assay
