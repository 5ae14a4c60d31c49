#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"

namespace assay {

inline constexpr std::array<std::string_view, 5> written_formats = {"assay-dump", "safetensors", "npy",
                                                                    "hdf5", "sketch"};

/// What is rewritten as what.
struct Conversion {
  std::string input, output, dtype_hint, raw, rules;
  std::string to;  ///< one of written_formats; empty: as the output's name says
};

struct Converted {
  std::size_t tensors = 0;
  /// Of the reader, and what the format cannot say; with their reasons.
  std::vector<std::string> notes, left_out, unreadable;
};

/// The output appears whole or not at all. Throws Error for an input that cannot be read or has nothing to
/// convert, a format that is not written, an output that exists, and tensors that the format cannot hold.
Converted convert(const Conversion&);

/// A tensor of all ranks, as plain files hold it. Putting parts together moves bits; adding partial sums up,
/// or choosing between copies that differ, would make others: that is an Error.
Tensor read_whole(const Dump&, const LogicalTensor&);

}  // namespace assay
