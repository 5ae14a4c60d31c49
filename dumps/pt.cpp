#include "assay/dumps/readers.h"
#include "assay/golden/error.h"
namespace assay {
std::unique_ptr<Dump> open_pt(std::shared_ptr<const MappedFile> f, const OpenOptions&) {
  throw Error("{}: .pt is not read yet", f->path().string());
}
}  // namespace assay
