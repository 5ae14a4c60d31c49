#include "library.h"

namespace assay {

void set_up_hdf5() {
  // Every id is closed by its owner. A file whose disk was full cannot be, and trying again at exit ends in
  // a segmentation fault (1.10.8).
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

}  // namespace assay
