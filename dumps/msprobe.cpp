#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "assay/dumps/json.h"
#include "assay/dumps/msprobe_layout.h"
#include "assay/dumps/msprobe_names.h"
#include "assay/dumps/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t max_depth = 16;
constexpr std::uint64_t max_json = std::uint64_t{1} << 30;
constexpr std::string_view tensors_folder = "dump_tensor_data";

bool is_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(std::filesystem::symlink_status(path));
}

bool has_json(const std::filesystem::path& folder) {
  for (const std::string_view name : {"dump.json", "debug.json"}) {
    if (exists(std::filesystem::symlink_status(folder / name))) return true;
  }
  return false;
}

// With or without JSON, which a run that was killed may not have written.
bool is_rank_folder(const std::filesystem::path& folder) {
  if (has_json(folder) || exists(std::filesystem::symlink_status(folder / tensors_folder))) return true;
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

// "forward" entries have "input_args", "input_kwargs", "output" and "parameters", backward ones "input" and
// "output". Seen from backward, the input is the gradient that comes in: that of the output.
std::string slot_of(MsprobeName::Kind kind, std::string_view key) {
  const bool is_forward = kind == MsprobeName::Kind::forward;
  if (kind == MsprobeName::Kind::grad) return "grad";
  if (key == "parameters") return "param";
  if (key == "output") return is_forward ? "output" : "grad_input";
  if (key.starts_with("input")) return is_forward ? "input" : "grad_output";
  return "";
}

Phase phase_of(MsprobeName::Kind kind) {
  switch (kind) {
    case MsprobeName::Kind::forward:
      return Phase::forward;
    case MsprobeName::Kind::backward:
    case MsprobeName::Kind::grad:
      return Phase::backward;
    case MsprobeName::Kind::debug:
    case MsprobeName::Kind::other:
      break;
  }
  return Phase::none;
}

const std::string* text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? &value->string(key) : nullptr;
}

std::optional<Statistics> statistics_of(const Json& leaf) {
  const auto number = [&](std::string_view key) {
    const Json* value = leaf.find(key);
    return value == nullptr ? std::nullopt : value->number();
  };
  const Statistics found{number("Min"), number("Max"), number("Mean"), number("Norm")};
  return found == Statistics{} ? std::nullopt : std::optional(found);
}

// What msprobe calls md5 is a CRC-32 or an exclusive or; old versions did write md5. MindSpore widens
// bfloat16 to float32 before it counts.
std::string checksum_of(const Json& leaf, DType dtype) {
  const std::string* text = text_of(leaf, "md5");
  const std::string* type = text_of(leaf, "type");
  if (text == nullptr || text->empty() || text->size() > 64) return "";
  if (text->starts_with("0x")) return "xor:" + *text;
  if (text->size() != 8) return "md5:" + *text;
  const bool is_widened = dtype == DType::bfloat16 && type != nullptr && type->starts_with("mindspore");
  return (is_widened ? "crc32(float32):" : "crc32:") + *text;
}

class MsprobeDump : public Dump {
 public:
  MsprobeDump(const std::filesystem::path& folder, const OpenOptions& options) : options_(options) {
    path = folder;
    format = "msprobe";
    if (has_json(folder)) {
      const auto absolute = std::filesystem::absolute(folder / ".").lexically_normal().parent_path();
      read_rank(folder, msprobe_step(absolute.parent_path().filename().string()).value_or(0), 0);
      is_one_rank_ = true;
    } else {
      std::vector<std::filesystem::path> trees = trees_in(folder);
      if (trees.empty()) trees.push_back(folder);
      for (const auto& tree : trees) read_tree(tree);
    }
    if (jsons_ == 0 && records.empty()) {
      throw Error("{}: no tensor can be read: {}", path.string(),
                  left_out.empty() ? "no rank or proc folder is in it" : left_out[0]);
    }
    place();
    add_notes();
    groups.assign(found_groups_.begin(), found_groups_.end());
  }
  Tensor read(std::size_t index) const override {
    const Place& place = places_.at(index);
    const Record& record = records[index];
    if (!record.has_bits) {
      throw Error("{}: {}", location(index),
                  place.file.empty() ? "the dump holds no values of it, only what was computed of them"
                                     : fmt::format("its file {} is missing", place.file));
    }
    const auto dump = open_file(MappedFile::open_in(folders_[place.folder], place.file), options_);
    if (dump == nullptr || dump->records.size() != 1)
      throw Error("{}: does not hold one tensor", location(index));
    return as_recorded(dump->read(0), place.file.ends_with(".npy"), record, location(index), "dump.json");
  }
  std::string location(std::size_t index) const override {
    const Place& place = places_.at(index);
    if (records[index].has_bits) return (folders_[place.folder] / place.file).string();
    return fmt::format("{}: {}", folders_[place.folder].parent_path().string(), to_string(records[index].id));
  }

 private:
  struct Place {
    std::size_t folder;
    std::string file;
  };
  /// What is known of the rank whose JSON is read.
  struct Rank {
    std::int64_t step;
    int number;
    std::string where;
    std::set<std::string> files;  ///< of dump_tensor_data, less those that a JSON has named
    std::unordered_map<std::string, std::int64_t> micro_batches;
  };

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
        read_rank(rank_folder, step, rank);
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

  void read_rank(const std::filesystem::path& folder, std::int64_t step, int number) {
    folders_.push_back(folder / tensors_folder);
    Rank rank{step, number, folder.string(), files_in(folder / tensors_folder), {}};
    std::size_t listed = 0;
    bool listed_any = false;
    read_construct(folder, rank);
    for (const std::string_view name : {"dump.json", "debug.json"}) {
      if (!exists(std::filesystem::symlink_status(folder / name))) continue;
      try {
        const Json json = parse(folder, name);
        const std::string where = (folder / name).string();
        const auto& data = json.at("data", where).object(where + ": data");
        note_producer(json);
        listed += data.size();
        listed_any = true;
        ++jsons_;
        read_entries(data, rank, where);
      } catch (const Error& problem) {
        left_out.push_back(fmt::format(
            "{}; if it is cut or empty, the run was killed before the debugger's stop()", problem.what()));
      }
    }
    if (!has_json(folder) && !read_variables(folder, rank)) {
      left_out.push_back(fmt::format(
          "{}: no dump.json: the run was killed before the debugger's stop(); its {} tensor files can be "
          "read by their names from {}",
          folder.string(), rank.files.size(), folders_.back().string()));
    } else if (!rank.files.empty() && listed_any) {
      left_out.push_back(fmt::format(
          "{}: {} files that the {}JSON does not name, first {}: the run may have been killed before the "
          "debugger's "
          "stop()",
          folders_.back().string(), rank.files.size(), listed == 0 ? "empty " : "", *rank.files.begin()));
    }
  }

  std::set<std::string> files_in(const std::filesystem::path& folder) {
    std::set<std::string> files;
    const auto status = std::filesystem::symlink_status(folder);
    if (is_symlink(status)) {
      left_out.push_back(fmt::format("{}: a symbolic link, not followed", folder.string()));
    } else if (is_directory(status)) {
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        files.insert(entry.path().filename().string());
    }
    return files;
  }

  static Json parse(const std::filesystem::path& folder, std::string_view name) {
    const auto file = MappedFile::open_in(folder, name);
    const std::string where = file->path().string();
    if (file->bytes().size() > max_json)
      throw Error("{}: {} bytes of JSON, expected at most {}", where, file->bytes().size(), max_json);
    return parse_json(file->text(), where, JsonNumbers::python);
  }

  // {"Functional.linear.0.forward": ["Module.fc.Linear.forward.0", 1]}: parent and micro-batch, under
  // Megatron.
  void read_construct(const std::filesystem::path& folder, Rank& rank) {
    if (!exists(std::filesystem::symlink_status(folder / "construct.json"))) return;
    try {
      const Json json = parse(folder, "construct.json");
      for (const auto& [name, parent] : json.object("construct.json")) {
        if (!parent.is_array() || parent.array(name).size() != 2) continue;
        const auto number = parent.array(name)[1].number();
        if (number && *number >= 0 && *number < 1e9)
          rank.micro_batches[name] = static_cast<std::int64_t>(*number);
      }
    } catch (const Error& problem) {
      notes.push_back(fmt::format("{}; micro-batches are not known", problem.what()));
    }
  }

  void note_producer(const Json& json) {
    if (!producer.empty()) return;
    Json::Object object{{"recorder", Json{std::string("msprobe")}}};
    for (const std::string_view key : {"framework", "task", "level"}) {
      if (const std::string* text = text_of(json, key)) object.push_back({std::string(key), Json{*text}});
    }
    producer = Json{std::move(object)}.text();
  }

  void read_entries(const Json::Object& data, Rank& rank, const std::string& where) {
    CallNumbers calls;
    std::vector<bool> is_recomputed;
    for (const auto& [full_name, entry] : data) {
      const Json* flag = entry.find("is_recompute");
      is_recomputed.push_back(flag != nullptr && flag->number().value_or(0) == 1);
      if (is_recomputed.back()) calls.add_recomputed(parse_msprobe_name(full_name));
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      const MsprobeName name = parse_msprobe_name(data[i].first);
      const auto micro = rank.micro_batches.find(data[i].first);
      const std::int64_t micro_batch = micro == rank.micro_batches.end() ? -1 : micro->second;
      Record record;
      record.rank = rank.number;
      record.id = {rank.step, micro_batch, phase_of(name.kind), name.module, "", "", 0};
      record.id.call = calls.number(name, is_recomputed[i], micro_batch);
      if (is_recomputed[i] && name.kind == MsprobeName::Kind::forward) {
        record.id.module += ".recompute";
        ++recomputed_;
      }
      try {
        read_entry(name.kind, data[i].second, record, rank, where + ": " + data[i].first);
      } catch (const Error& problem) {
        left_out.emplace_back(problem.what());
      }
    }
  }

  void read_entry(MsprobeName::Kind kind, const Json& entry, Record record, Rank& rank,
                  const std::string& where) {
    if (record.id.phase == Phase::none) {  // debug.json's and other free names
      record.id.slot = "state";
      return read_items(entry, record, "", 0, rank, where);
    }
    for (const auto& [key, value] : entry.object(where)) {
      record.id.slot = slot_of(kind, key);
      if (record.id.slot.empty()) continue;
      if (record.id.slot == "grad") {
        // One gradient per parameter, in a list of one.
        const bool is_single = value.is_array() && value.array(where).size() == 1;
        read_items(is_single ? value.array(where)[0] : value, record, key, 0, rank, where);
      } else {
        read_items(value, record, "", 0, rank, where);
      }
    }
  }

  /// The tensors of nested lists and dicts; their place in them becomes the argument: "0", "1.2", "mask".
  void read_items(const Json& item, const Record& like, const std::string& arg, std::size_t depth, Rank& rank,
                  const std::string& where) {
    if (depth == max_depth) throw Error("{}: nested deeper than {}", where, max_depth);
    const std::string stem = arg.empty() ? "" : arg + ".";
    if (item.is_array()) {
      const auto& items = item.array(where);
      for (std::size_t i = 0; i < items.size(); ++i)
        read_items(items[i], like, stem + std::to_string(i), depth + 1, rank, where);
    } else if (text_of(item, "type") != nullptr) {
      try {
        if (item.find("group_ranks") != nullptr) add_group(item);
        if (item.find("shape") != nullptr && item.find("dtype") != nullptr)
          add(item, like, arg, rank, fmt::format("{}: {} {}", where, like.id.slot, arg));
      } catch (const Error& problem) {
        left_out.emplace_back(problem.what());
      }
    } else if (item.is_object()) {
      for (const auto& [key, value] : item.object(where))
        read_items(value, like, stem + key, depth + 1, rank, where);
    }
  }

  void add_group(const Json& item) {
    const std::string* id = text_of(item, "group_id");
    const Json& ranks = *item.find("group_ranks");
    if (!ranks.is_array()) return;
    RankGroup group{id == nullptr ? "" : *id, {}};
    for (const Json& rank : ranks.array("group_ranks")) group.ranks.push_back(rank.integer("group_ranks"));
    found_groups_.insert(std::move(group));
  }

  void add(const Json& leaf, Record record, const std::string& arg, Rank& rank, const std::string& where) {
    const std::string& word = leaf.at("dtype", where).string(where + ": dtype");
    const std::optional<DType> dtype = parse_dtype(word);
    if (!dtype) throw Error("{}: is {}, which cannot be compared", where, word);
    record.id.arg = arg;
    record.seq = static_cast<std::int64_t>(records.size());
    record.dtype = *dtype;
    record.shape = record.global_shape = leaf.at("shape", where).shape(where + ": shape");
    record.statistics = statistics_of(leaf);
    record.checksum = checksum_of(leaf, *dtype);
    Place place{folders_.size() - 1, ""};
    if (const std::string* file = text_of(leaf, "data_name")) {
      if (!is_plain_name(*file)) {
        throw Error("{}: data_name is '{}', expected the plain name of a file in {}", where, *file,
                    tensors_folder);
      }
      place.file = *file;
    }
    record.has_bits = !place.file.empty() && rank.files.erase(place.file) == 1;
    if (!record.has_bits && !place.file.empty()) {
      if (missing_files_++ == 0) first_missing_ = (folders_.back() / place.file).string();
    }
    std::optional<RecordedLayout> layout = parse_layout(leaf, record.shape.size(), where);
    if (layout) layouts_.add(records.size(), std::move(*layout));
    records.push_back(std::move(record));
    places_.push_back(std::move(place));
  }

  /// MindSpore's debugger.save in graph mode: a file per variable in the rank's folder and no JSON.
  bool read_variables(const std::filesystem::path& folder, const Rank& rank) {
    std::map<std::string, SavedVariable> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().filename().string();
      if (auto variable = parse_saved_variable(file)) files.emplace(file, std::move(*variable));
    }
    if (files.empty()) return false;
    folders_.push_back(folder);
    for (const auto& [file, variable] : files) {
      try {
        const auto dump = open_file(MappedFile::open_in(folder, file), options_);
        if (dump == nullptr || dump->records.size() != 1)
          throw Error("{}: does not hold one tensor", (folder / file).string());
        Record record = plain_record(variable.name, variable.dtype, dump->records[0].shape, records.size());
        record.rank = rank.number;
        record.id.step = rank.step;
        record.id.slot = "state";
        record.id.call = variable.count;
        records.push_back(std::move(record));
        places_.push_back({folders_.size() - 1, file});
      } catch (const Error& problem) {
        left_out.emplace_back(problem.what());
      }
    }
    return true;
  }

  void place() {
    if (layouts_.empty()) return;
    if (is_one_rank_) {
      notes.push_back(fmt::format("{}: one rank's folder: its tensors are taken as they are, parts as wholes",
                                  path.string()));
      return;
    }
    auto misfits = layouts_.place(*this);
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
        places_[kept] = std::move(places_[i]);
      }
      ++kept;
    }
    records.resize(kept);
    places_.resize(kept);
  }

  void add_notes() {
    if (world_size > 1 && mesh.dims.empty()) {
      notes.push_back(fmt::format("{}: {} ranks without a layout; tensors of one name are taken as copies",
                                  path.string(), world_size));
    }
    if (recomputed_ != 0) {
      notes.push_back(fmt::format("{}: {} calls are recomputations; their modules end in .recompute",
                                  path.string(), recomputed_));
    }
    if (missing_files_ != 0) {
      notes.push_back(fmt::format("{}: the files of {} tensors are missing, first {}", path.string(),
                                  missing_files_, first_missing_));
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
  std::vector<std::filesystem::path> folders_;
  std::vector<Place> places_;
  Layouts layouts_;
  std::set<RankGroup> found_groups_;
  std::size_t jsons_ = 0, missing_files_ = 0, recomputed_ = 0;
  std::string first_missing_;
  bool is_one_rank_ = false;
};

}  // namespace

bool fits_msprobe(const std::filesystem::path& folder) {
  return has_json(folder) || is_step_folder(folder) || holds_steps(folder) || !trees_in(folder).empty();
}

std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<MsprobeDump>(folder, options);
}

}  // namespace assay
