#include <algorithm>

#include "assay/dumps/record/readers.h"
#include "assay/dumps/torch/archive.h"
#include "assay/dumps/torch/pt_stream.h"
#include "assay/dumps/torch/tree.h"

namespace assay {

bool fits_pt(const std::shared_ptr<const MappedFile>& file) {
  if (is_pt_stream(*file) || is_pt_tar(*file)) return true;
  if (!is_zip(*file)) return false;
  const ZipArchive archive(file);
  const auto is_pickle = [](const auto& member) { return member.name.ends_with("/data.pkl"); };
  return std::any_of(archive.members().begin(), archive.members().end(), is_pickle);
}

std::unique_ptr<Dump> open_pt(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  if (!is_zip(*file)) return open_pt_stream(std::move(file));
  auto archive = std::make_unique<TorchArchive>(file);
  const Pickle pickle = archive->pickle();
  return make_torch_dump(file->path(), std::move(archive), pickle);
}

}  // namespace assay
