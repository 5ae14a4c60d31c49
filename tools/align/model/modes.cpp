#include "assay/align/model/modes.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/align/placement/token_rows.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

bool has_experts(const Model& m) {
  return m.has_experts(m.layers + m.losses.mtp_depth - 1);  // the first layers have none
}

std::int64_t counted_together(const Model& m, const Parallel& p) {
  if (m.losses.balance == BalanceLoss::dp_group) return p.dp;
  if (m.losses.balance != BalanceLoss::ep_group) return 1;
  const std::int64_t of_group = p.ep * p.etp, of_micro_batch = p.tp * p.cp;
  if (of_micro_batch % of_group != 0 && of_group % of_micro_batch != 0)
    throw Error(
        "balance losses over groups of ep {} times etp {} ranks, of which a micro-batch has tp {} times cp "
        "{}; "
        "expected that one divides the other",
        p.ep, p.etp, p.tp, p.cp);
  return std::max<std::int64_t>(1, of_group / of_micro_batch);
}

}  // namespace

Modes modes_of(const Model& m, const Parallel& p) {
  if (!has_experts(m)) return {.exchange_samples = p.redistribute ? p.dp : 1};
  Modes modes = {.counted_together = counted_together(m, p), .exchange_samples = p.redistribute ? p.dp : 1};
  if (m.moe.capacity_factor <= 0) return modes;
  modes.tp = p.tp;
  modes.cp = p.cp;
  modes.context = p.cp > 1 ? p.context : ContextMode::ring;
  return modes;
}

// A rank of tp gives its part of the rows of its rank of cp.
std::vector<std::int64_t> rows_by_rank(const Modes& m, std::int64_t sequences, std::int64_t length) {
  const Parallel parallel = {.tp = m.tp, .cp = m.cp, .context = m.context};
  std::vector<std::int64_t> rows;
  for (std::int64_t c = 0; c < m.cp; ++c) {
    const std::vector<std::int64_t> own =
        token_rows(Mesh(parallel, static_cast<int>(c * m.tp)), sequences, length);
    rows.insert(rows.end(), own.begin(), own.end());
  }
  return rows;
}

std::vector<std::string> other_functions(const Modes& m) {
  std::vector<std::string> all;
  if (m.counted_together > 1)
    all.push_back(fmt::format("balance losses count the tokens of experts in {} micro-batches together",
                              m.counted_together));
  if (m.ranks() > 1)
    all.push_back(fmt::format("each of the {} ranks of a micro-batch drops tokens by itself", m.ranks()));
  if (m.exchange_samples > 1)
    all.push_back(fmt::format("{} micro-batches exchange samples", m.exchange_samples));
  return all;
}

void check_modes(const Model& model, const Modes& m, const Parallel& p, std::int64_t micro_batches) {
  const Modes own = modes_of(model, p);
  if (m == own) return;
  for (const std::int64_t together : {m.counted_together, m.exchange_samples}) {
    if (micro_batches % together != 0)
      throw Error("modes of a strategy with groups of {1} micro-batches; {0} are none", micro_batches,
                  together);
  }
  const bool drop_alike = m.tp == own.tp && m.cp == own.cp && m.context == own.context;
  if (!drop_alike && own.ranks() > 1)
    throw Error(
        "modes of a strategy whose ranks drop tokens by themselves; expected tp and cp as there, or 1");
  if (p.dp % m.counted_together == 0) return;
  if (m.counted_together % p.dp != 0)
    throw Error(
        "modes of a strategy that counts tokens of {} micro-batches together; expected a dp that divides "
        "them",
        m.counted_together);
  if (p.tp * p.cp * p.pp > 1)
    throw Error(
        "modes of a strategy of which a rank here counts the tokens of {} micro-batches before it computes "
        "them; expected tp, cp "
        "and pp of 1",
        m.counted_together / p.dp);
}

}  // namespace assay::align
