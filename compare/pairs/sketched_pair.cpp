#include "assay/compare/pairs/sketched_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/meeting.h"
#include "assay/compare/pairs/replicas.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::string distance_text(const ComparedSketch& s) {
  const double norm = s.norm > 0 ? s.norm : 1;
  return fmt::format("{} {:.3g} (99.9 %: {:.3g} to {:.3g}), allowed {:.3g}",
                     s.norm > 0 ? "relative L2" : "L2", s.distance / norm, s.low / norm, s.high / norm,
                     s.allowed / norm);
}

class SketchJudge {
 public:
  SketchJudge(Finding& f, const SketchedPair& pair, const Expectation& e)
      : f_(f),
        e_(e),
        actual_(pair.actual.sketch),
        reference_(pair.reference.sketch),
        has_prints_(actual_.fingerprint && reference_.fingerprint) {
    const SketchDistance d = distance(actual_, reference_);
    f.sketch = ComparedSketch{d.estimate, d.low, d.high, infinity, reference_.norm(), reference_.spec.size()};
  }

  void judge() {
    const std::string bits = bits_rule(e_, f_.actual_dtype);
    const bool same_dtype = f_.actual_dtype == f_.reference_dtype;
    if (has_prints_ && *actual_.fingerprint == *reference_.fingerprint && (same_dtype || bits.empty()))
      return pass();
    if (!bits.empty()) return judge_bits(bits, same_dtype);
    const Row* row = deciding_row(e_);
    if (row == nullptr) {
      f_.verdict = Verdict::no_rule;
      f_.rule = f_.reason = no_row_text(e_);
      return;
    }
    f_.rule = rule_text(e_, *row);
    f_.row = to_string(*e_.policy, *row);
    f_.atol = row->atol;
    f_.rtol = row->rtol;
    measure(*row);
    if (!judge_special()) return;
    judge_distance(*row);
  }

 private:
  void pass() {
    f_.verdict = Verdict::passed;
    f_.rule = f_.row = "every bit equal, by fingerprints of 64 bits";
  }

  void fail(std::string reason) {
    f_.verdict = Verdict::failed;
    f_.reason = std::move(reason) + "; only sketches were compared";
  }

  void judge_bits(const std::string& rule, bool same_dtype) {
    f_.rule = f_.row = rule;
    f_.ratio = infinity;
    if (!same_dtype && is_float(f_.actual_dtype))
      return fail(fmt::format("{} against {}", name(f_.actual_dtype), name(f_.reference_dtype)));
    if (has_prints_) return fail("fingerprints differ: the bits do, by " + how_far());
    if (f_.sketch->distance > 0) return fail("sketches differ: the bits do, by " + how_far());
    f_.verdict = Verdict::not_comparable;
    f_.ratio = 0;
    f_.reason = "sketches are equal, and sums over ranks have no fingerprint: equal bits are not proved";
  }

  std::string how_far() const {
    const ComparedSketch& s = *f_.sketch;
    return s.norm > 0 ? fmt::format("relative L2 {:.3g}", s.distance / s.norm)
                      : fmt::format("L2 {:.3g}", s.distance);
  }

  void measure(const Row& row) {
    ComparedSketch& s = *f_.sketch;
    s.allowed = allowed_distance(row.atol, row.rtol, s.norm, element_count(f_.reference_shape));
    f_.ratio = s.distance == 0 ? 0 : s.distance / s.allowed;
  }

  // Without fingerprints the counts are those of addends. An infinity of the actual side may be one that its
  // dtype forces.
  bool judge_special() {
    if (!has_prints_) return true;
    const bool same_dtype = f_.actual_dtype == f_.reference_dtype;
    if (actual_.nan == reference_.nan &&
        (!same_dtype || (actual_.positive_infinities == reference_.positive_infinities &&
                         actual_.negative_infinities == reference_.negative_infinities)))
      return true;
    fail(fmt::format("NaN or Inf differ: {} NaN and {} Inf against {} and {}", actual_.nan,
                     actual_.infinities(), reference_.nan, reference_.infinities()));
    return false;
  }

  void judge_distance(const Row& row) {
    const ComparedSketch& s = *f_.sketch;
    if (s.high <= s.allowed) return judge_inside(row);
    if (!e_.count && needs_count()) return;
    if (s.allowed < s.low) return fail(distance_text(s));
    f_.verdict = Verdict::mistrusted;
    f_.reason = "near the limit, which a sketch does not resolve: " + distance_text(s);
  }

  // A count, if it were known, might still allow it.
  bool needs_count() {
    for (const Row& looser : e_.policy->rows_of(e_.row_dtype).subspan(1)) {
      const double allowed =
          allowed_distance(looser.atol, looser.rtol, f_.sketch->norm, element_count(f_.reference_shape));
      if (!(f_.sketch->high <= allowed)) continue;
      f_.verdict = Verdict::no_rule;
      f_.reason = count_needed(looser);
      return true;
    }
    return false;
  }

  // As of statistics: zeros would be inside, too, unless the two are nearer than the tensor's own scale.
  void judge_inside(const Row& row) {
    const ComparedSketch& s = *f_.sketch;
    if (s.norm > 0 && s.allowed >= s.norm && !(s.high <= row.rtol * s.norm)) {
      f_.verdict = Verdict::mistrusted;
      f_.reason = fmt::format("the rule allows more than the tensor is: zeros would agree, too; {}",
                              distance_text(s));
      return;
    }
    f_.verdict = Verdict::agrees_by_sketch;
    f_.reason = distance_text(s) + "; the elements were not compared";
  }

  Finding& f_;
  const Expectation& e_;
  const Sketch& actual_;
  const Sketch& reference_;
  bool has_prints_;
};

bool has_values(const Dump& dump, const LogicalTensor& t) {
  return without_bits(dump, t) == nullptr;
}

// Divides what one side has in other units.
void divide(Sketch& s, double by) {
  for (double& v : s.values) v /= by;
  if (s.square) *s.square /= by * by;
  if (s.peak) *s.peak /= std::abs(by);
  s.fingerprint.reset();
}

const SketchSpec& spec_in(const Dump& dump, const LogicalTensor& t) {
  return dump.records[t.records.front()].sketch->spec;
}

}  // namespace

bool is_compared_by_sketch(const Sides& sides, const Pair& pair) {
  if (pair.actual == nullptr || pair.reference == nullptr) return false;
  const bool a = has_sketches(sides.actual, *pair.actual), g = has_sketches(sides.reference, *pair.reference);
  return (a || g) && (a || has_values(sides.actual, *pair.actual)) &&
         (g || has_values(sides.reference, *pair.reference));
}

SketchedPair sketched_pair(const Sides& sides, const Pair& pair) {
  const bool of_actual = has_sketches(sides.actual, *pair.actual);
  const SketchSpec spec =
      of_actual ? spec_in(sides.actual, *pair.actual) : spec_in(sides.reference, *pair.reference);
  SketchedPair both{merge_sketches(sides.actual, *pair.actual, spec),
                    merge_sketches(sides.reference, *pair.reference, spec)};
  const double scale = sides.convention ? sides.convention->of(pair.id()) : 1;
  if (scale != 1 && is_float(pair.actual->dtype)) {
    divide(both.actual.sketch, scale);
    if (both.actual.sum_of_replicas) divide(*both.actual.sum_of_replicas, scale);
  }
  const SketchSpec common = common_spec(both.actual.sketch.spec, both.reference.sketch.spec);
  // Rows are all dimensions but the last: leading ones that were taken as one change no sketch.
  const Shape shape = common_shape(pair.actual->shape, pair.reference->shape);
  const auto meet = [&](MergedSketch& m) {
    m.sketch = m.sketch.coarsened(common);
    m.sketch.shape = shape;
    if (!m.sum_of_replicas) return;
    m.sum_of_replicas = m.sum_of_replicas->coarsened(common);
    m.sum_of_replicas->shape = shape;
  };
  if (shape == pair.reference->shape) {
    meet(both.actual);
    meet(both.reference);
  }
  return both;
}

double allowed_distance(double atol, double rtol, double norm, std::int64_t elements) {
  return std::sqrt(static_cast<double>(elements)) * atol + rtol * norm;
}

double allowed_distance_on_its_own_scale(const Finding& f) {
  const std::int64_t elements = element_count(f.reference_shape);
  const double norm = f.sketch->norm,
               rms = norm / std::sqrt(static_cast<double>(std::max<std::int64_t>(elements, 1)));
  return allowed_distance(f.rtol > 0 ? std::min(f.atol, f.rtol * rms) : f.atol, f.rtol, norm, elements);
}

void judge_sketches(Finding& f, const SketchedPair& pair, const Expectation& e) {
  f.count = e.count;
  if (!may_judge(f, e)) return;
  SketchJudge(f, pair, e).judge();
  const auto& replicas = pair.actual.replicas.empty() ? pair.reference.replicas : pair.actual.replicas;
  if (replicas.empty()) return;
  f.verdict = Verdict::replicas_differ;
  f.rule = "replicas: every bit equal";
  const ReplicaMismatch& r = replicas.front();
  f.reason = fmt::format("{}: ranks {} and {}{} should hold the same bits; their fingerprints differ",
                         pair.actual.replicas.empty() ? "reference" : "actual", r.rank_a, r.rank_b,
                         r.mesh_dim.empty() ? "" : " (" + r.mesh_dim + ")");
}

void accept_sketches(Finding& f) {
  if (f.verdict != Verdict::agrees_by_sketch) return;
  f.verdict = Verdict::passed;
  f.notes.push_back(std::move(f.reason));
  f.reason.clear();
  for (std::string* text : {&f.rule, &f.row}) *text = "a sketch only, as accepted: " + *text;
}

}  // namespace assay
