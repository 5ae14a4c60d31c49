#include "assay/align/ranks/ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/align/arithmetic/pieces.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using Kind = Movement::Kind;

std::int64_t ranks_in(const std::vector<int>& group) {
  return static_cast<std::int64_t>(group.size());
}

std::vector<Tensor> cut(const Tensor& t, std::size_t dim, std::size_t pieces) {
  std::vector<Tensor> all;
  for (std::size_t k = 0; k < pieces; ++k)
    all.push_back(piece_of(t, dim, static_cast<std::int64_t>(k), static_cast<std::int64_t>(pieces)));
  return all;
}

// Open tensors may have different numbers of parts before their shapes; -0 stands for none.
std::vector<Tensor> of_equal_parts(std::vector<Tensor> open) {
  std::int64_t most = 0;
  for (const Tensor& t : open) most = std::max(most, t.shape().front());
  for (Tensor& t : open) {
    if (t.shape().front() == most) continue;
    Shape missing = t.shape();
    missing.front() = most - missing.front();
    const std::vector<double> none(static_cast<std::size_t>(element_count(missing)), -0.0);
    t = joined(std::vector{t, Tensor::from_values(t.dtype(), missing, none)}, 0);
  }
  return open;
}

Tensor join(std::vector<Tensor> parts, std::size_t dim, std::size_t leading) {
  if (leading > 0) parts = of_equal_parts(std::move(parts));
  return joined(parts, dim + leading);
}

}  // namespace

Tensor Ranks::sum(const std::vector<int>& group, const std::string& what, const Tensor& open) const {
  if (group.size() == 1) return open;
  return arithmetic_->add(communicator_.all_gather(group, what, open), mesh_.parallel().reduce);
}

Tensor Ranks::sum_pieces(const std::vector<int>& group, const std::string& what,
                         const std::vector<Tensor>& pieces) const {
  std::vector<Tensor> received = communicator_.all_to_all(group, what, pieces);
  ReduceOrder order = mesh_.parallel().reduce;
  if (order == ReduceOrder::ring) {
    // Chunk k begins at rank k + 1.
    const auto me = std::ranges::find(group, mesh_.rank()) - group.begin();
    std::ranges::rotate(received, received.begin() + (me + 1) % ranks_in(group));
    order = ReduceOrder::ranks;
  }
  return arithmetic_->add(received, order);
}

Tensor Ranks::sum_indices(const std::vector<int>& group, const std::string& what, const Tensor& mine) const {
  std::vector<std::int64_t> total(static_cast<std::size_t>(mine.size()));
  for (const Tensor& part : communicator_.all_gather(group, what, mine)) {
    const std::vector<std::int64_t> more = part.indices();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += more.at(i);
  }
  return Tensor::from_indices(mine.shape(), total);
}

Tensor Ranks::move(const Movement& m, const std::string& what, const Tensor& x, std::size_t leading) const {
  const std::vector<int> group = ranks_of(m, mesh_);
  const auto me = static_cast<std::size_t>(std::ranges::find(group, mesh_.rank()) - group.begin());
  const std::size_t n = group.size();
  const auto neighbour = [&](std::size_t turn) { return group[(me + turn) % n]; };
  switch (m.kind) {
    case Kind::copy:
      return x;
    case Kind::all_reduce:
      return sum(group, what, x);
    case Kind::all_gather:
      return join(communicator_.all_gather(group, what, x), m.dim, leading);
    case Kind::reduce_scatter:
      return sum_pieces(group, what, cut(x, m.dim + leading, n));
    case Kind::split:
      return piece_of(x, m.dim + leading, static_cast<std::int64_t>(me), ranks_in(group));
    case Kind::all_to_all:
      return join(communicator_.all_to_all(group, what, cut(x, m.to_dim + leading, n)), m.dim, leading);
    case Kind::shift:
      communicator_.send(neighbour(1), what, x);
      return communicator_.receive(neighbour(n - 1), what);
    case Kind::return_shift:
      communicator_.send(neighbour(n - 1), what, x);
      return communicator_.receive(neighbour(1), what);
  }
  throw Error("{}: no such movement", what);
}

Tensor Ranks::move(const Movement& m, const std::string& module, const Tensor& closed) const {
  const std::string what = fmt::format("{} of {}", to_string(m), module);
  const bool sums = m.kind == Kind::all_reduce || m.kind == Kind::reduce_scatter;
  return move(m, what, closed, sums ? arithmetic_->leading() : 0);
}

Tensor Ranks::move_open(const Movement& m, const std::string& module, const Tensor& open) const {
  return move(m, fmt::format("{} of the gradient of {}", to_string(m), module), open, arithmetic_->leading());
}

Tensor Ranks::exchange_rows(const std::string& module, const Tensor& rows, std::span<const std::int64_t> give,
                            bool open) const {
  const std::vector<int> group = mesh_.node_group();
  const std::size_t leading = open ? arithmetic_->leading() : 0;
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t count : give) {
    parts.push_back(piece(rows, leading, begin, begin + count));
    begin += count;
  }
  return join(
      communicator_.all_to_all(group, fmt::format("rows of {}{}", module, open ? "' gradient" : ""), parts),
      0, leading);
}

}  // namespace assay::align
