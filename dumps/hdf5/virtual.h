#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "assay/dumps/hdf5/hdf5.h"
#include "assay/dumps/io/pages.h"

namespace assay {

/// What one virtual dataset is made of: the datasets that it maps, in files of the same folder, which may be
/// virtual themselves. The HDF5 library would open any path and read what is missing as fill values; here a
/// source must exist, and each is read once. It lives as long as one read.
class Hdf5Sources {
 public:
  /// Throws Error if a source is missing, in another folder, of another type, or maps the dataset itself.
  Pages assemble(const Hdf5File&, const Hdf5File::Dataset&);

 private:
  struct Source {
    std::string file, dataset;
  };
  Tensor read(const Hdf5File&, const Source&, const std::string& where);

  std::map<std::string, std::unique_ptr<Hdf5File>> files_;
  /// By file and name; nothing while it is being read.
  std::map<std::pair<std::string, std::string>, std::optional<Tensor>> tensors_;
};

}  // namespace assay
