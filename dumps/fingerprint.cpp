#include "assay/dumps/fingerprint.h"

#include <fmt/format.h>

#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/merged_sketch.h"
#include "assay/dumps/record/glob.h"
#include "assay/dumps/record/statistics.h"
#include "assay/golden/error.h"
#include "assay/golden/sketcher.h"

namespace assay {
namespace {

bool is_wanted(const std::string& only, const std::string& name) {
  return only.empty() || only == name || glob_match(only, name);
}

void check_copies(const LogicalTensor& t, const std::vector<ReplicaMismatch>& replicas) {
  if (!replicas.empty())
    throw Error("{}: ranks {} and {} hold different bits of what should be one tensor; expected equal copies",
                to_string(t.id), replicas.front().rank_a, replicas.front().rank_b);
}

void check_finite(const LogicalTensor& t, std::int64_t nan, std::int64_t inf) {
  if (nan + inf > 0)
    throw Error(
        "{}: holds {} NaN and {} Inf; expected finite numbers: a baseline of others would be passed by a run "
        "that is as broken",
        to_string(t.id), nan, inf);
}

std::string checksum_of(std::uint64_t fingerprint) {
  return fmt::format("fingerprint:{:016x}", fingerprint);
}

TensorSource values_of(const Dump& dump, const LogicalTensor& t) {
  if (const Record* without = without_bits(dump, t))
    throw Error("{}: no values of it were recorded on rank {}; expected a dump with values", to_string(t.id),
                without->rank);
  Merged merged = merge(dump, t);
  check_copies(t, merged.replicas);
  return std::move(merged.tensor);
}

Fingerprint::Entry entry_of_sketch(const Dump& dump, const LogicalTensor& t) {
  const MergedSketch merged = merge_sketches(dump, t, {});
  check_copies(t, merged.replicas);
  const Sketch& s = merged.sketch;
  check_finite(t, s.nan, s.infinities());
  if (!s.fingerprint)
    throw Error(
        "{}: only sketches of its addends were recorded, which have no fingerprint; expected its values",
        to_string(t.id));
  return {t.id, t.op, t.count, t.dtype, t.shape, checksum_of(*s.fingerprint), {}, s.norm(), {}};
}

Fingerprint::Entry entry_of(const Dump& dump, const LogicalTensor& t) {
  if (has_sketches(dump, t)) return entry_of_sketch(dump, t);
  const TensorSource values = values_of(dump, t);
  const Statistics s = statistics_of(values);
  check_finite(t, *s.nan, *s.inf);
  Fingerprint::Entry e = {t.id,      t.op,
                          t.count,   t.dtype,
                          t.shape,   checksum_of(fingerprint_of_bits(values)),
                          s.abs_sum, l2_norm(values),
                          {}};
  if (t.shape.empty()) e.sum = s.sum;
  check_not_shrunk(dump, t);
  return e;
}

std::string quoted(const std::string& text) {
  return Json{.value_ = text}.text();
}

// Every narrower float is a float32, so its shortest float32 digits identify it.
std::string digits(DType dtype, double value) {
  const bool is_narrow = is_float(dtype) && dtype != DType::float64;
  return is_narrow ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
}

// What has its default is left out.
std::string line(const Fingerprint::Entry& e) {
  std::string out = "{";
  const auto add = [&](std::string_view key, const std::string& value) {
    out += fmt::format("{}\"{}\":{}", out.size() == 1 ? "" : ",", key, value);
  };
  const auto add_text = [&](std::string_view key, const std::string& text) {
    if (!text.empty()) add(key, quoted(text));
  };
  if (e.abs_sum) add("abs_sum", fmt::format("{}", *e.abs_sum));
  add_text("arg", e.id.arg);
  if (e.id.call != 0) add("call", std::to_string(e.id.call));
  if (e.count) add("count", std::to_string(*e.count));
  add("dtype", quoted(std::string(name(e.dtype))));
  const std::string kind(checksum_kind(e.checksum)), digest = e.checksum.substr(kind.size() + 1);
  if (kind == "fingerprint") add("fingerprint", quoted(digest));
  if (e.l2) add("l2", fmt::format("{}", *e.l2));
  if (e.id.micro_batch != -1) add("micro_batch", std::to_string(e.id.micro_batch));
  add("module", quoted(e.id.module));
  add_text("op", e.op);
  if (e.id.phase != Phase::none) add("phase", quoted(std::string(name(e.id.phase))));
  if (kind == "sha256") add("sha256", quoted(digest));
  add("shape", fmt::format("[{}]", fmt::join(e.shape, ",")));
  add_text("slot", e.id.slot);
  if (e.id.step != 0) add("step", std::to_string(e.id.step));
  if (e.sum) add("sum", digits(e.dtype, *e.sum));
  return out + "}";
}

}  // namespace

bool is_loss(const Identity& id, const Shape& shape) {
  return shape.empty() && (id.slot == "loss" || (id.slot.empty() && id.phase == Phase::none));
}

std::vector<Fingerprint::Loss> losses_of(const Dump& dump, const std::string& only) {
  std::vector<Fingerprint::Loss> losses;
  for (const LogicalTensor& t : logical_tensors(dump)) {
    const std::string name = to_string(t.id);
    if (!is_loss(t.id, t.shape) || !is_wanted(only, name) || without_bits(dump, t) != nullptr) continue;
    const Statistics s = statistics_of(merge(dump, t).tensor);
    if (*s.nan + *s.inf == 0) losses.push_back({name, t.dtype, *s.sum});
  }
  return losses;
}

Fingerprint fingerprint_of(const Dump& dump, const std::string& only) {
  for (const auto* problems : {&dump.unreadable, &dump.left_out}) {
    if (!problems->empty())
      throw Error("{}; expected a dump of which everything can be read", problems->front());
  }
  Fingerprint f = {only, dump.producer, {}, {}, {}};
  for (const LogicalTensor& t : logical_tensors(dump)) {
    const std::string name = to_string(t.id);
    if (!is_wanted(only, name)) continue;
    f.tensors.push_back(entry_of(dump, t));
    if (is_loss(t.id, t.shape)) f.losses.push_back({name, t.dtype, *f.tensors.back().sum});
  }
  if (f.tensors.empty())
    throw Error("{}: no tensor{} to accept", dump.path.string(), only.empty() ? "" : " '" + only + "'");
  return f;
}

std::string to_text(const Fingerprint& f) {
  std::string out = "{\"assay_baseline\":2,\n\"losses\":[";
  for (const Fingerprint::Loss& loss : f.losses)
    out += fmt::format("{}{{\"dtype\":\"{}\",\"name\":{},\"value\":{}}}",
                       &loss == &f.losses.front() ? "\n" : ",\n", name(loss.dtype), quoted(loss.name),
                       digits(loss.dtype, loss.value));
  out +=
      fmt::format("],\n\"only\":{},\n\"producer\":{},\n\"reason\":{},\n\"tensors\":[", quoted(f.only),
                  f.producer.empty() ? "null" : parse_json(f.producer, "producer").text(), quoted(f.reason));
  for (const Fingerprint::Entry& e : f.tensors) out += (&e == &f.tensors.front() ? "\n" : ",\n") + line(e);
  return out + "]}\n";
}

}  // namespace assay
