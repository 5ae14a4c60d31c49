#include "assay/compare/causes/values/known_sizes.h"

#include <algorithm>

namespace assay {
namespace {

void add(std::vector<KnownSize>& sizes, KnownSize size) {
  const bool known = std::ranges::any_of(
      sizes, [&](const KnownSize& s) { return s.name == size.name && s.size == size.size; });
  if (size.size > 1 && !known) sizes.push_back(std::move(size));
}

}  // namespace

std::vector<KnownSize> known_sizes(const Sides& sides) {
  std::vector<KnownSize> sizes;
  for (const Dump* dump : {&sides.actual, &sides.reference}) {
    for (std::size_t m = 0; m < dump->mesh.dims.size() && m < dump->mesh.shape.size(); ++m)
      add(sizes, {dump->mesh.dims[m], dump->mesh.shape[m]});
    add(sizes, {"ranks", dump->world_size});
  }
  std::int64_t last = -1;
  for (const LogicalTensor& t : sides.reference_tensors) last = std::max(last, t.id.micro_batch);
  add(sizes, {std::string(micro_batches), last + 1});
  for (const KnownSize& size : sides.sizes) add(sizes, size);
  return sizes;
}

}  // namespace assay
