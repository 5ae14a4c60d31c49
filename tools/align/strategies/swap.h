#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "assay/align/tape/tape.h"

namespace assay::align {

/// The activations of a micro-batch while they are not on the device.
class SwapSpace {
 public:
  /// Throws Error if there is no room.
  void take(Tape&);
  void give_back(Tape&);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Swapped {
    std::size_t id;
    DType dtype;
    Shape shape;
    std::size_t bytes;
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<Swapped> tensors_;
};

}  // namespace assay::align
