#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/dumps/torch/archive.h"
#include "assay/dumps/torch/dcp_metadata.h"
#include "assay/dumps/torch/integrity.h"
#include "assay/dumps/torch/tree.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

/// The rank in "__<rank>_<n>.distcp"; 0 in any other name.
int rank_in(std::string_view file) {
  int rank = 0;
  if (!file.starts_with("__")) return 0;
  const auto [end, problem] = std::from_chars(file.data() + 2, file.data() + file.size(), rank);
  const bool is_rank = problem == std::errc() && end != file.data() + file.size() && *end == '_';
  return is_rank && rank >= 0 && rank < max_ranks ? rank : 0;
}

/// A PyTorch distributed checkpoint: .metadata says which part of which tensor lies where in the *.distcp
/// files, each part as an archive of torch.save. Megatron adds metadata.json, common.pt and integrity.json.
class DcpDump : public Dump {
 public:
  DcpDump(const std::filesystem::path& folder, const OpenOptions& options) : integrity_(folder) {
    path = folder;
    format = "dcp";
    check_backend();
    const auto file = MappedFile::open_in(folder, ".metadata");
    integrity_.verify(*file);
    const std::string where = file->path().string();
    const Pickle pickle(file->bytes(), where);
    if (pickle.size() != file->bytes().size()) {
      throw Error("{}: has {} bytes, but its pickle ends at {}", where, file->bytes().size(), pickle.size());
    }
    DcpMetadata metadata = read_dcp_metadata(pickle, where);
    chunks_ = std::move(metadata.chunks);
    notes = std::move(metadata.notes);
    left_out = std::move(metadata.left_out);
    for (const DcpChunk& chunk : chunks_) add(chunk);
    check_overlap();
    add_common(options);
  }
  Tensor read(std::size_t index) const override {
    if (index >= chunks_.size()) return common_->read(index - chunks_.size());
    const DcpChunk& chunk = chunks_[index];
    const std::shared_ptr<const MappedFile>& file = files_.at(chunk.file);
    integrity_.verify(*file);
    const TorchArchive archive(file, chunk.offset, chunk.length);
    const TorchTree tree = read_torch_tree(archive.pickle(), archive, location(index));
    if (tree.views.size() != 1 || tree.views[0].dtype != chunk.dtype || tree.views[0].shape != chunk.shape) {
      throw Error("{}: holds {}, expected {} of {}, as .metadata says", location(index),
                  tree.views.size() != 1
                      ? fmt::format("{} tensors", tree.views.size())
                      : fmt::format("{} of {}", name(tree.views[0].dtype), to_string(tree.views[0].shape)),
                  name(chunk.dtype), to_string(chunk.shape));
    }
    return read_torch_view(tree.views[0], archive, location(index));
  }
  std::string location(std::size_t index) const override {
    if (index >= chunks_.size()) return common_->location(index - chunks_.size());
    const DcpChunk& chunk = chunks_[index];
    return fmt::format("{}: '{}' at {}", (path / chunk.file).string(), chunk.name, to_string(chunk.offsets));
  }

 private:
  void check_backend() const {
    if (!exists(path / "metadata.json")) return;
    const auto file = MappedFile::open_in(path, "metadata.json");
    integrity_.verify(*file);
    const std::string where = file->path().string();
    const Json json = parse_json(file->text(), where);
    const Json* backend = json.find("sharded_backend");
    if (backend != nullptr && backend->string(where) != "torch_dist") {
      throw Error(
          "{}: the checkpoint's format is '{}', expected torch_dist: load it in Megatron and save it so",
          where, backend->string(where));
    }
  }

  void add(const DcpChunk& chunk) {
    auto& file = files_[chunk.file];
    if (file == nullptr) file = MappedFile::open_in(path, chunk.file);
    file->range(chunk.offset, chunk.length, fmt::format("'{}' at {}", chunk.name, to_string(chunk.offsets)));
    Record record = plain_record(chunk.name, chunk.dtype, chunk.shape, records.size());
    record.global_shape = chunk.global_shape;
    record.offsets = chunk.offsets;
    record.rank = rank_in(chunk.file);
    world_size = std::max(world_size, record.rank + 1);
    records.push_back(std::move(record));
  }

  // Two tensors in one place: one of them is not what it says.
  void check_overlap() const {
    std::vector<const DcpChunk*> sorted;
    for (const DcpChunk& chunk : chunks_) sorted.push_back(&chunk);
    std::sort(sorted.begin(), sorted.end(), [](const DcpChunk* a, const DcpChunk* b) {
      return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
    });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const DcpChunk &before = *sorted[i - 1], &after = *sorted[i];
      if (before.file == after.file && before.length > after.offset - before.offset) {
        throw Error("{}: '{}' at {} and '{}' at {} overlap in {}", path.string(), before.name,
                    to_string(before.offsets), after.name, to_string(after.offsets), after.file);
      }
    }
  }

  // What is not sharded, Megatron keeps in a file of its own.
  void add_common(const OpenOptions& options) {
    if (!exists(path / "common.pt")) return;
    const auto file = MappedFile::open_in(path, "common.pt");
    integrity_.verify(*file);
    common_ = open_pt(file, options);
    for (Record record : common_->records) {
      record.id.module = "common/" + record.id.module;
      record.seq = static_cast<std::int64_t>(records.size());
      records.push_back(std::move(record));
    }
    notes.insert(notes.end(), common_->notes.begin(), common_->notes.end());
    left_out.insert(left_out.end(), common_->left_out.begin(), common_->left_out.end());
  }

  Integrity integrity_;
  std::vector<DcpChunk> chunks_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  std::unique_ptr<Dump> common_;
};

}  // namespace

bool fits_dcp(const std::filesystem::path& folder) {
  return exists(folder / ".metadata");
}

std::unique_ptr<Dump> open_dcp(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<DcpDump>(folder, options);
}

}  // namespace assay
