#include "assay/align/planning/enumerate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

constexpr std::int64_t least_tokens = 4096;  // of a rank of cp

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all;
}

class Search {
 public:
  Search(Blocks& blocks, std::int64_t devices, double memory)
      : blocks_(blocks), t_(blocks.training()), devices_(devices), memory_(memory) {}

  Enumeration run(std::size_t most) {
    found_.least_memory = std::numeric_limits<double>::infinity();
    for (const std::int64_t tp : divisors(devices_, t_.devices.of_node)) {
      for (const std::int64_t cp :
           divisors(devices_ / tp, std::max<std::int64_t>(1, t_.batch.length / least_tokens))) {
        for (const ContextMode context : {ContextMode::ring, ContextMode::ulysses}) {
          if (cp == 1 && context != ContextMode::ring) continue;
          Parallel p;
          p.tp = tp, p.sp = tp > 1, p.cp = cp, p.context = context;
          with_pipeline(p);
        }
      }
    }
    take_fastest(most);
    return std::move(found_);
  }

 private:
  void with_pipeline(Parallel p) {
    for (const std::int64_t pp : divisors(devices_ / (p.tp * p.cp), t_.model.layers)) {
      p.pp = pp;
      p.dp = devices_ / (p.tp * p.cp * pp);
      with_experts(p);
    }
  }

  void with_experts(Parallel p) {
    const std::int64_t below = p.tp * p.cp * p.dp, in_node = t_.devices.of_node;
    for (const std::int64_t ep : divisors(below, std::max<std::int64_t>(1, t_.model.moe.experts))) {
      p.ep = ep;
      for (const Dispatch dispatch : {Dispatch::alltoall, Dispatch::allgather, Dispatch::hierarchical}) {
        if (ep == 1 && dispatch != Dispatch::alltoall) continue;
        if (dispatch == Dispatch::hierarchical && (ep <= in_node || ep % in_node != 0)) continue;
        p.dispatch = dispatch;
        p.node = dispatch == Dispatch::hierarchical ? in_node : 1;
        with_the_rest(p);
      }
    }
  }

  void with_the_rest(Parallel p) {
    for (const Schedule schedule :
         {Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble, Schedule::dualpipe}) {
      if (p.pp == 1 && schedule != Schedule::one_f_one_b) continue;
      p.schedule = schedule;
      p.vpp = schedule == Schedule::interleaved ? 2 : 1;
      for (std::size_t mode = 0; mode < Block::modes; ++mode) {
        p.recompute = static_cast<Recompute>(mode);
        const bool has_none = p.recompute == Recompute::mla && t_.model.attention.kind != AttentionKind::mla;
        if (has_none) continue;
        if (!consider(p)) return;
      }
    }
  }

  // False: what is wrong is wrong with any schedule, recompute and ZeRO.
  bool consider(const Parallel& p) {
    std::optional<StagedModel> staged;
    try {
      staged.emplace(blocks_, p);
    } catch (const Error&) {
      return p.schedule != Schedule::one_f_one_b;
    }
    for (std::int64_t zero = 0; zero <= (p.cp * p.dp > 1 ? 3 : 0); ++zero) {
      staged->set_zero(zero);
      ++found_.valid;
      const Memory m = staged->memory();
      found_.least_memory = std::min(found_.least_memory, m.all());
      if (!(m.all() <= memory_)) continue;
      ++found_.fitting;
      fitting_.push_back({staged->least_seconds(), staged->parallel()});
    }
    return true;
  }

  // By the least that they can take: once that is more than the last wanted one takes, no other is faster.
  void take_fastest(std::size_t most) {
    std::ranges::sort(fitting_, {}, [](const Fitting& f) { return f.least; });
    std::vector<Candidate>& fastest = found_.fastest;
    for (const auto& [least, p] : fitting_) {
      if (fastest.size() == most && !(least < fastest.back().cost.all)) break;
      const StagedModel staged(blocks_, p);
      const Candidate c = {p, staged.memory(), staged.cost()};
      fastest.insert(std::ranges::upper_bound(fastest, c.cost.all, {},
                                              [](const Candidate& other) { return other.cost.all; }),
                     c);
      if (fastest.size() > most) fastest.pop_back();
    }
  }

  struct Fitting {
    double least;
    Parallel parallel;
  };
  Blocks& blocks_;
  const Training& t_;
  const std::int64_t devices_;
  const double memory_;
  Enumeration found_;
  std::vector<Fitting> fitting_;
};

}  // namespace

Enumeration enumerate(Blocks& blocks, std::int64_t devices, double memory_per_device, std::size_t most) {
  return Search(blocks, devices, memory_per_device).run(most);
}

}  // namespace assay::align
