#include "assay/compare/causes/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/causes/explain_by_others.h"
#include "assay/compare/causes/explain_shares.h"
#include "assay/compare/causes/explain_sketch.h"
#include "assay/compare/causes/nonfinite.h"
#include "assay/compare/causes/open_failures.h"
#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/measure/measure.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// A report is read from its top; the causes of the first failures are those of the others.
constexpr std::size_t most_explained = 50;
// What the other rank of a mismatch holds, with the ranks at its place of that dimension.
LogicalTensor copy_of(const Dump& dump, const LogicalTensor& tensor, const ReplicaMismatch& differs) {
  LogicalTensor copy = tensor;
  const auto dim = std::ranges::find(dump.mesh.dims, differs.mesh_dim) - dump.mesh.dims.begin();
  const auto place = [&](const Record& r) {
    const auto d = static_cast<std::size_t>(dim);
    return d < r.mesh_coordinate.size() ? r.mesh_coordinate[d] : -1;
  };
  const auto own = std::ranges::find_if(
      tensor.records, [&](std::size_t i) { return dump.records[i].rank == differs.rank_b; });
  std::erase_if(copy.records, [&](std::size_t i) {
    return own == tensor.records.end() || place(dump.records[i]) != place(dump.records[*own]);
  });
  return copy;
}

class Causes {
 public:
  explicit Causes(const Sides& sides)
      : by_sketch_(sides, known_sizes(sides)),
        sides_(sides),
        reference_(sides.reference, sides.reference_tensors),
        actual_(sides.actual, sides.actual_tensors),
        sizes_(known_sizes(sides)) {}

  void explain_sketch(Finding& f, const Pair& pair) const { by_sketch_.explain(f, pair); }

  /// @param right  nullptr: the reference's
  void explain(Finding& f, const Pair& pair, const RightValue* right) {
    const Merged merged = right != nullptr ? merge(sides_.actual, *pair.actual)
                                           : as_compared(sides_.actual, pair, sides_.convention);
    const TensorSource& actual = merged.tensor;
    const TensorSource reference =
        right != nullptr ? TensorSource(right->value) : merge(sides_.reference, *pair.reference).tensor;
    if (actual.shape() != reference.shape()) return;
    if (!is_float(actual.dtype()) && !is_float(reference.dtype()))
      return explain_integers(reference_, pair.reference->id, actual, reference, f.diagnoses);
    if (!is_float(actual.dtype()) || !is_float(reference.dtype())) return;
    beside_ = right != nullptr ? &actual_ : &reference_;
    const DiagnosisContext context{right != nullptr ? Allowed{0, 0, right->allowed} : on_its_own_scale(f),
                                   sizes_};
    const FailingPair failing(actual, reference, context);
    const std::size_t before = f.diagnoses.size();
    // What was not added up over ranks is in the units of the ranks' losses.
    const double scale =
        sides_.convention && is_whole_gradient(pair.actual->id) ? sides_.convention->factor : 1;
    if ((right != nullptr || scale != 1) && merged.sum_of_replicas && failing.over > 0)
      explain_copies(f, merged, failing, scale);
    if (right != nullptr && failing.over > 0)
      explain_by_flow({actual_, reference_}, pair.reference->id, failing, *right, f.diagnoses);
    if (right != nullptr && failing.over > 0 && f.diagnoses.size() == before && merged.replicas.empty())
      explain_addends(f, pair, failing);
    if (failing.over > 0 && f.diagnoses.size() == before)
      explain(f, pair, failing);
    else if (!merged.replicas.empty())
      explain_other_copy(f, pair, merged.replicas.front(), {reference, context});
    for (std::size_t i = before; i < f.diagnoses.size(); ++i) {
      CauseParameters& p = f.diagnoses[i].parameters;
      if (right != nullptr) p.against = "the actual side";
      if (p.axis.empty() && !merged.replicas.empty()) p.axis = merged.replicas.front().mesh_dim;
    }
    std::ranges::stable_sort(f.diagnoses, {},
                             [](const Diagnosis& d) { return std::pair(says(d.cause), d.residual); });
    if (f.verdict == Verdict::mistrusted) return;
    std::string where = error_pattern(actual, reference, context);
    if (!where.empty()) f.notes.push_back("errors: " + where);
  }

 private:
  void explain(Finding& f, const Pair& pair, const FailingPair& failing) const {
    for (Diagnosis& d : assay::explain(failing)) add_new(f, std::move(d));
    explain_by_others(*beside_, pair.reference->id, failing, f.diagnoses);
  }

  // A gradient that is a sum over ranks.
  void explain_addends(Finding& f, const Pair& pair, const FailingPair& failing) const {
    Identity addends = pair.actual->id;
    addends.arg += unreduced;
    const LogicalTensor* sum = is_whole_gradient(pair.actual->id) ? actual_.find(addends) : nullptr;
    if (sum != nullptr) explain_shares(sides_.actual, *sum, failing, f.diagnoses);
  }

  // Copies that are shares: an all-reduce is missing.
  static void explain_copies(Finding& f, const Merged& merged, const FailingPair& failing, double scale) {
    std::vector<double> values = merged.sum_of_replicas->whole().values();
    for (double& v : values) v /= scale;
    const Tensor shared(failing.actual.shape(), std::span<const double>(values));
    const Metrics sum = measure(shared, failing.reference, failing.context.allowed);
    if (sum.special_mismatch > 0 || !(sum.worst_ratio <= 1)) return;
    add_new(f, {Cause::partial_sum, {.axis = merged.replicas.front().mesh_dim}, sum.worst_ratio});
  }

  // The copy of the first rank is right: the one that differs from it is explained.
  struct Right {
    const TensorSource& reference;
    const DiagnosisContext& context;
  };
  void explain_other_copy(Finding& f, const Pair& pair, const ReplicaMismatch& differs, Right right) const {
    const LogicalTensor copy = copy_of(sides_.actual, *pair.actual, differs);
    if (copy.records.empty()) return;
    const FailingPair failing(merge(sides_.actual, copy).tensor, right.reference, right.context);
    if (failing.over == 0) return;
    const std::size_t before = f.diagnoses.size();
    explain(f, pair, failing);
    for (std::size_t i = before; i < f.diagnoses.size(); ++i) f.diagnoses[i].parameters.rank = differs.rank_b;
  }

  // What was found by a sharper comparison is not said twice.
  static void add_new(Finding& f, Diagnosis d) {
    if (std::ranges::find(f.diagnoses, d.cause, &Diagnosis::cause) == f.diagnoses.end())
      f.diagnoses.push_back(std::move(d));
  }

  const SketchCauses by_sketch_;
  const Sides& sides_;
  const NearbyTensors reference_, actual_;
  const NearbyTensors* beside_ = &reference_;
  std::vector<KnownSize> sizes_;
};

// Nobody judged it by what it was made of.
bool is_unjudged(const Finding& f) {
  return f.verdict == Verdict::undecided && f.origin && f.origin->root.empty() &&
         !(f.origin->local_ratio <= 1);
}

// After another choice rows stand for other tokens, and nothing may have a gradient: a weight of which there
// is one, or an expert without tokens.
bool may_follow_choice(Cause cause) {
  return cause == Cause::permuted || cause == Cause::repeated || cause == Cause::shifted ||
         cause == Cause::zeros;
}

// A parameter's gradient may be one number times others (of a gate), and that a sum over all tokens whose
// terms cancel: roundings give it any factor, and any share of its own gradient of another step, but by
// accident no size of the run, and no whole gradient.
bool may_be_one_sum(const Finding& f, const Diagnosis& d) {
  return f.id.slot == "grad" && d.parameters.factor_names.empty() &&
         (d.cause == Cause::factor || (d.cause == Cause::added && d.parameters.factor != 1));
}

// A mistake that makes it is no rounding.
bool is_proved(const Finding& f, bool has_choices) {
  return std::ranges::any_of(f.diagnoses, [&](const Diagnosis& d) {
    return says(d.cause) != Says::description && !(has_choices && may_follow_choice(d.cause)) &&
           !may_be_one_sum(f, d);
  });
}

// Modules whose calls beside each other were given different numbers of rows: somebody chose them, perhaps in
// no tensor that was recorded.
class ChosenRows {
 public:
  explicit ChosenRows(const std::vector<Pair>& pairs) {
    std::map<Beside, std::int64_t> rows;
    for (const Pair& pair : pairs) {
      if (pair.reference == nullptr || !is_given(pair.reference->id)) continue;
      const Shape& shape = pair.reference->shape;
      const Identity& id = pair.reference->id;
      if (shape.size() < 2) continue;
      const auto [first, is_first] = rows.try_emplace({without_numbers(id.module), id.arg, id.step,
                                                       id.micro_batch, Shape(shape.begin() + 1, shape.end())},
                                                      shape.front());
      if (!is_first && first->second != shape.front()) modules_.insert(without_numbers(id.module));
    }
  }
  bool include(const Identity& id) const {
    return is_given(id) && modules_.contains(without_numbers(id.module));
  }

 private:
  using Beside = std::tuple<std::string, std::string, std::int64_t, std::int64_t, Shape>;
  static bool is_given(const Identity& id) { return id.phase == Phase::forward && id.slot == "input"; }
  std::set<std::string> modules_;
};

void fail(Finding& f) {
  f.verdict = Verdict::failed;
  f.origin->kind = Origin::Kind::created;
  f.origin->reason = "its cause is no rounding; " + f.origin->reason;
}

void inherit(Finding& f, const Finding& from) {
  f.verdict = Verdict::inherited;
  f.origin = Origin{Origin::Kind::inherited, f.origin ? f.origin->local_ratio : std::nan(""),
                    fmt::format("runs after {}, which fails", from.name), from.name};
}

// One number says too little of its factor; what follows from it may have that in all of its elements.
void explain_by_what_follows(std::vector<Finding>& findings, const std::vector<Pair>& pairs, Causes& causes) {
  std::map<std::string, std::size_t> open;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Finding& f = findings[i];
    if (f.verdict == Verdict::failed && f.metrics && f.metrics->elements == 1 && f.diagnoses.empty())
      open.emplace(f.name, i);
  }
  constexpr double enough = proof_bits + bits_of_a_number;  // elements that say a bit each
  for (std::size_t i = 0; i < pairs.size() && !open.empty(); ++i) {
    const Finding& f = findings[i];
    const auto root = f.verdict == Verdict::inherited && f.origin ? open.find(f.origin->root) : open.end();
    if (root == open.end() || !f.metrics || static_cast<double>(f.metrics->elements) < enough) continue;
    Finding& number = findings[root->second];
    open.erase(root);  // the nearest one
    Finding follower = f;
    follower.diagnoses.clear();
    (void)trouble_in([&] { causes.explain(follower, pairs[i], nullptr); });
    const double ratio = number.actual_value / number.reference_value;
    for (Diagnosis& d : follower.diagnoses) {
      const bool is_its_factor = d.cause == Cause::factor && !d.parameters.elements &&
                                 std::abs(*d.parameters.factor / ratio - 1) <=
                                     2 * unit_roundoff(coarser(number.actual_dtype, number.reference_dtype));
      if (!is_its_factor || !number.diagnoses.empty()) continue;
      d.parameters.tensor = f.name;
      number.diagnoses.push_back(std::move(d));
    }
  }
}

}  // namespace

void find_causes(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                 const RightValues& right) {
  Causes causes(sides);
  OpenFailures proved;   // of those that were undecided
  OpenFailures choices;  // other ones: legal, or that nobody judged
  const ChosenRows chosen(pairs);
  std::size_t explained = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Finding& f = findings[i];
    if (f.verdict == Verdict::undecided) {
      if (const std::size_t from = proved.before(f.id); from != OpenFailures::none)
        inherit(f, findings[from]);
      if (!is_float(f.actual_dtype) || f.is_choice || chosen.include(f.id)) choices.add(i, f.id, true);
    }
    if (f.exemption && f.exemption->kind == Exemption::Kind::legal_tie) choices.add(i, f.id, true);
    const bool open = f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
                      f.verdict == Verdict::no_rule || f.verdict == Verdict::mistrusted || is_unjudged(f);
    // Proven on the step's own inputs: what the values look like says no more.
    const bool is_explained = std::ranges::any_of(f.diagnoses, is_of_optimizer, &Diagnosis::cause);
    if (!open || is_explained || !(f.metrics || f.sketch) || pairs[i].actual == nullptr ||
        pairs[i].reference == nullptr || explained == most_explained)
      continue;
    ++explained;
    // By its own inputs, else by the reference: its tolerance has room for the roundings of what was done
    // instead. The verdict stands without a diagnosis.
    const auto own = right.find(i);
    const auto trouble = trouble_in([&] {
      if (f.sketch) return causes.explain_sketch(f, pairs[i]);
      if (own != right.end()) causes.explain(f, pairs[i], &own->second);
      if (f.diagnoses.empty()) causes.explain(f, pairs[i], nullptr);
    });
    if (trouble) f.notes.push_back(fmt::format("no diagnosis: {}", *trouble));
    if (!is_unjudged(f) || !is_proved(f, choices.before(f.id) != OpenFailures::none)) continue;
    fail(f);
    proved.add(i, f.id, true);
  }
  explain_by_what_follows(findings, pairs, causes);
  explain_nonfinite(findings);
}

}  // namespace assay
