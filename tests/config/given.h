#pragma once

#include <string>

#include "../dumps/scratch.h"
#include "assay/config/compare.h"
#include "assay/config/side.h"

namespace assay::config {

inline std::string sample(const std::string& name) {
  return std::string(ASSAY_TEST_DATA) + "/config/" + name;
}

inline const Row* find_row(const Comparison& c, std::string_view key) {
  for (const Row& row : c.rows) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

}  // namespace assay::config
