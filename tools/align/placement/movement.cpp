#include "assay/align/placement/movement.h"

#include <fmt/format.h>

#include "assay/golden/error.h"
#include "assay/golden/tensor.h"

namespace assay::align {
namespace {

using Kind = Movement::Kind;

std::string_view name(Kind kind) {
  constexpr std::string_view names[] = {"copy",  "all-reduce", "all-gather", "reduce-scatter",
                                        "split", "all-to-all", "shift",      "shift back"};
  return names[static_cast<std::size_t>(kind)];
}

void expect(const Movement& m, const Placed& found, const Placed& expected) {
  if (found != expected)
    throw Error("the {} takes what is {}; it is given what is {}", to_string(m), to_string(expected),
                to_string(found));
}

void expect_gradient(const Movement& m, const Placed& found, const Placed& expected) {
  if (found != expected)
    throw Error("the gradient of an {} is {}; expected {}", to_string(m), to_string(found),
                to_string(expected));
}

}  // namespace

std::string to_string(const Movement& m) {
  constexpr std::string_view whom[] = {"", " within a node", " between nodes"};
  return fmt::format("{} over {}{}", name(m.kind), align::name(m.axis),
                     whom[static_cast<std::size_t>(m.among)]);
}

Placed moved(const Movement& m, const Placed& placed) {
  switch (m.kind) {
    case Kind::copy:
      expect(m, placed, replicated);
      return replicated;
    case Kind::all_reduce:
      expect(m, placed, partial);
      return replicated;
    case Kind::all_gather:
      expect(m, placed, sharded(m.dim));
      return replicated;
    case Kind::reduce_scatter:
      expect(m, placed, partial);
      return sharded(m.dim);
    case Kind::split:
      expect(m, placed, replicated);
      return sharded(m.dim);
    case Kind::all_to_all:
      expect(m, placed, sharded(m.dim));
      return sharded(m.to_dim);
    case Kind::shift:
    case Kind::return_shift:
      expect(m, placed, sharded(m.dim));
      return placed;
  }
  return placed;
}

std::optional<Movement> adjoint(const Movement& m, const Placed& gradient) {
  const auto with = [&](Kind kind) {
    Movement other = m;
    other.kind = kind;
    return other;
  };
  const bool is_partial = gradient == partial;
  switch (m.kind) {
    case Kind::copy:
      if (is_partial) return with(Kind::all_reduce);
      expect_gradient(m, gradient, replicated);
      return std::nullopt;
    case Kind::all_reduce:
      expect_gradient(m, gradient, replicated);
      return std::nullopt;
    case Kind::all_gather:
      if (is_partial) return with(Kind::reduce_scatter);
      expect_gradient(m, gradient, replicated);
      return with(Kind::split);
    case Kind::reduce_scatter:
    case Kind::split:
      expect_gradient(m, gradient, sharded(m.dim));
      return with(Kind::all_gather);
    case Kind::all_to_all: {
      expect_gradient(m, gradient, sharded(m.to_dim));
      Movement back = m;
      std::swap(back.dim, back.to_dim);
      return back;
    }
    case Kind::shift:
      expect_gradient(m, gradient, sharded(m.dim));
      return with(Kind::return_shift);
    case Kind::return_shift:
      expect_gradient(m, gradient, sharded(m.dim));
      return with(Kind::shift);
  }
  return std::nullopt;
}

Shape moved_shape(const Movement& m, Shape shape, std::int64_t ranks) {
  const auto divide = [&](std::size_t dim) {
    if (shape[dim] % ranks != 0)
      throw Error("the {} cuts dim {} of {} into {} pieces; it does not divide", to_string(m), dim,
                  assay::to_string(shape), ranks);
    shape[dim] /= ranks;
  };
  switch (m.kind) {
    case Kind::all_gather:
      shape[m.dim] *= ranks;
      break;
    case Kind::reduce_scatter:
    case Kind::split:
      divide(m.dim);
      break;
    case Kind::all_to_all:
      shape[m.dim] *= ranks;
      divide(m.to_dim);
      break;
    default:
      break;
  }
  return shape;
}

std::vector<int> ranks_of(const Movement& m, const Mesh& mesh) {
  if (m.among == Movement::Among::node) return mesh.node_group();
  return m.among == Movement::Among::peers ? mesh.peer_group() : mesh.group({m.axis});
}

}  // namespace assay::align
