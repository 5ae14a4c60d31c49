#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "assay/dumps/hdf5/hdf5.h"
#include "assay/dumps/io/pages.h"

namespace assay {

/// The sources of one virtual dataset: the datasets that it maps, in files of the same folder, which may be
/// virtual themselves. The HDF5 library would open any path and read missing data as fill values; here a
/// source must exist, and each is read once. The object lives as long as one read.
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
  /// The key is the file and the name; nothing while the tensor is being read.
  std::map<std::pair<std::string, std::string>, std::optional<Tensor>> tensors_;
};

}  // namespace assay
