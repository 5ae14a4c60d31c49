#include "assay/compare/causes/explain_by_others.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/causes/values/other_tensor.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

class OtherTensors {
 public:
  OtherTensors(const NearbyTensors& beside, const Identity& own, const FailingPair& failing,
               std::vector<Diagnosis>& found)
      : beside_(beside), own_(own), failing_(failing), found_(found) {}

  void explain() const {
    stale();
    other();
    not_updated();
    added();
  }

  // What it should be stands at another module of the actual side, where the reference has something else.
  void elsewhere(const NearbyTensors& reference) const {
    const LogicalTensor* const expected = reference.find(own_);
    if (own_.micro_batch < 0 || expected == nullptr) return;
    const auto candidates = beside_.of_other_modules(own_, failing_.actual.shape(), false);
    const double parameters = bits_of_choice(candidates.size());
    if (!proves(evidence(failing_), parameters)) return;
    for (const LogicalTensor* tensor : candidates) {
      const LogicalTensor* const right = reference.find(tensor->id);
      if (right == nullptr || right->shape != expected->shape || !is_float(tensor->dtype)) continue;
      const FailingPair moved(beside_.read(*tensor), failing_.reference, failing_.context);
      if (moved.over > 0) continue;
      const FailingPair in_reference(reference.read(*right), reference.read(*expected), failing_.context);
      if (!proves(evidence(in_reference), parameters)) continue;
      const std::string name = to_string(tensor->id);
      found_.push_back({Cause::other_tensor,
                        {.tensor = name,
                         .how = fmt::format("what it should be is {}: modules run in another order", name)},
                        0});
      return;
    }
  }

  // The sum has one of its terms another number of times.
  void added(std::span<const RightValue::Term> terms) const {
    for (const RightValue::Term& term : terms) {
      const auto sum = added_term(failing_, TensorSource(term.value), terms.size());
      if (!sum) continue;
      found_.push_back({Cause::added,
                        {.factor = sum->factor, .term = "a term of it", .tensor = term.name},
                        sum->residual});
      return;
    }
  }

  // The tensor of another step or micro-batch.
  void stale() const {
    const std::vector<const LogicalTensor*> candidates =
        beside_.in_other_calls(own_, failing_.actual.shape());
    for (const LogicalTensor* tensor : candidates) {
      const Identity& id = tensor->id;
      const auto left = equals(failing_, beside_.read(*tensor), candidates.size());
      if (!left) continue;
      CauseParameters which;
      if (id.step != own_.step) which.step = id.step;
      if (id.micro_batch != own_.micro_batch) which.micro_batch = id.micro_batch;
      if (id.call != own_.call) which.call = id.call;
      found_.push_back({Cause::stale, std::move(which), *left});
      return;
    }
  }

  // The tensor of another module, or pieces of it.
  void other() const {
    if (own_.slot != "param") return;
    const auto candidates = beside_.of_other_modules(own_, failing_.actual.shape(), false);
    for (const LogicalTensor* tensor : candidates) {
      const TensorSource values = beside_.read(*tensor);
      CauseParameters which = {.tensor = to_string(tensor->id)};
      if (const auto left = equals(failing_, values, candidates.size())) {
        found_.push_back({Cause::other_tensor, std::move(which), *left});
        return;
      }
      if (auto pieces = pieces_of(failing_, values, candidates.size())) {
        which.elements = static_cast<std::int64_t>(pieces->positions.size());
        which.of = pieces->of;
        which.along = std::move(pieces->along);
        which.positions = std::move(pieces->positions);
        found_.push_back({Cause::other_tensor, std::move(which), 1});
        return;
      }
    }
  }

  // Elements that are what they were before the step, all others right.
  void not_updated() const {
    if (own_.phase != Phase::optimizer || own_.slot != "param") return;
    const LogicalTensor* before =
        beside_.find({own_.step, -1, Phase::forward, own_.module, own_.slot, own_.arg, 0});
    if (before == nullptr || before->shape != failing_.actual.shape()) return;
    const auto left = equals_where_wrong(failing_, beside_.read(*before));
    if (!left) return;
    found_.push_back({Cause::not_updated,
                      {.elements = failing_.over,
                       .of = failing_.actual.size(),
                       .step = own_.step,
                       .how = fmt::format("{} of {} elements are not updated: they are the parameter "
                                          "before the step",
                                          failing_.over, failing_.actual.size())},
                      *left});
  }

  // A gradient is added up over the micro-batches of its step in memory.
  double sums_in_memory() const {
    double all = 1;
    for (const KnownSize& size : failing_.context.sizes) {
      if (size.name == micro_batches && own_.slot == "grad") all = static_cast<double>(size.size);
    }
    return all;
  }

  // actual = reference + c T for a tensor T that was recorded beside it.
  void added() const {
    const Shape& shape = failing_.actual.shape();
    const std::vector<NearbyTensors::Term> terms = beside_.terms_of(own_, shape);
    for (const NearbyTensors::Term& term : terms) {
      const LogicalTensor* tensor = beside_.find(term.id);
      if (tensor == nullptr || tensor->id == own_ || !is_float(tensor->dtype)) continue;
      const bool is_row = !shape.empty() && tensor->shape == Shape{shape.back()};
      if (term.id.slot == "param" && own_.slot == "output" && tensor->shape != shape) {
        if (const auto left = added_rows(failing_, beside_.read(*tensor))) {
          found_.push_back(
              {Cause::added, {.factor = 1, .term = "other rows", .tensor = to_string(term.id)}, *left});
          return;
        }
      }
      if (tensor->shape != shape && !is_row) continue;
      const auto sum = added_term(failing_, beside_.read(*tensor), terms.size(), sums_in_memory());
      if (!sum) continue;
      const bool decays =
          own_.phase == Phase::optimizer && term.id.slot == "param" && std::abs(sum->factor) < 1;
      found_.push_back(
          {Cause::added,
           {.factor = sum->factor, .term = term.name, .decays = decays, .tensor = to_string(term.id)},
           sum->residual});
      return;
    }
  }

 private:
  const NearbyTensors& beside_;
  const Identity& own_;
  const FailingPair& failing_;
  std::vector<Diagnosis>& found_;
};

}  // namespace

void explain_by_others(const NearbyTensors& beside, const Identity& own, const FailingPair& failing,
                       std::vector<Diagnosis>& found) {
  OtherTensors(beside, own, failing, found).explain();
}

void explain_by_flow(const RecordedBeside& beside, const Identity& own, const FailingPair& failing,
                     const RightValue& right, std::vector<Diagnosis>& found) {
  const OtherTensors others(beside.actual, own, failing, found);
  others.added(right.terms);
  others.elsewhere(beside.reference);
}

void explain_integers(const NearbyTensors& reference, const Identity& own, const TensorSource& actual,
                      const TensorSource& expected, std::vector<Diagnosis>& found) {
  const FailingPair failing(actual, expected, {});
  if (failing.over > 0) OtherTensors(reference, own, failing, found).stale();
}

}  // namespace assay
