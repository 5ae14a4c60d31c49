#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "assay/dumps/msprobe/names.h"
#include "assay/dumps/msprobe/rank.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

bool is_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(std::filesystem::symlink_status(path));
}

// With or without JSON, which a run that was killed may not have written.
bool is_rank_folder(const std::filesystem::path& folder) {
  if (has_msprobe_json(folder) || exists(std::filesystem::symlink_status(folder / msprobe_tensors)))
    return true;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (parse_saved_variable(entry.path().filename().string())) return true;
  }
  return false;
}

bool names_rank(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with("rank") || is_msprobe_process(name);
}

bool is_step_folder(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (names_rank(entry.path()) && is_folder(entry.path()) && is_rank_folder(entry.path())) return true;
  }
  return false;
}

bool holds_steps(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (msprobe_step(entry.path().filename().string()) && is_folder(entry.path()) &&
        is_step_folder(entry.path()))
      return true;
  }
  return false;
}

// With mindspore.jit the tree stands there twice: for what ran as a graph and for what did not.
std::vector<std::filesystem::path> trees_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> trees;
  for (const std::string_view name : {"graph", "pynative"}) {
    if (is_folder(folder / name) && holds_steps(folder / name)) trees.push_back(folder / name);
  }
  return trees;
}

class MsprobeDump : public Dump {
 public:
  MsprobeDump(const std::filesystem::path& folder, const OpenOptions& options) : options_(options) {
    path = folder;
    format = "msprobe";
    has_steps = false;
    if (has_msprobe_json(folder)) {
      const auto absolute = std::filesystem::absolute(folder / ".").lexically_normal().parent_path();
      read_msprobe_rank(folder, msprobe_step(absolute.parent_path().filename().string()).value_or(0), 0,
                        options_, *this, contents_);
      is_one_rank_ = true;
    } else {
      std::vector<std::filesystem::path> trees = trees_in(folder);
      if (trees.empty()) trees.push_back(folder);
      for (const auto& tree : trees) read_tree(tree);
    }
    if (contents_.jsons == 0 && records.empty()) {
      throw Error("{}: no tensor can be read: {}", path.string(),
                  left_out.empty() ? "no rank or proc folder is in it" : left_out[0]);
    }
    mark_insides();
    place();
    add_notes();
    groups.assign(contents_.groups.begin(), contents_.groups.end());
  }
  Tensor read(std::size_t index) const override {
    const MsprobePlace& place = contents_.places.at(index);
    const Record& record = records[index];
    if (!record.has_bits) {
      throw Error("{}: {}", location(index),
                  place.file.empty() ? "the dump holds no values of it, only what was computed of them"
                                     : fmt::format("its file {} is missing", place.file));
    }
    const auto dump = open_file(MappedFile::open_in(contents_.folders[place.folder], place.file), options_);
    if (dump == nullptr || dump->records.size() != 1)
      throw Error("{}: does not hold one tensor", location(index));
    return as_recorded(dump->read(0), place.file.ends_with(".npy"), record, location(index), "dump.json");
  }
  std::string location(std::size_t index) const override {
    const MsprobePlace& place = contents_.places.at(index);
    if (records[index].has_bits) return (contents_.folders[place.folder] / place.file).string();
    return fmt::format("{}: {}", contents_.folders[place.folder].parent_path().string(),
                       to_string(records[index].id));
  }

 private:
  void read_tree(const std::filesystem::path& folder) {
    std::map<std::int64_t, std::filesystem::path> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto step = msprobe_step(entry.path().filename().string());
      if (step && is_real_folder(entry)) steps.emplace(*step, entry.path());
    }
    if (steps.empty()) {
      const std::string name =
          std::filesystem::absolute(folder / ".").lexically_normal().parent_path().filename();
      steps.emplace(msprobe_step(name).value_or(0), folder);
    }
    std::map<std::int64_t, std::set<int>> ranks_of;
    std::set<int> all;
    for (const auto& [step, step_folder] : steps) {
      for (const auto& [rank, rank_folder] : ranks_in(step_folder)) {
        world_size = std::max(world_size, rank + 1);
        ranks_of[step].insert(rank);
        all.insert(rank);
        read_msprobe_rank(rank_folder, step, rank, options_, *this, contents_);
      }
    }
    for (const auto& [step, step_folder] : steps) {
      for (const int rank : all) {
        if (!ranks_of[step].contains(rank))
          left_out.push_back(
              fmt::format("{}: rank {} is missing, another step has it", step_folder.string(), rank));
      }
    }
  }

  bool is_real_folder(const std::filesystem::directory_entry& entry) {
    if (!entry.is_symlink()) return entry.is_directory();
    left_out.push_back(fmt::format("{}: a symbolic link, not followed", entry.path().string()));
    return false;
  }

  std::map<int, std::filesystem::path> ranks_in(const std::filesystem::path& folder) {
    constexpr std::int64_t max_ranks = 1'000'000;
    std::map<int, std::filesystem::path> ranks;
    std::vector<std::filesystem::path> processes;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!names_rank(entry.path()) || !is_real_folder(entry)) continue;
      const std::string name = entry.path().filename().string();
      if (is_msprobe_process(name)) {
        processes.push_back(entry.path());
        continue;
      }
      const auto rank = msprobe_rank(name);
      if (!rank || *rank >= max_ranks) {
        left_out.push_back(fmt::format("{}: not the name of a rank's folder", entry.path().string()));
      } else if (!ranks.emplace(static_cast<int>(*rank), entry.path()).second) {
        throw Error("{}: has two folders of rank {}: rank and rank0", folder.string(), *rank);
      }
    }
    // A process without a rank names its folder after itself; of two, nobody knows which is which.
    if (processes.size() == 1 && ranks.empty()) {
      ranks.emplace(0, processes[0]);
    } else if (!processes.empty()) {
      throw Error("{}: has {} rank and {} proc folders, expected rank folders or a single proc folder",
                  folder.string(), ranks.size(), processes.size());
    }
    return ranks;
  }

  // What shows how modules make their results: the calls of APIs, where modules were recorded too, and what a
  // module without weights of its own is given and returns, where it has modules in it.
  void mark_insides() {
    const auto is_of_module = [](const Record& r) { return !r.within && r.id.phase != Phase::none; };
    const bool has_modules = std::ranges::any_of(records, is_of_module);
    std::set<std::string> modules, with_weights;
    for (const Record& r : records) {
      modules.insert(r.id.module);
      if (r.id.slot == "param" || r.id.slot == "grad") with_weights.insert(r.id.module);
    }
    const auto holds_others = [&](const std::string& module) {
      const auto next = modules.lower_bound(module + ".");
      return next != modules.end() && next->starts_with(module + ".");
    };
    for (Record& r : records) {
      r.within = r.within ? has_modules : !with_weights.contains(r.id.module) && holds_others(r.id.module);
    }
  }

  void place() {
    if (contents_.layouts.empty()) return;
    if (is_one_rank_) {
      notes.push_back(fmt::format("{}: one rank's folder: its tensors are taken as they are, parts as wholes",
                                  path.string()));
      return;
    }
    auto misfits = contents_.layouts.place(*this);
    if (misfits.empty()) return;
    std::sort(misfits.begin(), misfits.end());
    for (const auto& [index, reason] : misfits)
      left_out.push_back(fmt::format("{}: {}", location(index), reason));
    std::size_t kept = 0, next = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (next < misfits.size() && misfits[next].first == i) {
        ++next;
        continue;
      }
      if (kept != i) {
        records[kept] = std::move(records[i]);
        contents_.places[kept] = std::move(contents_.places[i]);
      }
      ++kept;
    }
    records.resize(kept);
    contents_.places.resize(kept);
  }

  void add_notes() {
    if (world_size > 1 && contents_.layouts.empty()) {
      notes.push_back(fmt::format("{}: {} ranks without a layout; tensors of one name are taken as copies",
                                  path.string(), world_size));
    }
    if (contents_.recomputed != 0) {
      notes.push_back(fmt::format("{}: {} calls are recomputations; their modules end in .recompute",
                                  path.string(), contents_.recomputed));
    }
    if (contents_.missing_files != 0) {
      notes.push_back(fmt::format("{}: the files of {} tensors are missing, first {}", path.string(),
                                  contents_.missing_files, contents_.first_missing));
    }
    const auto is_narrow = [](const Record& r) {
      return !r.has_bits && r.statistics && is_float(r.dtype) && size_of(r.dtype) < 4;
    };
    if (std::ranges::any_of(records, is_narrow)) {
      notes.push_back(fmt::format(
          "{}: statistics are computed in each tensor's own dtype, unless its precision was set to high",
          path.string()));
    }
  }

  OpenOptions options_;
  MsprobeContents contents_;
  bool is_one_rank_ = false;
};

}  // namespace

bool fits_msprobe(const std::filesystem::path& folder) {
  return has_msprobe_json(folder) || is_step_folder(folder) || holds_steps(folder) ||
         !trees_in(folder).empty();
}

std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<MsprobeDump>(folder, options);
}

}  // namespace assay
