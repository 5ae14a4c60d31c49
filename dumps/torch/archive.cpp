#include "assay/dumps/torch/archive.h"

#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::string_view pickle_name = "data.pkl";

const ZipArchive::Member& find_pickle(const ZipArchive& archive) {
  const ZipArchive::Member* found = nullptr;
  for (const ZipArchive::Member& member : archive.members()) {
    if (!member.name.ends_with("/data.pkl")) continue;
    if (found != nullptr)
      throw Error("{}: has two pickles, {} and {}", archive.where(), found->name, member.name);
    found = &member;
  }
  if (found == nullptr) throw Error("{}: has no member data.pkl: it is not a .pt file", archive.where());
  return *found;
}

}  // namespace

TorchArchive::TorchArchive(std::shared_ptr<const MappedFile> file) : archive_(std::move(file)) {
  find_parts();
}

TorchArchive::TorchArchive(std::shared_ptr<const MappedFile> file, std::uint64_t offset, std::uint64_t length)
    : archive_(std::move(file), offset, length) {
  find_parts();
}

void TorchArchive::find_parts() {
  const ZipArchive::Member& found = find_pickle(archive_);
  prefix_ = found.name.substr(0, found.name.size() - pickle_name.size());
  if (const auto* order = archive_.find(prefix_ + "byteorder")) {
    const auto content = archive_.read(*order, true);
    const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
    if (text != "little" && text != "big")
      throw Error("{}: byteorder is '{}', expected little or big", archive_.where(), text);
    big_endian = text == "big";
  }
  pickle_ = archive_.read(found, true);
}

Pickle TorchArchive::pickle() const {
  Pickle pickle(pickle_.bytes, archive_.where() + ": " + prefix_ + std::string(pickle_name));
  if (pickle.size() != pickle_.bytes.size()) {
    throw Error("{}: {}{} has {} bytes, but its pickle ends at {}", archive_.where(), prefix_, pickle_name,
                pickle_.bytes.size(), pickle.size());
  }
  return pickle;
}

const ZipArchive::Member* TorchArchive::member(std::string_view key) const {
  return archive_.find(prefix_ + "data/" + std::string(key));
}

std::optional<std::uint64_t> TorchArchive::size(std::string_view key) const {
  const ZipArchive::Member* found = member(key);
  return found == nullptr ? std::nullopt : std::optional(found->size);
}

ZipArchive::Content TorchArchive::read(std::string_view key) const {
  return archive_.read(*member(key), true);
}

}  // namespace assay
