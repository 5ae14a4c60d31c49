#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Returns the name of a tensor in a plain file (npy, safetensors, HDF5), which has nothing but names: the
/// module and, behind the last '@', the other fields of the identity:
/// "layers.1.norm@step=3,phase=backward,slot=grad,arg=weight". Fields with default values are left out, so
/// that the name of a plain tensor stays unchanged.
std::string plain_name(const Identity&);
/// Parses a name of plain_name; any other name is a module. Two identities never share a name.
Identity parse_plain_name(std::string_view name);

/// A whole tensor for a plain file. The writers call `read` for one tensor at a time.
struct PlainTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::function<Tensor()> read;
};

/// Throws Error ("<where>: ..") if a part of the name between '/' cannot name a file or a group.
void check_path_name(std::string_view name, std::string_view where);

}  // namespace assay
