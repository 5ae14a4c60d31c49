#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "assay/dumps/layout/layout.h"
#include "assay/dumps/layout/merged_sketch.h"

namespace assay {

/// A dump of which only sketches were recorded, where a tensor is larger than they are.
class Sketched : public Dump {
 public:
  explicit Sketched(const Dump& of, const SketchSpec& spec = {}) : of_(of) {
    path = of.path.string() + ".sketch";
    format = "sketched";
    world_size = of.world_size;
    mesh = of.mesh;
    records = of.records;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const Shape& whole = shape_of(records[i]);
      sketches_.emplace_back();
      if (!is_sketched(whole, spec)) continue;
      sketches_.back() = sketch_of_record(of, i, spec_for(whole, spec));
      records[i].sketch = std::make_shared<const Sketch>(sketches_.back());
      records[i].has_bits = false;
    }
  }
  Tensor read(std::size_t index) const override { return of_.read(index); }
  Sketch read_sketch(std::size_t index) const override { return sketches_.at(index); }
  std::string location(std::size_t index) const override { return of_.location(index); }
  Sketch& sketch(std::size_t index) { return sketches_.at(index); }

 private:
  const Dump& of_;
  std::vector<Sketch> sketches_;
};

}  // namespace assay
