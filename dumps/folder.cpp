#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr int max_depth = 16;

std::vector<std::string> extensions() {
  std::vector<std::string> all;
  for (const FileFormat& format : file_formats()) {
    for (const std::string_view extension : format.extensions) {
      if (!extension.empty()) all.emplace_back(extension);
    }
  }
  return all;
}

// "step3_rank0" without the rank, where it names this one: "step3_rank". A file of another rank has the same.
std::string without_rank(const std::string& stem, int rank) {
  constexpr std::string_view word = "rank";
  const std::size_t found = stem.rfind(word);
  const std::size_t digits =
      found == std::string::npos ? found : stem.find_first_not_of("_-", found + word.size());
  if (digits == std::string::npos) return stem;
  int number = -1;
  const char* const last = stem.data() + stem.size();
  const auto [end, problem] = std::from_chars(stem.data() + digits, last, number);
  if (problem != std::errc() || number != rank) return stem;
  return stem.substr(0, found + word.size()) + std::string(end, last);
}

class FolderDump : public Dump {
 public:
  FolderDump(const std::filesystem::path& folder, const OpenOptions& options) {
    path = folder;
    format = "folder";
    std::vector<std::string> known = extensions();
    if (options.raw) known.emplace_back(".raw");
    for (const std::filesystem::path& file : list(folder)) {
      const auto extension = file.extension().string();
      if (file.filename() == ".metadata") {
        left_out.push_back(
            fmt::format("{}: a distributed checkpoint, to be opened by itself", file.parent_path().string()));
      }
      if (std::find(known.begin(), known.end(), extension) == known.end()) continue;
      try {
        auto dump = open_file(MappedFile::open(file), options);
        if (dump == nullptr) {
          left_out.push_back(fmt::format("{}: no known format", file.string()));
        } else {
          add(std::move(dump), file.lexically_relative(folder).replace_extension().generic_string());
        }
      } catch (const Error& problem) {  // the other files go on
        unreadable.emplace_back(problem.what());
      }
    }
    if (files_.empty() && unreadable.size() == 1) throw Error("{}", unreadable.front());
    if (files_.empty()) {
      throw Error(
          "{}: the folder has no readable file, expected files with the extension {}, an assay-dump or an "
          "msprobe dump",
          folder.string(), fmt::join(known, ", "));
    }
  }
  Tensor read(std::size_t index) const override {
    const auto [file, inner] = places_.at(index);
    return files_[file]->read(inner);
  }
  TensorSource source(std::size_t index) const override {
    const auto [file, inner] = places_.at(index);
    return files_[file]->source(inner);
  }
  std::string location(std::size_t index) const override {
    const auto [file, inner] = places_.at(index);
    return files_[file]->location(inner);
  }

 private:
  std::vector<std::filesystem::path> list(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    // Links out of the folder, and links to folders (which may form a circle), are not followed.
    auto entry = std::filesystem::recursive_directory_iterator(folder);
    for (; entry != std::filesystem::recursive_directory_iterator(); ++entry) {
      if (entry->is_symlink()) {
        left_out.push_back(fmt::format("{}: a symbolic link, not followed", entry->path().string()));
      } else if (entry->is_regular_file()) {
        files.push_back(entry->path());
      } else if (!entry->is_directory()) {
        left_out.push_back(fmt::format("{}: not a regular file", entry->path().string()));
      } else if (entry.depth() >= max_depth) {
        throw Error("{}: folders nested deeper than {}", entry->path().string(), max_depth);
      }
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // A tensor without a name of its own has that of its file.
  void add(std::unique_ptr<Dump> dump, const std::string& stem) {
    if (mesh.shape.empty()) mesh = dump->mesh;
    const bool same_mesh = mesh.shape == dump->mesh.shape && mesh.dims == dump->mesh.dims;
    for (std::size_t i = 0; i < dump->records.size(); ++i) {
      Record record = dump->records[i];
      if (!record.placements.empty() && !same_mesh) {
        left_out.push_back(
            fmt::format("{}: is cut over another mesh than the files before it", dump->location(i)));
        continue;
      }
      // Parts of one tensor have one name, whatever rank's file they lie in.
      const std::string file = record.placements.empty() ? stem : without_rank(stem, record.rank);
      const std::string inner = record.id.module;
      record.id.module = inner.empty() ? file : file + "/" + inner;
      world_size = std::max(world_size, record.rank + 1);
      record.seq = static_cast<std::int64_t>(records.size());
      records.push_back(std::move(record));
      places_.emplace_back(files_.size(), i);
    }
    notes.insert(notes.end(), dump->notes.begin(), dump->notes.end());
    left_out.insert(left_out.end(), dump->left_out.begin(), dump->left_out.end());
    unreadable.insert(unreadable.end(), dump->unreadable.begin(), dump->unreadable.end());
    files_.push_back(std::move(dump));
  }

  std::vector<std::unique_ptr<Dump>> files_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;
};

}  // namespace

std::unique_ptr<Dump> open_folder(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<FolderDump>(folder, options);
}

}  // namespace assay
