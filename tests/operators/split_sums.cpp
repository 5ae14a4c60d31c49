#include "split_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/moe_rows.h"

namespace assay {
namespace {

// Rows [begin, end) of the groups.
void cut_groups(std::vector<NamedTensor>& shard, Attributes&, std::int64_t begin, std::int64_t end) {
  Tensor& sizes = std::ranges::find(shard, "group_sizes", &NamedTensor::name)->tensor;
  std::vector<std::int64_t> rows = sizes.indices();
  std::int64_t first = 0;
  for (std::int64_t& size : rows) {
    const std::int64_t last = first + size;
    size = std::max<std::int64_t>(0, std::min(last, end) - std::max(first, begin));
    first = last;
  }
  sizes = Tensor::from_indices(sizes.shape(), rows);
}

void cut_shape(std::vector<NamedTensor>&, Attributes& attributes, std::int64_t begin, std::int64_t end) {
  attributes.set("shape", std::vector<double>{static_cast<double>(end - begin), -1});
}

// The rows [begin, end) by expert: choices whose rows are elsewhere are dropped.
void drop_choices(std::vector<NamedTensor>& shard, Attributes& attributes, std::int64_t begin,
                  std::int64_t end) {
  Tensor& index = std::ranges::find(shard, "index", &NamedTensor::name)->tensor;
  std::vector<std::int64_t> experts = index.indices();
  const auto expert = [&](std::int64_t place) -> std::int64_t& {
    return experts[static_cast<std::size_t>(place)];
  };
  const auto rows = routed_rows(experts, index.size(), expert);
  for (std::int64_t row = 0; row < index.size(); ++row) {
    const std::int64_t place = rows[static_cast<std::size_t>(row)];
    if (place >= 0 && (row < begin || row >= end)) expert(place) = -1;
  }
  index = Tensor::from_indices(index.shape(), experts);
  attributes.set("num_out_tokens", static_cast<double>(end - begin));
}

Tensor cut(const Tensor& whole, std::size_t axis, std::int64_t begin, std::int64_t end) {
  Shape shape = whole.shape();
  shape[axis] = end - begin;
  const Positions at = box_positions(whole.shape(), axis, begin, shape);
  const bool real = is_float(whole.dtype());
  std::vector<double> values;
  std::vector<std::int64_t> indices;
  const std::vector<std::int64_t> all = real ? std::vector<std::int64_t>() : whole.indices();
  for (const std::int64_t i : at) {
    if (real)
      values.push_back(whole.value(i));
    else
      indices.push_back(all[static_cast<std::size_t>(i)]);
  }
  return real ? Tensor::from_values(whole.dtype(), shape, values) : Tensor::from_indices(shape, indices);
}

Tensor with_special_values(const Tensor& t, std::mt19937_64& random) {
  constexpr double special[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> values = t.values();
  for (double& v : values) {
    if (random() % 40 == 0) v = special[random() % 3];
  }
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// 0, cuts in rising order, `extent`.
std::vector<std::int64_t> random_cuts(std::int64_t extent, std::mt19937_64& random) {
  std::vector<std::int64_t> at = {0, extent};
  for (std::uint64_t shards = 1 + random() % 4; shards > 1; --shards)
    at.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent + 1)));
  std::ranges::sort(at);
  return at;
}

}  // namespace

std::vector<Split> splits() {
  return {
      {"linear", "N=6,K=24,M=5", "", {{"x", 1}, {"w", 1}}, {"y"}, "b"},
      {"linear", "N=24,K=6,M=5", "", {{"x", 0}, {"grad_y", 0}}, {"grad_w", "grad_b"}},
      {"linear", "N=5,K=6,M=24", "", {{"w", 0}, {"b", 0}, {"grad_y", 1}}, {"grad_x"}},
      {"grouped_matmul", "T=12,K=20,G=3,N=4", "", {{"x", 1}, {"w", 1}}, {"y"}},
      {"grouped_matmul", "T=12,K=4,G=3,N=20", "", {{"w", 2}, {"grad_y", 1}}, {"grad_x"}},
      {"grouped_matmul", "T=30,K=4,G=3,N=5", "", {{"x", 0}, {"grad_y", 0}}, {"grad_w"}, {}, cut_groups},
      {"matmul", "A=,M=5,K=24,B=,N=6", "", {{"a", 1}, {"b", 0}}, {"y"}},
      {"matmul", "A=,M=5,K=6,B=,N=24", "", {{"b", 1}, {"grad_y", 1}}, {"grad_a"}},
      {"matmul", "A=,M=24,K=6,B=,N=5", "", {{"a", 0}, {"grad_y", 0}}, {"grad_b"}},
      {"rms_norm", "N=24,C=6", "", {{"x", 0}, {"grad_y", 0}}, {"grad_weight"}},
      {"embedding", "V=4,C=3,N=40", "", {{"index", 0}, {"grad_y", 0}}, {"grad_weight"}},
      {"expand", "X=7", "shape=[20,-1]", {{"grad_y", 0}}, {"grad_x"}, {}, cut_shape},
      {"index_select", "A=,C=5,B=3,N=40", "", {{"index", 0}, {"grad_y", 0}}, {"grad_x"}},
      {"moe_permute", "N=5,C=3,K=7", "num_experts=6", {{"grad_permuted", 0}}, {"grad_x"}, {}, drop_choices},
      {"moe_unpermute",
       "P=35,C=3,N=5,K=7",
       "",
       {{"expert_out", 0}, {"sorted_index", 0}},
       {"y", "grad_probs"}},
      {"swiglu", "N=5,C=24", "", {{"gate", 1}, {"up", 1}, {"grad_y", 1}}, {"grad_probs"}, {}, nullptr, "x"},
      {"reduce_sum", "S=24x5", "dims=[0]", {{"x", 0}}, {"y"}},
      {"add", "A=24x5,B=5", "alpha=-0.5", {{"a", 0}, {"grad_y", 0}}, {"grad_b"}},
      {"mul", "A=24x5,B=5", "", {{"a", 0}, {"grad_y", 0}}, {"grad_b"}},
  };
}

Tensor random_tensor(const Shape& shape, int spread, std::mt19937_64& random) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) {
    const double fraction = std::ldexp(static_cast<double>(random() >> 40), -24);
    const int exponent = static_cast<int>(random() % static_cast<std::uint64_t>(2 * spread + 1)) - spread;
    v = std::ldexp(random() % 2 == 0 ? fraction : -fraction, exponent);
    if (random() % 10 == 0) v = random() % 2 == 0 ? 0. : -0.;
  }
  return Tensor::from_values(DType::float32, shape, values);
}

SplitCall make_call(const Split& split, std::mt19937_64& random) {
  const Operator& op = find_operator(split.op);
  const CallShape call = parse_call({split.sizes, split.attributes, split.leave_out});
  SplitCall made;
  made.whole = {generate_inputs(op, call, Fill::random, DType::float32, random()), call.attributes};
  constexpr int spreads[] = {1, 8, 30, 100};
  const int spread = spreads[random() % 4];
  const bool special = random() % 4 == 0;
  for (NamedTensor& input : made.whole.inputs) {
    if (!is_float(input.tensor.dtype())) continue;
    input.tensor = random_tensor(input.tensor.shape(), spread, random);
    if (special) input.tensor = with_special_values(input.tensor, random);
  }
  const Tensor& first = *find_tensor(made.whole.inputs, split.cuts[0].input);
  const auto at = random_cuts(first.shape()[split.cuts[0].axis], random);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    CallInputs shard = made.whole;
    for (const Cut& c : split.cuts) {
      Tensor& t = std::ranges::find(shard.inputs, c.input, &NamedTensor::name)->tensor;
      t = cut(t, c.axis, at[i], at[i + 1]);
    }
    if (i > 0) std::erase_if(shard.inputs, [&](const NamedTensor& t) { return t.name == split.only_first; });
    if (split.adapt != nullptr) split.adapt(shard.inputs, shard.attributes, at[i], at[i + 1]);
    made.shards.push_back(std::move(shard));
  }
  return made;
}

}  // namespace assay
