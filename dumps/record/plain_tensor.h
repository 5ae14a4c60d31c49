#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "assay/dumps/record/dump.h"

namespace assay {

/// What a plain file (npy, safetensors, HDF5), which has nothing but names, calls a tensor: its module and,
/// behind the last '@', whatever else its identity says:
/// "layers.1.norm@step=3,phase=backward,slot=grad,arg=weight". Fields that keep their default are left out,
/// so that the name of a plain tensor stays as it is.
std::string plain_name(const Identity&);
/// The inverse: any other name is a module. No two identities share a name.
Identity parse_plain_name(std::string_view name);

/// A whole tensor that goes into a plain file. The writers call `read` for one at a time.
struct PlainTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::function<Tensor()> read;
};

/// Throws Error ("<where>: ..") unless the parts of the name between '/' can name files and groups.
void check_path_name(std::string_view name, std::string_view where);

}  // namespace assay
