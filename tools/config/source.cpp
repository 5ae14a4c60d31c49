#include "assay/config/source.h"

#include <algorithm>

namespace assay::config {

const Entry* Source::find(std::string_view path) const {
  const auto found = std::ranges::find(entries, path, &Entry::path);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace assay::config
