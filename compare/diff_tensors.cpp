#include <set>

#include "assay/compare/diff.h"
#include "assay/dumps/record/plain_tensor.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Tensors in memory as a dump: each is whole, on one rank, in the order in which they are given.
class TensorsInMemory : public Dump {
 public:
  TensorsInMemory(std::string_view side, std::span<const NamedSource> tensors) : tensors_(tensors) {
    path = std::string(side);
    format = "memory";
    std::set<Identity> known;
    for (const NamedSource& named : tensors) {
      Record record;
      record.id = parse_plain_name(named.name);
      record.seq = static_cast<std::int64_t>(records.size());
      record.dtype = named.tensor.dtype();
      record.shape = record.global_shape = named.tensor.shape();
      if (!known.insert(record.id).second)
        throw Error("{}: two tensors are called '{}'; expected a name for each", side, named.name);
      records.push_back(std::move(record));
    }
  }
  Tensor read(std::size_t index) const override { return tensors_[index].tensor.whole(); }
  TensorSource source(std::size_t index) const override { return tensors_[index].tensor; }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + tensors_[index].name;
  }

 private:
  const std::span<const NamedSource> tensors_;
};

}  // namespace

Report diff(std::span<const NamedSource> actual, std::span<const NamedSource> reference,
            const DiffOptions& options) {
  return diff(TensorsInMemory("actual", actual), TensorsInMemory("reference", reference), options);
}

}  // namespace assay
