#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "assay/compare/report/json_number.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/statistics.h"
#include "output.h"
#include "shared_options.h"
#include "verb.h"

namespace assay {
namespace {

struct InspectVerb {
  std::string path, dtype_hint, rules, raw;
  bool json = false, stats = false, hash = false, ranks = false;
};

using Json = nlohmann::ordered_json;

// One line of the listing: a merged tensor, or with --ranks one rank's part.
struct Entry {
  std::string name, layout;
  const Record* record = nullptr;
  Shape shape;
  std::size_t parts = 1;
  std::vector<const Record*> recorded;  ///< those with statistics or a checksum of the recorder's
  bool has_bits = true;
  std::optional<Statistics> stats;
  std::optional<std::string> hash;
  std::string differing;  ///< copies that should be equal; the values are those of the lowest rank
  std::string trouble;
};

std::string layout_of(const Record& r, const Mesh& mesh) {
  std::string text;
  for (std::size_t i = 0; i < r.placements.size(); ++i) {
    if (r.placements[i].kind == Placement::Kind::replicate) continue;
    const std::string dim = i < mesh.dims.size() ? mesh.dims[i] : std::to_string(i);
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", dim, to_string(r.placements[i]));
  }
  return text;
}

void see(Entry& e, const Record& r) {
  e.has_bits = e.has_bits && r.has_bits;
  if (r.statistics || !r.checksum.empty()) e.recorded.push_back(&r);
}

void measure(Entry& e, const InspectVerb& verb, auto&& read) {
  if ((!verb.stats && !verb.hash) || !e.has_bits) return;
  try {
    const Merged merged = read();
    if (verb.stats) e.stats = statistics_of(merged.tensor);
    if (verb.hash) e.hash = sha256(merged.tensor);
    if (!merged.replicas.empty()) {
      const ReplicaMismatch& r = merged.replicas.front();
      e.differing = fmt::format("ranks {} and {} hold different bits", r.rank_a, r.rank_b);
    }
  } catch (const std::exception& error) {  // bad_alloc included: the other tensors go on
    e.trouble = error.what();
  }
}

std::vector<Entry> entries_of(const Dump& dump, const InspectVerb& verb, const Rules& rules) {
  std::vector<Entry> entries;
  if (verb.ranks) {
    for (std::size_t i = 0; i < dump.records.size(); ++i) {
      const Record& r = dump.records[i];
      if (rules.ignored(paths_of(r.id))) continue;
      Entry e{to_string(r.id), layout_of(r, dump.mesh), &r, r.shape, 1, {}, true, {}, {}, {}, {}};
      see(e, r);
      measure(e, verb, [&] { return Merged{dump.read(i), {}, {}}; });
      entries.push_back(std::move(e));
    }
    return entries;
  }
  for (const LogicalTensor& t : logical_tensors(dump)) {
    const Record& r = dump.records[t.records.front()];
    if (rules.ignored(paths_of(t.id))) continue;
    Entry e{
        to_string(t.id), layout_of(r, dump.mesh), &r, t.shape, t.records.size(), {}, true, {}, {}, {}, {}};
    for (const std::size_t index : t.records) see(e, dump.records[index]);
    measure(e, verb, [&] { return merge(dump, t); });
    check_not_shrunk(dump, t);
    entries.push_back(std::move(e));
  }
  return entries;
}

// What there is, by its name.
void each_statistic(const Record& r, auto&& use) {
  const Statistics s = r.statistics.value_or(Statistics{});
  for (const auto& [name, value] : {std::pair{"min", s.min},
                                    {"max", s.max},
                                    {"mean", s.mean},
                                    {"l2", s.l2},
                                    {"sum", s.sum},
                                    {"abs_sum", s.abs_sum}}) {
    if (value) use(name, *value);
  }
  for (const auto& [name, value] : {std::pair{"nan", s.nan}, {"inf", s.inf}}) {
    if (value) use(name, *value);
  }
}

Json recorded(const Record& r) {
  Json j = {{"rank", r.rank}, {"shape", r.shape}};
  each_statistic(r, [&](const char* name, auto value) { j[name] = json_number(value); });
  if (r.statistics && r.statistics->rounding > 0) j["rounding"] = r.statistics->rounding;
  if (r.statistics && r.statistics->arithmetic) j["arithmetic"] = name(*r.statistics->arithmetic);
  if (!r.checksum.empty()) j["checksum"] = r.checksum;
  if (r.sketch) {
    j["sketch"] = {{"grid", {r.sketch->spec.grid_rows, r.sketch->spec.grid_columns}},
                   {"signs", r.sketch->spec.signs},
                   {"seed", r.sketch->spec.seed}};
    if (r.sketch->fingerprint) j["fingerprint"] = fmt::format("{:016x}", *r.sketch->fingerprint);
  }
  return j;
}

// "recorded min -1 max 2 mean 0.5 l2 3 crc32:fffe2371".
std::string recorded_text(const Entry& e) {
  if (e.recorded.empty()) return "  no values recorded";
  const Record& r = *e.recorded.front();
  std::string text = e.parts > 1 ? fmt::format("  rank {} recorded", r.rank) : "  recorded";
  if (r.sketch) text += fmt::format(" a sketch of {} values", r.sketch->spec.size());
  each_statistic(r, [&](const char* name, auto value) { text += fmt::format(" {} {}", name, value); });
  if (!r.checksum.empty()) text += " " + printable(r.checksum);
  if (r.sketch && r.sketch->fingerprint) text += fmt::format(" fingerprint {:016x}", *r.sketch->fingerprint);
  return text;
}

void print_json(const Dump& dump, const std::vector<Entry>& entries, bool ranks) {
  Json j = {{"schema", "inspect/1"},
            {"path", dump.path.string()},
            {"format", dump.format},
            {"world_size", dump.world_size},
            {"mesh", {{"dims", dump.mesh.dims}, {"shape", dump.mesh.shape}}},
            {"notes", dump.notes},
            {"left_out", dump.left_out},
            {"unreadable", dump.unreadable}};
  if (!dump.groups.empty()) j["groups"] = Json::array();
  for (const RankGroup& g : dump.groups) j["groups"].push_back({{"id", g.id}, {"ranks", g.ranks}});
  j["tensors"] = Json::array();
  for (const Entry& e : entries) {
    const Record& r = *e.record;
    Json t = {{"name", e.name},
              {"dtype", name(r.dtype)},
              {"shape", e.shape},
              {"step", r.id.step},
              {"micro_batch", r.id.micro_batch},
              {"phase", name(r.id.phase)},
              {"module", r.id.module},
              {"slot", r.id.slot},
              {"arg", r.id.arg},
              {"call", r.id.call},
              {"op", r.op},
              {"parts", e.parts},
              {"layout", e.layout},
              {"has_values", e.has_bits}};
    if (r.count) t["count"] = *r.count;
    if (ranks) t["rank"] = r.rank;
    if (!e.recorded.empty()) t["recorded"] = Json::array();
    for (const Record* r : e.recorded) t["recorded"].push_back(recorded(*r));
    if (e.stats) {
      t["sum"] = json_number(e.stats->sum.value());
      t["abs_sum"] = json_number(e.stats->abs_sum.value());
      t["min"] = json_number(e.stats->min.value_or(0));
      t["max"] = json_number(e.stats->max.value_or(0));
      t["nan"] = e.stats->nan.value();
      t["inf"] = e.stats->inf.value();
    }
    if (e.hash) t["sha256"] = *e.hash;
    if (!e.differing.empty()) t["copies_differ"] = e.differing;
    if (!e.trouble.empty()) t["trouble"] = e.trouble;
    j["tensors"].push_back(std::move(t));
  }
  write_text("-", j.dump(1, ' ', true, Json::error_handler_t::replace) + "\n");
}

void print_table(const Dump& dump, const std::vector<Entry>& entries) {
  std::string out = fmt::format("{}: {}, {} {}{}\n", printable(dump.path.string()), dump.format,
                                grouped(static_cast<std::int64_t>(entries.size())),
                                entries.size() == 1 ? "tensor" : "tensors",
                                dump.world_size > 1 ? fmt::format(", {} ranks", dump.world_size) : "");
  std::size_t widest = 4;
  for (const Entry& e : entries) widest = std::max(widest, printable(e.name).size());
  widest = std::min<std::size_t>(widest, 72);
  for (const Entry& e : entries) {
    out += fmt::format("{:<{}}  {:<13} {}", printable(e.name), widest, name(e.record->dtype),
                       to_string(e.shape));
    if (!e.layout.empty()) {
      out += fmt::format("  {} {} {}", e.parts, e.parts == 1 ? "part" : "parts", e.layout);
    } else if (e.parts > 1) {
      out += fmt::format("  {} {}", e.parts, e.record->shape == e.shape ? "copies" : "parts");
    }
    if (!e.has_bits) out += recorded_text(e);
    if (e.stats) {
      const Statistics& s = *e.stats;
      out += fmt::format("  sum {} abs {} min {} max {}", s.sum.value(), s.abs_sum.value(), s.min.value_or(0),
                         s.max.value_or(0));
      if (*s.nan + *s.inf > 0) out += fmt::format(" NaN {} Inf {}", *s.nan, *s.inf);
    }
    if (e.hash) out += "  sha256 " + *e.hash;
    if (!e.differing.empty()) out += "  copies differ: " + e.differing;
    if (!e.trouble.empty()) out += "  unreadable: " + printable(e.trouble);
    out += '\n';
  }
  for (const std::string& note : dump.notes) out += "note: " + printable(note) + "\n";
  for (const std::string& what : dump.left_out) out += "left out: " + printable(what) + "\n";
  for (const std::string& what : dump.unreadable) out += "unreadable: " + printable(what) + "\n";
  write_text("-", out);
}

void declare(InspectVerb& verb, Options& options) {
  options.option("path", verb.path, "file or folder").required().holds("PATH");
  options.flag("--json", verb.json, "as JSON");
  options.flag("--stats", verb.stats, "sum, absolute sum, smallest, largest, NaN and Inf counts");
  options.flag("--hash", verb.hash, "SHA-256 of the little-endian elements in C order");
  options.flag("--ranks", verb.ranks, "what each rank holds, not merged");
  add_rules(options, verb.rules);
  add_dtype_hint(options, verb.dtype_hint);
  add_raw(options, verb.raw);
}

int run(const InspectVerb& verb, const Options&) {
  const auto dump = open_dump(verb.path, open_options(verb.dtype_hint, verb.raw));
  const Rules rules = load_rules(verb.rules);
  apply_layout(*dump, rules.layout());
  const std::vector<Entry> entries = entries_of(*dump, verb, rules);
  if (verb.json) {
    print_json(*dump, entries, verb.ranks);
  } else {
    print_table(*dump, entries);
  }
  const bool is_whole = std::ranges::all_of(entries, [](const Entry& e) { return e.trouble.empty(); });
  return is_whole && dump->unreadable.empty() ? 0 : 2;
}

}  // namespace

namespace verbs {
extern constexpr Verb inspect = {"inspect", "list the tensors of any file or dump",
                                 "assay inspect run --stats", declared<InspectVerb>};
}

}  // namespace assay
