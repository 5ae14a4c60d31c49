#include "assay/dumps/io/zip.h"
#include "assay/dumps/npy.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A header is at most 64 KiB; listing a compressed archive still inflates its members, as their headers lie
// inside.
class NpzDump : public Dump {
 public:
  NpzDump(std::shared_ptr<const MappedFile> file, const OpenOptions& options)
      : archive_(std::move(file)), hint_(options.dtype_hint) {
    path = archive_.file().path();
    format = "npz";
    for (const ZipArchive::Member& member : archive_.members()) {
      if (member.name.ends_with('/') && member.size == 0) continue;  // a folder
      const std::string head(text_of(archive_.read_head(member, npy_magic.size()).bytes));
      if (head != npy_magic && !member.name.ends_with(".npy")) {
        left_out.push_back(where(member) + ": not an array");
        continue;
      }
      const NpyHeader header = header_of(member);
      if (!header.refused.empty()) {
        left_out.push_back(where(member) + ": " + header.refused);
        continue;
      }
      std::string name = member.name;
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      records.push_back(plain_record(std::move(name), listed_dtype(header), header.shape, records.size()));
      members_.push_back(&member);
    }
  }
  Tensor read(std::size_t index) const override {
    const ZipArchive::Member& member = *members_.at(index);
    const ZipArchive::Content content = archive_.read(member);
    return read_npy(header_of(member), content.bytes, content.owner, where(member));
  }
  std::string location(std::size_t index) const override { return where(*members_.at(index)); }

 private:
  NpyHeader header_of(const ZipArchive::Member& member) const {
    return parse_npy(archive_.read_head(member, npy_head).bytes, member.size, where(member), hint_);
  }
  std::string where(const ZipArchive::Member& member) const { return path.string() + ": " + member.name; }

  ZipArchive archive_;
  std::optional<DType> hint_;
  std::vector<const ZipArchive::Member*> members_;
};

}  // namespace

bool fits_npz(const std::shared_ptr<const MappedFile>& file) {
  return is_zip(*file);
}

std::unique_ptr<Dump> open_npz(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<NpzDump>(std::move(file), options);
}

}  // namespace assay
