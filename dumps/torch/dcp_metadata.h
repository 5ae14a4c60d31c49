#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/torch/pickle.h"
#include "assay/golden/tensor.h"

namespace assay {

/// A part of a tensor in a PyTorch distributed checkpoint, and the archive of torch.save that holds it.
struct DcpChunk {
  std::string name;
  DType dtype = DType::float32;
  Shape global_shape, offsets, shape;
  std::string file;  ///< a plain name, beside the metadata
  std::uint64_t offset = 0, length = 0;
};

struct DcpMetadata {
  std::vector<DcpChunk> chunks;
  std::vector<std::string> notes, left_out;
};

/// Reads the pickle in .metadata. Throws Error ("<where>: ...") if it is another object or contradicts
/// itself.
DcpMetadata read_dcp_metadata(const Pickle&, std::string_view where);

}  // namespace assay
