#include "assay/dumps/readers.h"
#include "assay/golden/error.h"
namespace assay {
std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& f, const OpenOptions&) {
  throw Error("{}: msprobe is not read yet", f.string());
}
}  // namespace assay
