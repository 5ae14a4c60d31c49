#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// The cut of one dimension among ranks. A part consists of the stretches [first, last) of one rank. Fewer
/// than two parts mean an uncut dimension.
using Parts = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;
std::vector<Parts> parts_of(const Dump&, const LogicalTensor&);

/// Whether a dump may cut its tensors: over ranks, or into micro-batches.
bool is_cut(const Dump&);

/// The dimensions of the mesh over which several ranks hold records of the tensor: those of the ranks that
/// run one micro-batch together.
std::set<std::size_t> dims_of_ranks(const Dump&, const LogicalTensor&);
/// The parts of a parameter that are there when it is used: what ranks hold that differ in other dimensions
/// (FSDP, the distributed optimizer) has been gathered.
std::vector<Parts> gathered_parts_of(const Dump&, const LogicalTensor&, const std::set<std::size_t>& dims);

/// An input of a call, and the cut of each of its dimensions.
struct CutInput {
  std::string name;
  std::vector<Parts> dims;
};

/// A sum whose terms lie on several ranks, and the part of each rank.
struct SharedSum {
  std::string input;  ///< the input in which the terms are linear
  std::size_t dim = 0;
  Parts parts;
  /// False: no such input exists, and only the number of parts is known.
  bool is_linear = true;
};

/// Returns the sums behind `output` over dimensions that ranks have cut.
std::vector<SharedSum> shared_sums(const Operator&, const std::string& output, const std::vector<CutInput>&);

/// The number of addends of each element. Shards of one addend are no further terms.
double addends_of(const Dump&, const LogicalTensor&);

/// A dump's tensors without their signs: a sum over ranks becomes that of magnitudes.
class Magnitudes : public Dump {
 public:
  explicit Magnitudes(const Dump& of);
  Tensor read(std::size_t index) const override;
  std::string location(std::size_t index) const override { return of_.location(index); }

 private:
  const Dump& of_;
};

/// What a device may be off by that takes each addend of a tensor by itself, and rounds what it makes of it.
/// Empty: the tensor has no addends.
std::vector<double> errors_of_addends(const Dump&, const LogicalTensor&);

/// Returns the tensor with zeros outside the part.
Tensor only_part(const Tensor&, std::size_t dim, const Parts::value_type& part);

}  // namespace assay
