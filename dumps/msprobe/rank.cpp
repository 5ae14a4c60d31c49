#include "assay/dumps/msprobe/rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "assay/dumps/io/json.h"
#include "assay/dumps/msprobe/names.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t max_depth = 16;
constexpr std::uint64_t max_json = std::uint64_t{1} << 30;

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

bool is_mindspore(const Json& leaf) {
  const std::string* type = text_of(leaf, "type");
  return type != nullptr && type->starts_with("mindspore");
}

std::optional<Statistics> statistics_of(const Json& leaf, const Record& record) {
  const auto number = [&](std::string_view key) {
    const Json* value = leaf.find(key);
    return value == nullptr ? std::nullopt : value->number();
  };
  Statistics found;
  found.min = number("Min");
  found.max = number("Max");
  found.mean = number("Mean");
  found.l2 = number("Norm");
  if (found == Statistics{}) return std::nullopt;
  // Of a scalar msprobe takes the value itself for all of them.
  if (record.shape.empty() && found.l2) found.l2 = std::abs(*found.l2);
  // MindSpore's statistics of integers and float64 are those of the tensor cast to float32.
  if (is_mindspore(leaf) && record.dtype != DType::boolean &&
      (!is_float(record.dtype) || record.dtype == DType::float64)) {
    found.rounding = unit_roundoff(DType::float32);
  }
  return found;
}

// What msprobe calls md5 is a CRC-32 or an exclusive or; old versions did write md5. MindSpore widens
// bfloat16 to float32 before it counts.
std::string checksum_of(const Json& leaf, DType dtype) {
  const std::string* text = text_of(leaf, "md5");
  if (text == nullptr || text->empty() || text->size() > 64) return "";
  if (text->starts_with("0x")) return "xor:" + *text;
  if (text->size() != 8) return "md5:" + *text;
  const bool is_widened = dtype == DType::bfloat16 && is_mindspore(leaf);
  return (is_widened ? "crc32(float32):" : "crc32:") + *text;
}

// Reads one folder; what it finds goes to the dump and its contents.
class RankReader {
 public:
  RankReader(std::filesystem::path folder, std::int64_t step, int rank, const OpenOptions& options,
             Dump& dump, MsprobeContents& contents)
      : folder_(std::move(folder)),
        step_(step),
        rank_(rank),
        options_(options),
        dump_(dump),
        contents_(contents) {}

  void read() {
    contents_.folders.push_back(folder_ / msprobe_tensors);
    files_ = files_in(folder_ / msprobe_tensors);
    std::size_t listed = 0;
    bool listed_any = false;
    read_construct();
    for (const std::string_view name : {"dump.json", "debug.json"}) {
      if (!exists(std::filesystem::symlink_status(folder_ / name))) continue;
      try {
        const Json json = parse(name);
        const std::string where = (folder_ / name).string();
        const auto& data = json.at("data", where).object(where + ": data");
        note_producer(json);
        listed += data.size();
        listed_any = true;
        ++contents_.jsons;
        read_entries(data, where);
      } catch (const Error& problem) {
        dump_.left_out.push_back(fmt::format(
            "{}; if it is cut or empty, the run was killed before the debugger's stop()", problem.what()));
      }
    }
    if (!has_msprobe_json(folder_) && !read_variables()) {
      dump_.left_out.push_back(fmt::format(
          "{}: no dump.json: the run was killed before the debugger's stop(); its {} tensor files can be "
          "read by their names from {}",
          folder_.string(), files_.size(), contents_.folders.back().string()));
    } else if (named_.size() < files_.size() && listed_any) {
      const auto unnamed =
          std::ranges::find_if(files_, [&](const auto& file) { return !named_.contains(file); });
      dump_.left_out.push_back(fmt::format(
          "{}: {} files that the {}JSON does not name, first {}: the run may have been killed before the "
          "debugger's stop()",
          contents_.folders.back().string(), files_.size() - named_.size(), listed == 0 ? "empty " : "",
          *unnamed));
    }
  }

 private:
  std::set<std::string> files_in(const std::filesystem::path& folder) {
    std::set<std::string> files;
    const auto status = std::filesystem::symlink_status(folder);
    if (is_symlink(status)) {
      dump_.left_out.push_back(fmt::format("{}: a symbolic link, not followed", folder.string()));
    } else if (is_directory(status)) {
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        files.insert(entry.path().filename().string());
    }
    return files;
  }

  Json parse(std::string_view name) const {
    const auto file = MappedFile::open_in(folder_, name);
    const std::string where = file->path().string();
    if (file->bytes().size() > max_json)
      throw Error("{}: {} bytes of JSON, expected at most {}", where, file->bytes().size(), max_json);
    return parse_json(file->text(), where, JsonNumbers::python);
  }

  // {"Functional.linear.0.forward": ["Module.fc.Linear.forward.0", 1]}: parent and micro-batch, under
  // Megatron.
  void read_construct() {
    if (!exists(std::filesystem::symlink_status(folder_ / "construct.json"))) return;
    try {
      const Json json = parse("construct.json");
      for (const auto& [name, parent] : json.object("construct.json")) {
        if (!parent.is_array() || parent.array(name).size() != 2) continue;
        const auto number = parent.array(name)[1].number();
        if (number && *number >= 0 && *number < 1e9)
          micro_batches_[name] = static_cast<std::int64_t>(*number);
      }
    } catch (const Error& problem) {
      dump_.notes.push_back(fmt::format("{}; micro-batches are not known", problem.what()));
    }
  }

  void note_producer(const Json& json) {
    if (!dump_.producer.empty()) return;
    Json::Object object{{"recorder", Json{std::string("msprobe")}}};
    for (const std::string_view key : {"framework", "task", "level"}) {
      if (const std::string* text = text_of(json, key)) object.push_back({std::string(key), Json{*text}});
    }
    dump_.producer = Json{std::move(object)}.text();
  }

  std::int64_t micro_batch_of(const std::string& name) const {
    const auto found = micro_batches_.find(name);
    return found == micro_batches_.end() ? -1 : found->second;
  }

  void read_entries(const Json::Object& data, const std::string& where) {
    CallNumbers calls;
    std::vector<bool> is_recomputed;
    for (const auto& [full_name, entry] : data) {
      const Json* flag = entry.find("is_recompute");
      is_recomputed.push_back(flag != nullptr && flag->number().value_or(0) == 1);
      calls.add(parse_msprobe_name(full_name), is_recomputed.back(), micro_batch_of(full_name));
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      const MsprobeName name = parse_msprobe_name(data[i].first);
      const std::int64_t micro_batch = micro_batch_of(data[i].first);
      Record record;
      record.rank = rank_;
      record.op = name.op;
      record.id = {step_, micro_batch, phase_of(name.kind), name.module, "", "", 0};
      record.within = !name.is_module && record.id.phase != Phase::none;
      record.id.call = calls.number(name, is_recomputed[i], micro_batch);
      if (is_recomputed[i] && name.kind == MsprobeName::Kind::forward) {
        record.id.module += ".recompute";
        ++contents_.recomputed;
      }
      try {
        read_entry(name.kind, data[i].second, record, where + ": " + data[i].first);
      } catch (const Error& problem) {
        dump_.left_out.emplace_back(problem.what());
      }
    }
  }

  void read_entry(MsprobeName::Kind kind, const Json& entry, Record record, const std::string& where) {
    if (record.id.phase == Phase::none) {  // debug.json's and other free names
      record.id.slot = "state";
      return read_items(entry, record, "", 0, where);
    }
    for (const auto& [key, value] : entry.object(where)) {
      record.id.slot = slot_of(kind, key);
      if (record.id.slot.empty()) continue;
      if (record.id.slot == "grad") {
        // One gradient per parameter, in a list of one.
        const bool is_single = value.is_array() && value.array(where).size() == 1;
        read_items(is_single ? value.array(where)[0] : value, record, key, 0, where);
      } else {
        read_items(value, record, "", 0, where);
      }
    }
  }

  /// The tensors of nested lists and dicts; their place in them becomes the argument: "0", "1.2", "mask".
  void read_items(const Json& item, const Record& like, const std::string& arg, std::size_t depth,
                  const std::string& where) {
    if (depth == max_depth) throw Error("{}: nested deeper than {}", where, max_depth);
    const std::string stem = arg.empty() ? "" : arg + ".";
    if (item.is_array()) {
      const auto& items = item.array(where);
      for (std::size_t i = 0; i < items.size(); ++i)
        read_items(items[i], like, stem + std::to_string(i), depth + 1, where);
    } else if (text_of(item, "type") != nullptr) {
      try {
        if (item.find("group_ranks") != nullptr) add_group(item);
        if (item.find("shape") != nullptr && item.find("dtype") != nullptr)
          add(item, like, arg, fmt::format("{}: {} {}", where, like.id.slot, arg));
      } catch (const Error& problem) {
        dump_.left_out.emplace_back(problem.what());
      }
    } else if (item.is_object()) {
      for (const auto& [key, value] : item.object(where))
        read_items(value, like, stem + key, depth + 1, where);
    }
  }

  void add_group(const Json& item) {
    const std::string* id = text_of(item, "group_id");
    const Json& ranks = *item.find("group_ranks");
    if (!ranks.is_array()) return;
    RankGroup group{id == nullptr ? "" : *id, {}};
    for (const Json& rank : ranks.array("group_ranks")) group.ranks.push_back(rank.integer("group_ranks"));
    contents_.groups.insert(std::move(group));
  }

  void add(const Json& leaf, Record record, const std::string& arg, const std::string& where) {
    const std::string& word = leaf.at("dtype", where).string(where + ": dtype");
    const std::optional<DType> dtype = parse_dtype(word);
    if (!dtype) throw Error("{}: is {}, which cannot be compared", where, word);
    record.id.arg = arg;
    record.seq = static_cast<std::int64_t>(dump_.records.size());
    record.dtype = *dtype;
    record.shape = record.global_shape = leaf.at("shape", where).shape(where + ": shape");
    record.statistics = statistics_of(leaf, record);
    record.checksum = checksum_of(leaf, *dtype);
    MsprobePlace place{contents_.folders.size() - 1, ""};
    if (const std::string* file = text_of(leaf, "data_name")) {
      if (!is_plain_name(*file)) {
        throw Error("{}: data_name is '{}', expected the plain name of a file in {}", where, *file,
                    msprobe_tensors);
      }
      place.file = *file;
    }
    record.has_bits = files_.contains(place.file);
    if (record.has_bits) named_.insert(place.file);
    if (!record.has_bits && !place.file.empty()) {
      if (contents_.missing_files++ == 0)
        contents_.first_missing = (contents_.folders.back() / place.file).string();
    }
    std::optional<RecordedLayout> layout = parse_layout(leaf, record.shape.size(), where);
    if (layout) contents_.layouts.add(dump_.records.size(), std::move(*layout));
    dump_.records.push_back(std::move(record));
    contents_.places.push_back(std::move(place));
  }

  /// MindSpore's debugger.save in graph mode: a file per variable in the rank's folder and no JSON.
  bool read_variables() {
    std::map<std::string, SavedVariable> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string file = entry.path().filename().string();
      if (auto variable = parse_saved_variable(file)) files.emplace(file, std::move(*variable));
    }
    if (files.empty()) return false;
    contents_.folders.push_back(folder_);
    for (const auto& [file, variable] : files) {
      try {
        const auto dump = open_file(MappedFile::open_in(folder_, file), options_);
        if (dump == nullptr || dump->records.size() != 1)
          throw Error("{}: does not hold one tensor", (folder_ / file).string());
        Record record =
            plain_record(variable.name, variable.dtype, dump->records[0].shape, dump_.records.size());
        record.rank = rank_;
        record.id.step = step_;
        record.id.slot = "state";
        record.id.call = variable.count;
        dump_.records.push_back(std::move(record));
        contents_.places.push_back({contents_.folders.size() - 1, file});
      } catch (const Error& problem) {
        dump_.left_out.emplace_back(problem.what());
      }
    }
    return true;
  }

  std::filesystem::path folder_;
  std::int64_t step_;
  int rank_;
  const OpenOptions& options_;
  Dump& dump_;
  MsprobeContents& contents_;
  std::set<std::string> files_, named_;  ///< those of dump_tensor_data, and those of them that a JSON names
  std::unordered_map<std::string, std::int64_t> micro_batches_;
};

}  // namespace

bool has_msprobe_json(const std::filesystem::path& folder) {
  for (const std::string_view name : {"dump.json", "debug.json"}) {
    if (exists(std::filesystem::symlink_status(folder / name))) return true;
  }
  return false;
}

void read_msprobe_rank(const std::filesystem::path& folder, std::int64_t step, int rank,
                       const OpenOptions& options, Dump& dump, MsprobeContents& contents) {
  RankReader(folder, step, rank, options, dump, contents).read();
}

}  // namespace assay
