#pragma once

#include "assay/dumps/io/zip.h"
#include "assay/dumps/torch/pickle.h"
#include "assay/dumps/torch/view.h"

namespace assay {

/// A zip archive of torch.save: a pickle, and a member data/<key> for each storage. A checksum of 0 means
/// that torch was told to compute none.
class TorchArchive : public TorchStorages {
 public:
  /// Throws Error if there is not exactly one pickle.
  explicit TorchArchive(std::shared_ptr<const MappedFile>);
  /// The same for an archive that is `length` bytes at `offset` of the file.
  TorchArchive(std::shared_ptr<const MappedFile>, std::uint64_t offset, std::uint64_t length);

  std::optional<std::uint64_t> size(std::string_view key) const override;
  ZipArchive::Content read(std::string_view key) const override;
  /// The saved value. It points into this object.
  Pickle pickle() const;

 private:
  void find_parts();
  const ZipArchive::Member* member(std::string_view key) const;

  ZipArchive archive_;
  std::string prefix_;
  ZipArchive::Content pickle_;
};

}  // namespace assay
