#include "assay/compare/causes/values/addends_by_place.h"

#include <algorithm>
#include <map>
#include <utility>

namespace assay {
namespace {

// The coordinates over which a tensor is a sum.
using Place = std::vector<std::int64_t>;
Place place_in_sum(const Record& r) {
  Place place;
  for (std::size_t d = 0; d < r.placements.size() && d < r.mesh_coordinate.size(); ++d) {
    if (r.placements[d].kind == Placement::Kind::partial) place.push_back(r.mesh_coordinate[d]);
  }
  return place;
}

// A dump whose sums over ranks have the addends of one place only.
class OneAddend : public Dump {
 public:
  OneAddend(const Dump& of, Place place) : of_(of), place_(std::move(place)) {
    path = of.path;
    world_size = of.world_size;
    mesh = of.mesh;
    records = of.records;
  }
  Tensor read(std::size_t index) const override {
    Tensor t = of_.read(index);
    return place_in_sum(records[index]) == place_ ? t : Tensor(t.dtype(), t.shape());
  }
  Sketch read_sketch(std::size_t index) const override {
    Sketch s = of_.read_sketch(index);
    return place_in_sum(records[index]) == place_ ? s : Sketch::nothing(s.shape, s.spec);
  }
  std::string location(std::size_t index) const override { return of_.location(index); }

 private:
  const Dump& of_;
  Place place_;
};

}  // namespace

std::vector<Addend> addends_by_place(const Dump& dump, const LogicalTensor& sum,
                                     const std::function<std::vector<double>(const Dump&)>& values_in) {
  std::map<Place, std::set<int>> ranks;
  for (const std::size_t i : sum.records) ranks[place_in_sum(dump.records[i])].insert(dump.records[i].rank);
  std::vector<Addend> all;
  for (const auto& [place, own] : ranks) {
    Addend addend{{}, values_in(OneAddend(dump, place))};
    for (const Record& r : dump.records) {
      if (r.id.step == sum.id.step && r.id.micro_batch >= 0 && own.contains(r.rank))
        addend.micro_batches.insert(r.id.micro_batch);
    }
    all.push_back(std::move(addend));
  }
  return all;
}

}  // namespace assay
