#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <string_view>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"

namespace assay {

inline void read_all(const std::filesystem::path& path, const OpenOptions& options = {}) {
  const auto dump = open_dump(path, options);
  for (std::size_t i = 0; i < dump->records.size(); ++i) dump->read(i);
}

/// An Error that names the file and holds `part`.
inline void expect_error(const std::filesystem::path& path, std::string_view part,
                         const OpenOptions& options = {}) {
  EXPECT_THAT([&] { read_all(path, options); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr(part), testing::HasSubstr(path.filename().string()))));
}

}  // namespace assay
