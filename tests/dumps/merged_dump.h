#pragma once

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"

namespace assay {

inline constexpr Placement replicate{Placement::Kind::replicate, 0}, partial{Placement::Kind::partial, 0};
constexpr Placement shard(int dim) {
  return {Placement::Kind::shard, dim};
}

/// A dump in memory. Ranks are the row-major numbers of the mesh.
class Fake : public Dump {
 public:
  explicit Fake(Mesh m) {
    mesh = std::move(m);
    world_size = static_cast<int>(element_count(mesh.shape));
  }
  void add(int rank, std::vector<Placement> placements, Shape global, Shape shape, std::vector<double> values,
           std::optional<Shape> offsets = {}, DType dtype = DType::float32) {
    Record record;
    record.id = {0, -1, Phase::backward, "layer", "grad", "weight", 0};
    record.rank = rank;
    record.dtype = dtype;
    record.shape = shape;
    record.global_shape = std::move(global);
    record.placements = std::move(placements);
    record.mesh_coordinate = unravel(rank, mesh.shape);
    record.offsets = std::move(offsets);
    records.push_back(std::move(record));
    tensors_.push_back(Tensor::from_values(dtype, std::move(shape), values));
  }
  Tensor read(std::size_t index) const override { return tensors_.at(index); }
  std::string location(std::size_t index) const override { return std::to_string(index); }
  Merged merged() const {
    const auto tensors = logical_tensors(*this);
    EXPECT_EQ(tensors.size(), 1U);
    return merge(*this, tensors[0]);
  }

 private:
  std::vector<Tensor> tensors_;
};

inline void expect_error(const Fake& dump, std::string_view part) {
  EXPECT_THAT([&] { dump.merged(); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr(part), testing::HasSubstr("layer grad weight"))));
}

}  // namespace assay
