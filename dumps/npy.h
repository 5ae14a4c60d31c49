#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "assay/golden/tensor.h"

namespace assay {

/// The content of a .npy header. numpy.lib.format, versions 1 to 3.
struct NpyHeader {
  std::string descr;           ///< "<f4"
  std::optional<DType> dtype;  ///< nothing if descr cannot say it (V2, V1) and no hint was given
  Shape shape;
  bool fortran_order = false;
  bool big_endian = false;
  std::size_t data_offset = 0;
  std::string refused;  ///< why such an array is never compared: objects, structures, text; else empty
};

/// The type to list the array under: where nobody knows it, unsigned integers of its size.
DType listed_dtype(const NpyHeader&);

inline constexpr std::string_view npy_magic = "\x93NUMPY";
/// The longest beginning of a file that parse_npy looks at.
inline constexpr std::size_t npy_head = 64 * 1024 + 12;

/// @param head  the file, or its first npy_head bytes
/// @param size  of the whole file
/// @param hint  as OpenOptions::dtype_hint
/// @throws Error ("<where>: ...") unless it is a whole .npy file, or of a type that is refused
NpyHeader parse_npy(std::span<const std::byte> head, std::uint64_t size, std::string_view where,
                    std::optional<DType> hint);

/// The array in C order and little-endian; a view of `file` where it is both already.
Tensor read_npy(const NpyHeader&, std::span<const std::byte> file, std::shared_ptr<const void> owner,
                std::string_view where);

}  // namespace assay
