#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/record/dump.h"
#include "assay/dumps/torch/pickle.h"

namespace assay {

/// torch.distributed.tensor.DTensor as torch.save writes it: the part of one rank, and how the whole is cut.
struct PickledDTensor {
  Pickle::Ref local = 0;  ///< the call that makes the local tensor
  Shape global_shape;
  std::vector<Placement> placements;
  Mesh mesh;
  std::vector<std::int64_t> coordinate;  ///< of the rank in the mesh
  int rank = 0;
};

/// @param arguments  of torch._tensor._rebuild_from_type_v2, whose first is _rebuild_wrapper_subclass
/// Nothing, and `why`, for other wrappers and for layouts that Placement cannot say; Error ("<where>: ...")
/// for one that contradicts itself.
std::optional<PickledDTensor> parse_dtensor(const Pickle&, const std::vector<Pickle::Ref>& arguments,
                                            std::string_view where, std::string& why);

}  // namespace assay
