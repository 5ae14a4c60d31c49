#include "assay/dumps/torch/integrity.h"

#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/json.h"
#include "assay/golden/error.h"

namespace assay {

Integrity::Integrity(const std::filesystem::path& folder) {
  if (!exists(folder / "integrity.json")) return;
  const auto file = MappedFile::open_in(folder, "integrity.json");
  const std::string where = file->path().string();
  const Json json = parse_json(file->text(), where);
  const std::string& algorithm = json.at("algorithm", where).string(where);
  if (algorithm != "sha256") throw Error("{}: the algorithm is '{}', expected sha256", where, algorithm);
  for (const auto& [name, digest] : json.at("files", where).object(where))
    expected_[name] = digest.string(where);
}

void Integrity::verify(const MappedFile& file) const {
  const std::lock_guard lock(mutex_);
  const auto expected = expected_.find(file.path().filename().string());
  if (expected == expected_.end()) return;
  const std::string found = sha256(file.bytes());
  if (found != expected->second) {
    throw Error("{}: has the SHA-256 {}, integrity.json says {}: the file is damaged or another",
                file.path().string(), found, expected->second);
  }
  expected_.erase(expected);
}

}  // namespace assay
