#include <fmt/core.h>

#include <algorithm>

#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

/// DeepSpeed's universal checkpoint: zero/<parameter>/{fp32,exp_avg,exp_avg_sq,step}.pt, each a tensor or a
/// dict with the tensor under "param" and, beside it, how it had been cut.
class UniversalDump : public Dump {
 public:
  UniversalDump(const fs::path& folder, const OpenOptions& options) {
    path = folder;
    format = "deepspeed-universal";
    for (const fs::path& parameter : entries(folder / "zero", fs::file_type::directory)) {
      for (const fs::path& file : entries(parameter, fs::file_type::regular)) {
        if (file.extension() == ".pt") add(file, parameter.filename().string(), options);
      }
    }
    if (numbers_ != 0) {
      notes.push_back(fmt::format("{}: {} files hold a plain number (the step), no tensor; left out",
                                  path.string(), numbers_));
    }
    for (const fs::path& file : entries(folder, fs::file_type::regular)) {
      if (file.extension() == ".pt")
        left_out.push_back(fmt::format("{}: lies beside zero/; to be opened by itself", file.string()));
    }
  }
  Tensor read(std::size_t index) const override {
    const auto [file, inner] = places_.at(index);
    return files_[file]->read(inner);
  }
  std::string location(std::size_t index) const override {
    const auto [file, inner] = places_.at(index);
    return files_[file]->path.string();
  }

 private:
  std::vector<fs::path> entries(const fs::path& folder, fs::file_type type) {
    std::vector<fs::path> result;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.is_symlink()) {
        left_out.push_back(fmt::format("{}: a symbolic link, not followed", entry.path().string()));
      } else if (entry.symlink_status().type() == type) {
        result.push_back(entry.path());
      }
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  void add(const fs::path& path_of_file, const std::string& parameter, const OpenOptions& options) {
    const auto file = MappedFile::open(path_of_file);
    if (!fits_pt(file)) throw Error("{}: not a .pt file", path_of_file.string());
    auto dump = open_pt(file, options);
    const std::string stem = path_of_file.stem().string();
    for (std::size_t i = 0; i < dump->records.size(); ++i) {
      Record record = dump->records[i];
      const std::string inner = record.id.module == "param" ? "" : record.id.module;
      record.id = {};
      record.id.module = parameter;
      record.id.slot = stem == "fp32" ? "param" : "state";
      if (stem != "fp32") record.id.arg = stem;
      if (!inner.empty()) record.id.arg += (record.id.arg.empty() ? "" : ".") + inner;
      record.seq = static_cast<std::int64_t>(records.size());
      records.push_back(std::move(record));
      places_.emplace_back(files_.size(), i);
    }
    if (dump->records.empty() && dump->left_out.empty()) ++numbers_;
    left_out.insert(left_out.end(), dump->left_out.begin(), dump->left_out.end());
    files_.push_back(std::move(dump));
  }

  std::vector<std::unique_ptr<Dump>> files_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;
  std::size_t numbers_ = 0;
};

bool is_universal(const fs::path& folder) {
  if (!is_directory(folder / "zero")) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "zero")) {
    if (entry.is_directory() && exists(entry.path() / "fp32.pt")) return true;
  }
  return false;
}

// [bf16_|fp16_]zero_pp_rank_<n>_mp_rank_<m>_optim_states.pt
bool has_zero_shards(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find("zero_pp_rank_") != std::string::npos && name.ends_with("_optim_states.pt")) return true;
  }
  return false;
}

}  // namespace

bool fits_deepspeed(const fs::path& folder) {
  return is_universal(folder) || has_zero_shards(folder);
}

std::unique_ptr<Dump> open_deepspeed(const fs::path& folder, const OpenOptions& options) {
  if (!is_universal(folder)) {
    throw Error(
        "{}: DeepSpeed's ZeRO shards, which hold flat pieces of parameters: convert them to a universal "
        "checkpoint with deepspeed's ds_to_universal.py",
        folder.string());
  }
  return std::make_unique<UniversalDump>(folder, options);
}

}  // namespace assay
