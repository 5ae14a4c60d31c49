#include "assay/align/planning/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "assay/align/planning/integer_program.h"
#include "assay/align/settings/strategy.h"

namespace assay::align {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double real_of(std::int64_t n) {
  return static_cast<double>(n);
}

class Balancing {
 public:
  Balancing(Blocks& blocks, const Parallel& p, double memory)
      : blocks_(blocks),
        model_(blocks.training().model),
        p_(p),
        staged_(blocks, p),
        stages_(staged_.pipeline().stages().size()),
        memory_(memory) {
    const std::int64_t dense = model_.moe.experts > 0 ? model_.dense_layers : model_.layers;
    counts_ = {dense, model_.layers - dense};
  }

  std::optional<Balance> run() {
    add_layers();
    keep_order();
    for (std::int64_t rank = 0; rank < p_.pp; ++rank) add_rank(rank);
    constexpr double gap = 1e-2;       // the cost of a step is not known better
    constexpr int most_nodes = 4'000;  // seconds
    const auto solution = program_.solve(gap, most_nodes);
    if (!solution) return std::nullopt;
    Balance b;
    for (const auto& of_stage : layers_) {
      StageLayers& stage = b.stages.emplace_back();
      for (const Variable& v : of_stage)
        stage[v.kind][v.mode] =
            static_cast<std::int64_t>(solution->values[static_cast<std::size_t>(v.number)]);
    }
    Parallel cut = p_;
    cut.recompute = Recompute::none;
    cut.stages.clear();
    for (const StageLayers& stage : b.stages) cut.stages.push_back(layers_of(stage));
    const StagedModel staged(blocks_, cut, b.stages);
    b.memory = staged.memory();
    b.cost = staged.cost();
    b.gap = solution->gap;
    return b;
  }

 private:
  using Terms = IntegerProgram::Terms;
  struct Variable {
    int number;
    std::size_t kind, mode;  ///< 1: with experts; Recompute
  };

  static std::int64_t layers_of(const StageLayers& stage) {
    std::int64_t sum = 0;
    for (const auto& kind : stage) sum = std::accumulate(kind.begin(), kind.end(), sum);
    return sum;
  }

  const Block& block(std::size_t kind) const { return blocks_.layer(p_, kind == 1); }

  // What another one keeps no more than and is as fast as is not worth a variable.
  bool is_useful(std::size_t kind, std::size_t mode) const {
    const Block& b = block(kind);
    const auto cost = [&](std::size_t m) {
      return std::pair{b.kept[m], b.seconds(static_cast<Recompute>(m), blocks_.training().devices)};
    };
    const auto [kept, seconds] = cost(mode);
    for (std::size_t other = 0; other < Block::modes; ++other) {
      const auto [least, fast] = cost(other);
      const bool is_as_good = least <= kept && fast <= seconds, is_same = least == kept && fast == seconds;
      if (other != mode && is_as_good && (!is_same || other < mode)) return false;
    }
    return true;
  }

  void add_layers() {
    layers_.resize(stages_);
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
      Terms all;
      for (std::size_t s = 0; s < stages_; ++s) {
        for (std::size_t mode = 0; counts_[kind] > 0 && mode < Block::modes; ++mode) {
          if (!is_useful(kind, mode)) continue;
          layers_[s].push_back({program_.add_integer(0, real_of(counts_[kind]), 0), kind, mode});
          all.emplace_back(layers_[s].back().number, 1);
        }
      }
      if (counts_[kind] > 0) program_.add_row(real_of(counts_[kind]), all, real_of(counts_[kind]));
    }
    for (const auto& of_stage : layers_) {
      Terms all;
      for (const Variable& v : of_stage) all.emplace_back(v.number, 1);
      program_.add_row(1, all, infinity);
    }
  }

  // Dense layers are the first: where layers have experts, all dense ones are there or before.
  void keep_order() {
    if (counts_[0] == 0 || counts_[1] == 0) return;
    const double dense = real_of(counts_[0]), others = real_of(counts_[1]);
    Terms before;
    for (const auto& of_stage : layers_) {
      const int all_dense = program_.add_integer(0, 1, 0);
      Terms with_experts = {{all_dense, -others}};
      for (const Variable& v : of_stage) (v.kind == 1 ? with_experts : before).emplace_back(v.number, 1);
      program_.add_row(-infinity, with_experts, 0);
      Terms reached = before;
      reached.emplace_back(all_dense, -dense);
      program_.add_row(0, reached, infinity);
    }
  }

  void add_rank(std::int64_t rank) {
    const Training& t = blocks_.training();
    const std::vector<std::int64_t> own = staged_.stages_of(rank);
    Terms again;
    double embedding = 0, dense = 0, experts = 0;
    std::map<std::int64_t, double> given_kept;
    for (const std::int64_t s : own) {
      Terms seconds;
      double given_seconds = 0;
      for (const Variable& v : layers_[static_cast<std::size_t>(s)]) {
        const Block& b = block(v.kind);
        seconds.emplace_back(v.number, b.seconds(static_cast<Recompute>(v.mode), t.devices));
        if (v.mode > 0) again.emplace_back(v.number, 1);
      }
      const Stage& stage = staged_.pipeline().stages()[static_cast<std::size_t>(s)];
      for (const Block* b :
           {stage.embeds ? &blocks_.embedding(p_) : nullptr, stage.finishes ? &blocks_.head(p_) : nullptr}) {
        if (b == nullptr) continue;
        given_seconds += b->seconds(Recompute::none, t.devices);
        given_kept[s] += b->kept[0];
        embedding = std::max(embedding, b->embedding);
        dense += b->dense;
        experts += b->experts;
      }
      add_seconds(seconds, given_seconds);
    }
    // A layer that is computed again has all that it would keep, while it goes backward.
    const int is_again = program_.add_integer(0, 1, 0);
    again.emplace_back(is_again, -real_of(model_.layers));
    program_.add_row(-infinity, again, 0);
    double largest = 0;
    for (const std::size_t kind : {0, 1}) {
      if (counts_[kind] == 0) continue;
      for (const double kept : block(kind).kept) largest = std::max(largest, block(kind).kept[0] - kept);
    }
    const double given = memory_of(p_, t.storage, dense + embedding, experts).all();
    for (const Blocks::Held& held : blocks_.held(staged_.pipeline(), p_, staged_.micro_batches(), rank)) {
      Terms bytes = {{is_again, largest}};
      double room = memory_ - given;
      for (const std::int64_t s : own) {
        const auto at = held.find(s);
        const double count = at == held.end() ? 0 : real_of(at->second);
        room -= count * given_kept[s];
        for (const Variable& v : layers_[static_cast<std::size_t>(s)]) {
          const Block& b = block(v.kind);
          bytes.emplace_back(v.number,
                             count * b.kept[v.mode] + memory_of(p_, t.storage, b.dense, b.experts).all());
        }
      }
      add_scaled_row(bytes, room);
    }
  }

  // In GiB: simplex steps take numbers near 1.
  void add_scaled_row(Terms bytes, double room) {
    constexpr double gibi = 1 << 30;
    for (auto& [variable, coefficient] : bytes) coefficient /= gibi;
    program_.add_row(-infinity, bytes, room / gibi);
  }

  // Seconds of a micro-batch in a stage. With several chunks ranks are at different ones at the same time,
  // and wait for each other unless all stages take as long.
  void add_seconds(Terms seconds, double given) {
    if (slowest_ < 0)
      slowest_ = program_.add_real(0, infinity, real_of((staged_.micro_batches() - 1) * p_.vpp));
    const int own = program_.add_real(0, infinity, 1 / real_of(p_.vpp));
    seconds.emplace_back(own, -1);
    program_.add_row(-given, seconds, -given);
    program_.add_row(0, {{slowest_, 1}, {own, -1}}, infinity);
  }

  Blocks& blocks_;
  const Model& model_;
  const Parallel p_;
  const StagedModel staged_;
  const std::size_t stages_;
  const double memory_;
  std::array<std::int64_t, 2> counts_ = {};
  IntegerProgram program_;
  std::vector<std::vector<Variable>> layers_;  ///< by stage
  int slowest_ = -1;                           ///< seconds
};

}  // namespace

std::optional<Balance> balance(Blocks& blocks, const Parallel& parallel, double memory_per_device) {
  Parallel p = parallel;
  p.recompute = Recompute::none;
  p.stages.clear();
  return Balancing(blocks, p, memory_per_device).run();
}

std::string to_string(const StageLayers& stage) {
  std::vector<std::string> pieces;
  std::int64_t all = 0;
  for (std::size_t mode = 0; mode < Block::modes; ++mode) {
    const std::int64_t count = stage[0][mode] + stage[1][mode];
    all += count;
    Parallel p;
    p.recompute = static_cast<Recompute>(mode);
    if (count > 0 && mode > 0) pieces.push_back(fmt::format("{} {}", count, to_string(p)));
  }
  return fmt::format("{}{}", all, pieces.empty() ? "" : fmt::format(" ({})", fmt::join(pieces, ", ")));
}

}  // namespace assay::align
