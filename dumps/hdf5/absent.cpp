// What there is of HDF5 in a build without its library (ASSAY_HDF5=OFF): a sentence.
#include "assay/dumps/hdf5/process.h"
#include "assay/golden/error.h"

int assay::hdf5_worker_program(const std::string& where) {
  throw Error(
      "{}: HDF5 is not in this build of assay; expected npz or safetensors, or a build with -DASSAY_HDF5=ON",
      where);
}
