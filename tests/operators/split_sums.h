#pragma once

#include <random>
#include <string_view>
#include <vector>

#include "assay/operators/engine/generate.h"

/// Calls of operators of which some sums are split, as ranks and micro-batches split them.
namespace assay {

/// One input cut along one of its axes.
struct Cut {
  std::string_view input;
  std::size_t axis;
};

/// Which outputs are the sums of the shards' if these inputs are cut.
struct Split {
  std::string_view op, sizes, attributes;
  std::vector<Cut> cuts;  ///< at the same places, each
  std::vector<std::string_view> sums;
  std::string_view only_first = {};  ///< an input that the first shard alone has
  /// What else the shard that has [begin, end) differs in; may be null.
  void (*adapt)(std::vector<NamedTensor>& shard, Attributes&, std::int64_t begin, std::int64_t end) = nullptr;
  std::string_view leave_out = {};  ///< optional inputs that are not given
};

std::vector<Split> splits();

struct CallInputs {
  std::vector<NamedTensor> inputs;
  Attributes attributes;
};
struct SplitCall {
  CallInputs whole;
  std::vector<CallInputs> shards;
};

/// Random data, zeros, and in one call of four NaN and infinities; 1 to 4 shards, some of them empty.
SplitCall make_call(const Split&, std::mt19937_64&);

/// float32, exponents within `spread` of 0, some values 0 and -0.
Tensor random_tensor(const Shape&, int spread, std::mt19937_64&);

}  // namespace assay
