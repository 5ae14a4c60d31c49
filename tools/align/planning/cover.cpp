#include "assay/align/planning/cover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "assay/align/ladder/switches.h"
#include "assay/align/planning/integer_program.h"
#include "assay/align/strategies/pipeline.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

constexpr std::int64_t most_ranks = 16;  // of a stage: what a machine runs as threads

bool is_count(const Strategy& s) {
  return s.values == "N";
}

// "tp", "zero=1", "ep=hierarchical": how a part is used, sizes left out.
std::string use_of(std::string_view part, const Parallel& p) {
  std::string text(part);
  for (const Strategy& s : strategies()) {
    const bool says_how = !is_count(s) && s.values != "0|1" && s.values != "N+N+..";
    const bool says_more = s.part != s.key() || !s.is_default(p);
    if (s.part == part && says_how && says_more) text += "=" + s.value(p);
  }
  return text;
}

// Whether of the ranks of ep at least half a one is expected to get no token of an even routing: in a few
// layers and micro-batches some get none.
bool leaves_ranks_without_tokens(const Model& m, const Work& w, const Parallel& p) {
  const auto ranks = static_cast<double>(p.ep);
  const std::int64_t together = std::max<std::int64_t>(1, p.ep * p.etp / (p.tp * p.cp));  // micro-batches
  const auto choices = static_cast<double>(w.sequences * w.length * together * m.moe.top_k);
  return p.ep > 1 && ranks * std::pow(1 - 1 / ranks, choices) >= 0.5;
}

bool has_uneven_stages(const Model& m, const Work& w, const Parallel& p) {
  if (p.pp == 1) return false;
  const auto length = [](const Stage& s) { return s.end - s.first; };
  const Pipeline pipeline(p, m, w.micro_batches / p.dp);
  const auto [least, most] = std::ranges::minmax(pipeline.stages(), {}, length);
  return length(least) != length(most);
}

// What beyond their pairs stages show that have more of everything, as any training has.
std::set<Path> growth(const Model& m, const Work& w, const Model& small_model, const Work& small) {
  std::set<Path> all;
  if (w.steps > small.steps) all.insert({"more steps", {}});
  if (w.sequences > small.sequences) all.insert({"more sequences", {}});
  if (m.layers > small_model.layers) all.insert({"more layers", {}});
  return all;
}

}  // namespace

std::set<Path> paths_of(const Model& m, const Work& w, const Parallel& p) {
  std::set<Path> all;
  std::vector<Path> used;
  for (const Switch& s : switches()) {
    if (s.is_on(p)) used.push_back({use_of(s.name, p), {s.name}});
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    all.insert(used[i]);
    for (std::size_t k = i + 1; k < used.size(); ++k)
      all.insert({used[i].name + " with " + used[k].name, {*used[i].parts.begin(), *used[k].parts.begin()}});
  }
  for (const Strategy& s : strategies()) {
    if (is_count(s) && is_on(s.part, p) && std::stoll(s.value(p)) > 2)
      all.insert({fmt::format("{} > 2", s.key()), {s.part}});
  }
  if (has_uneven_stages(m, w, p)) all.insert({"stages of different lengths", {"pp"}});
  if (p.ep > 1) all.insert({m.moe.experts > p.ep ? "several experts a rank" : "one expert a rank", {"ep"}});
  if (leaves_ranks_without_tokens(m, w, p)) all.insert({"ranks without tokens", {"ep"}});
  return all;
}

namespace {

class Covering {
 public:
  Covering(const Training& training, const Work& small, const std::set<std::string_view>& changed)
      : training_(training), small_(small), model_(load_model(small.model)), changed_(changed) {}

  Cover run(const std::vector<Parallel>& strategies) {
    for (const Parallel& p : strategies) require(p);
    std::vector<Parallel> targets;
    for (const Parallel& p : strategies) {
      const Parallel cut = cut_down(p);
      if (std::ranges::find(targets, cut) == targets.end()) targets.push_back(cut);
    }
    small_.micro_batches = common_micro_batches(targets);
    add_alone(targets);
    for (const Parallel& p : targets) add_candidates(p);
    choose();
    return std::move(cover_);
  }

 private:
  bool is_touched(const std::set<std::string_view>& parts) const {
    return changed_.empty() || std::ranges::any_of(parts, [&](auto part) { return changed_.contains(part); });
  }

  void require(const Parallel& p) {
    Work full;
    full.sequences = training_.batch.sequences;
    full.length = training_.batch.length;
    full.micro_batches = training_.micro_batches(p) * p.dp;
    std::set<Path> paths = paths_of(training_.model, full, p);
    // Training goes on for longer than a stage, and begins with routers that spread nothing evenly.
    if (p.ep > 1) paths.insert({"ranks without tokens", {"ep"}});
    for (const char* more : {"more steps", "more sequences", "more layers"}) paths.insert({more, {}});
    for (const Path& path : paths) {
      if (is_touched(path.parts)) cover_.paths.insert(path);
    }
  }

  // Two for every count.
  static Parallel cut_down(Parallel p) {
    for (const Strategy& s : strategies()) {
      if (is_count(s) && !s.is_default(p)) s.setting.read(p, "2");
    }
    p.stages.clear();
    return with_room_for_experts(p);
  }

  // Two nodes at least, and ranks for ep to lie over.
  static Parallel with_room_for_experts(Parallel p) {
    if (p.node > 1) p.ep = std::max(p.ep, 2 * p.node);
    const std::int64_t needed = p.ep * p.etp;
    p.dp *= needed / std::gcd(needed, p.tp * p.cp * p.dp);
    return p;
  }

  std::int64_t common_micro_batches(const std::vector<Parallel>& targets) const {
    std::int64_t most = small_.micro_batches;
    for (const Parallel& p : targets) most = std::max(most, usual_micro_batches(small_, p));
    return most;
  }

  bool fits(const Rung& r) const {
    return r.parallel.ranks() <= most_ranks && objection(r.work, r.parallel).empty();
  }

  // One after the other the parts of each dimension, as the ladder of any strategy begins.
  void add_alone(const std::vector<Parallel>& targets) {
    for (const Parallel& p : targets) {
      for (Rung r : stages_alone(small_, p)) {
        std::vector<std::string> uses;
        for (const Switch& s : switches()) {
          if (s.is_on(r.parallel)) uses.push_back(use_of(s.name, r.parallel));
        }
        if (!uses.empty()) r.name = fmt::format("{}", fmt::join(uses, " + "));
        const bool is_known =
            std::ranges::any_of(cover_.rungs, [&](const Rung& o) { return o.name == r.name; });
        if (!is_known && (uses.empty() || is_touched(switches_of(r.parallel)))) cover_.rungs.push_back(r);
      }
    }
  }

  void add_candidates(const Parallel& p) {
    ++number_;
    const std::string name = fmt::format("together {}", number_);
    add({name, Rung::Kind::full, small_, p});
    Work work = small_;
    work.steps += 1;
    work.sequences *= 2;
    work.model = fmt::format("{},layers={}", small_.model, 2 * model_.layers);
    add({name + ", larger", Rung::Kind::larger, work, p});
    work = small_;
    work.model = fmt::format("{},layers={}", small_.model, model_.layers + 1);
    add({name + ", a layer more", Rung::Kind::larger, work, p});
    for (const Strategy& s : strategies()) {
      if (is_count(s) && !s.is_default(p)) add_wider(name, p, s);
    }
    if (p.ep > 1) add_other_experts(name, p);
  }

  // More than two ranks: with all the rest, or with what the part needs alone.
  void add_wider(const std::string& name, const Parallel& p, const Strategy& s) {
    for (const bool is_alone : {false, true}) {
      for (const char* count : {"3", "4"}) {
        Parallel wider = is_alone ? alone(p, {s.part}) : p;
        s.setting.read(wider, count);
        if (s.part == "ep") wider = with_room_for_experts(wider);
        std::string model = small_.model;
        if (s.key() == "tp" && model_.attention.kv_heads > 0 && model_.attention.kv_heads < wider.tp)
          model += fmt::format(",attention.kv_heads={}", wider.tp);
        const std::string suffix = is_alone ? " alone" : "";
        if (add(fmt::format("{}, {} {}{}", name, s.key(), count, suffix), model, small_.length, wider)) break;
      }
    }
  }

  // Only the part, what it needs, and ranks for experts.
  static Parallel alone(const Parallel& p, const SwitchSet& part) {
    SwitchSet on = part;
    for (const Switch& s : switches()) {
      if (part.contains(s.name)) on.insert(s.needs.begin(), s.needs.end());
    }
    return with_room_for_experts(with_only(p, on));
  }

  // As many experts as ranks, so few tokens that some rank gets none, and both.
  void add_other_experts(const std::string& name, const Parallel& p) {
    for (const std::int64_t ranks : {4, 8}) {
      Parallel q = alone(p, {"ep"});
      q.ep = std::max(p.ep, ranks);
      q = with_room_for_experts(q);
      const std::string one =
          fmt::format("{},moe.groups=0,moe.top_groups=0,moe.experts={},moe.top_k=", small_.model, q.ep);
      const bool has_few = add(name + ", few tokens", small_.model + ",moe.top_k=1", 1, q);
      const bool has_one = add(name + ", one expert a rank", one + "2", small_.length, q);
      add(name + ", one expert a rank, few tokens", one + "1", 1, q);
      if (has_few && has_one) return;
    }
  }

  // A larger stage of other sizes, if that can be.
  bool add(const std::string& name, const std::string& model, std::int64_t length, const Parallel& p) {
    const bool is_there =
        std::ranges::any_of(candidates_, [&](const Candidate& c) { return c.rung.name == name; });
    Work work = small_;
    work.model = model;
    work.length = length;
    work.micro_batches = usual_micro_batches(work, p);
    return is_there || add({name, Rung::Kind::larger, work, p});
  }

  bool add(const Rung& r) {
    if (!fits(r)) return false;
    const Model m = load_model(r.work.model);
    std::set<Path> paths = paths_of(m, r.work, r.parallel);
    paths.merge(growth(m, r.work, model_, small_));
    candidates_.push_back({r, std::move(paths)});
    return true;
  }

  // Each path in one of the chosen stages: as few as can be, and of as many the cheapest.
  void choose() {
    std::set<Path> open = cover_.paths;
    for (const Rung& r : cover_.rungs) {
      for (const Path& path : paths_of(load_model(r.work.model), r.work, r.parallel)) open.erase(path);
    }
    double all = 1;
    for (const auto& [rung, paths] : candidates_) all += cost_of(rung);
    IntegerProgram program;
    for (const auto& [rung, paths] : candidates_) program.add_integer(0, 1, 1 + cost_of(rung) / all);
    for (const Path& path : open) {
      IntegerProgram::Terms have;
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (candidates_[i].paths.contains(path)) have.emplace_back(static_cast<int>(i), 1);
      }
      if (have.empty()) {
        cover_.missing.push_back(path.name);
      } else {
        program.add_row(1, have, static_cast<double>(candidates_.size()));
      }
    }
    constexpr int most_nodes = 100'000;
    const auto solution = program.solve(0, most_nodes);
    if (!solution) throw Error("no stages that cover the strategies were found in {} steps", most_nodes);
    cover_.is_smallest = solution->gap <= 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (solution->values[i] > 0) cover_.rungs.push_back(candidates_[i].rung);
    }
  }

  struct Candidate {
    Rung rung;
    std::set<Path> paths;
  };
  const Training& training_;
  Work small_;
  const Model model_;
  const std::set<std::string_view>& changed_;
  std::vector<Candidate> candidates_;
  Cover cover_;
  int number_ = 0;
};

}  // namespace

Cover cover(const Training& training, const std::vector<Parallel>& chosen, const Work& small,
            const std::set<std::string_view>& changed) {
  for (const std::string_view part : changed) {
    if (std::ranges::none_of(chosen, [&](const Parallel& p) { return is_on(part, p); }))
      throw Error("--changed: none of the {} strategies uses {}; give one that does with --parallel",
                  chosen.size(), part);
  }
  return Covering(training, small, changed).run(chosen);
}

std::set<std::string_view> changed_parts(const std::string& text) {
  const std::size_t at = text.find(':');
  if (at == std::string::npos)
    throw Error("--changed: '{}' has no ':'; expected the strategy before and after, as in tp=4:tp=8", text);
  const Parallel before = parse_parallel(text.substr(0, at), "--changed"),
                 after = parse_parallel(text.substr(at + 1), "--changed");
  std::set<std::string_view> parts;
  for (const Strategy& s : strategies()) {
    if (s.value(before) != s.value(after) && !s.part.empty()) parts.insert(s.part);
  }
  if (parts.empty())
    throw Error("--changed: '{}' changes nothing; expected two strategies, as in tp=4:tp=8", text);
  return parts;
}

namespace {

// A file by its whole path, for a plan that lies elsewhere; what is changed of it stays behind.
std::string with_whole_path(const std::string& name) {
  for (const std::string_view ending : {".toml", ".json"}) {
    const std::size_t at = name.find(ending);
    if (at == std::string::npos) continue;
    const std::size_t end = at + ending.size();
    return std::filesystem::absolute(name.substr(0, end)).string() + name.substr(end);
  }
  return name;
}

}  // namespace

std::string small_model(const std::string& name) {
  const std::string tiny = name + "-tiny";
  const std::vector<std::string_view> presets = model_names();
  if (std::ranges::find(presets, tiny) != presets.end()) return tiny;
  const Model m = load_model(name);
  constexpr std::int64_t small_hidden = 128;
  std::string cut = with_whole_path(name);
  if (m.hidden <= small_hidden) return cut;
  // Sizes of the tiny presets: kinds are kept, and so many heads and experts that strategies divide them.
  const auto at_most = [&](const char* key, std::int64_t value, std::int64_t most) {
    if (value > most) cut += fmt::format(",{}={}", key, most);
  };
  const bool is_dense = m.moe.experts == 0 || m.dense_layers == m.layers;
  at_most("layers", m.layers, 4);
  at_most("dense_layers", m.dense_layers, is_dense ? 4 : 1);
  at_most("hidden", m.hidden, 64);
  at_most("vocabulary", m.vocabulary, 512);
  at_most("dense_ffn", m.dense_ffn, 192);
  at_most("attention.heads", m.attention.heads, 16);
  at_most("attention.kv_heads", m.attention.kv_heads, m.attention.kv_heads == m.attention.heads ? 16 : 4);
  at_most("attention.head_dim", m.attention.head_dim, 8);
  at_most("attention.q_rank", m.attention.q_rank, 24);
  at_most("attention.kv_rank", m.attention.kv_rank, 8);
  at_most("attention.nope_dim", m.attention.nope_dim, 16);
  at_most("attention.rope_dim", m.attention.rope_dim, 8);
  at_most("attention.value_dim", m.attention.value_dim, 16);
  at_most("moe.experts", m.moe.experts, 32);
  at_most("moe.top_k", m.moe.top_k, 8);
  at_most("moe.ffn", m.moe.ffn, 32);
  load_model(cut);
  return cut;
}

}  // namespace assay::align
