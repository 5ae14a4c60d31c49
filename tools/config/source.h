#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "assay/config/framework.h"
#include "assay/config/value.h"

namespace assay::config {

/// One value of a file, with the path that leads to it: "optimizer.betas[0]".
struct Entry {
  std::string path;
  Value value;
  std::string place;  ///< "train.sh:12", "config.json: rope_parameters.rope_theta"
};

/// What one file states.
struct Source {
  Framework framework = Framework::huggingface;
  std::string file;
  std::vector<Entry> entries;  ///< each path once
  bool complete = false;       ///< a list of all options with their values, stated or not

  const Entry* find(std::string_view path) const;
};

}  // namespace assay::config
