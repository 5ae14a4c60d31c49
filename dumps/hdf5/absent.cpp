// What there is of HDF5 in a build without its library (ASSAY_HDF5=OFF, the wheel): a sentence.
#include "assay/dumps/hdf5/worker.h"
#include "assay/dumps/hdf5/writer.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "HDF5 is not in this build of assay; expected npz or safetensors, or a build from source, which has "
      "it");
}

}  // namespace

int hdf5_worker_program() {
  refuse();
}

Hdf5Writer::Hdf5Writer(std::filesystem::path) {
  refuse();
}
Hdf5Writer::~Hdf5Writer() = default;

std::uint64_t Hdf5Writer::write(const std::string&, const Tensor&) {
  refuse();
}
void Hdf5Writer::write_text(const std::string&, std::string_view) {
  refuse();
}
void Hdf5Writer::close() {}

void write_hdf5(const std::filesystem::path&, std::span<const PlainTensor>) {
  refuse();
}

}  // namespace assay
