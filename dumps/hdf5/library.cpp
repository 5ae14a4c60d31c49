#include "assay/dumps/hdf5/library.h"

namespace assay {
namespace {

std::mutex& hdf5_mutex() {
  static std::mutex instance;
  return instance;
}

}  // namespace

Hdf5Library::Hdf5Library() : lock_(hdf5_mutex()) {
  static const bool ready = [] {
    // Every id is closed by its owner. A file whose disk was full cannot be, and trying again at exit ends in
    // a segmentation fault (1.10.8).
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);
    return true;
  }();
  static_cast<void>(ready);
}

}  // namespace assay
