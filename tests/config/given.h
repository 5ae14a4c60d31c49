#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "assay/config/compare.h"
#include "assay/config/side.h"

namespace assay::config {

/// A folder for the files of one test.
class GivenFolder {
 public:
  GivenFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "assay-config-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~GivenFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  GivenFolder(const GivenFolder&) = delete;
  GivenFolder& operator=(const GivenFolder&) = delete;

  std::string file(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

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
