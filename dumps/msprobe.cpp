#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "assay/dumps/json.h"
#include "assay/dumps/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t max_depth = 16;

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_rank_folder(std::string_view name) {
  return name == "rank" || (name.starts_with("rank") && is_number(name.substr(4)));
}
bool is_process_folder(std::string_view name) {
  return name.starts_with("proc") && is_number(name.substr(4));
}

std::int64_t to_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// "Module.layers.0.attn_norm.Norm.forward.0" taken apart.
struct Name {
  Phase phase = Phase::none;
  std::string module;
  std::int64_t call = 0;
  bool is_grad = false;  ///< of the parameters
};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string_view>& parts, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text.append(i == begin ? "" : ".").append(parts[i]);
  return text;
}

// Modules count calls behind the direction, APIs before it; older gradients are not counted.
// A module's class is left out: its path says which one it is, and platforms name classes differently.
Name parse_name(std::string_view text) {
  const std::vector<std::string_view> parts = split(text);
  Name name;
  std::size_t end = parts.size();
  const bool is_module = parts.size() >= 4 && (parts[0] == "Module" || parts[0] == "Cell");
  if (is_module && is_number(parts[end - 1])) name.call = to_number(parts[--end]);
  const std::string_view direction = parts[end - 1];
  name.is_grad = direction == "parameters_grad";
  name.phase = direction == "forward"                    ? Phase::forward
               : direction == "backward" || name.is_grad ? Phase::backward
                                                         : Phase::none;
  if (name.phase == Phase::none) return {Phase::none, std::string(text), 0, false};
  --end;
  if (is_module && end >= 3) {
    name.module = join(parts, 1, end - 1);
  } else if (end >= 2 && is_number(parts[end - 1])) {
    name.call = to_number(parts[end - 1]);
    name.module = join(parts, 0, end - 1);
  } else {
    name.module = join(parts, 0, end);
  }
  return name;
}

class MsprobeDump : public Dump {
 public:
  MsprobeDump(const std::filesystem::path& folder, const OpenOptions& options) : options_(options) {
    path = folder;
    format = "msprobe";
    if (exists(folder / "dump.json")) {
      const std::string step =
          std::filesystem::absolute(folder).lexically_normal().parent_path().filename().string();
      read_rank(folder, step_of(step).value_or(0), 0);
    } else {
      std::vector<std::pair<std::int64_t, std::filesystem::path>> steps;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const auto step = step_of(entry.path().filename().string());
        if (step && entry.is_directory()) steps.emplace_back(*step, entry.path());
      }
      std::sort(steps.begin(), steps.end());
      if (steps.empty()) steps.emplace_back(step_of(folder.filename().string()).value_or(0), folder);
      for (const auto& [step, step_folder] : steps) read_step(step_folder, step);
    }
    if (world_size > 1) {
      notes.push_back(fmt::format("{}: {} ranks without a layout; tensors of one name are taken as copies",
                                  path.string(), world_size));
    }
    if (without_data_ != 0)
      left_out.push_back(fmt::format("{}: {} tensors have statistics only", path.string(), without_data_));
  }
  Tensor read(std::size_t index) const override {
    const Place& place = places_.at(index);
    const auto dump = open_file(MappedFile::open_in(folders_[place.folder], place.file), options_);
    const Record& record = records[index];
    if (dump == nullptr || dump->records.size() != 1)
      throw Error("{}: does not hold one tensor", location(index));
    const Record& stored = dump->records[0];
    // MindSpore widens bfloat16 and float8 to float32 before it saves them.
    const bool is_widened = place.file.ends_with(".npy") && stored.dtype == DType::float32 &&
                            size_of(record.dtype) < 4 && is_float(record.dtype);
    if ((stored.dtype != record.dtype && !is_widened) || stored.shape != record.shape) {
      throw Error("{}: holds {} of shape {}, dump.json says {} of shape {}", location(index),
                  name(stored.dtype), to_string(stored.shape), name(record.dtype), to_string(record.shape));
    }
    Tensor tensor = dump->read(0);
    return is_widened ? Tensor::from_values(record.dtype, record.shape, tensor.values()) : tensor;
  }
  std::string location(std::size_t index) const override {
    const Place& place = places_.at(index);
    return (folders_[place.folder] / place.file).string();
  }

 private:
  struct Place {
    std::size_t folder;
    std::string file;
  };

  static std::optional<std::int64_t> step_of(std::string_view folder) {
    if (!folder.starts_with("step") || !is_number(folder.substr(4))) return std::nullopt;
    return to_number(folder.substr(4));
  }

  void read_step(const std::filesystem::path& folder, std::int64_t step) {
    std::vector<std::pair<int, std::filesystem::path>> ranks;
    std::vector<std::filesystem::path> processes;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_directory()) continue;
      if (is_rank_folder(name)) {
        ranks.emplace_back(static_cast<int>(to_number(std::string_view(name).substr(4))), entry.path());
      } else if (is_process_folder(name)) {
        processes.push_back(entry.path());
      }
    }
    // A process without a rank names its folder after itself; of two, nobody knows which is which.
    if (processes.size() + ranks.size() == 1 && ranks.empty()) ranks.emplace_back(0, processes[0]);
    if (ranks.empty() || (!processes.empty() && ranks[0].second != processes[0])) {
      throw Error("{}: has {} rank and {} proc folders, expected rank folders or a single proc folder",
                  folder.string(), ranks.size(), processes.size());
    }
    std::sort(ranks.begin(), ranks.end());
    for (const auto& [rank, rank_folder] : ranks) {
      world_size = std::max(world_size, rank + 1);
      read_rank(rank_folder, step, rank);
    }
  }

  void read_rank(const std::filesystem::path& folder, std::int64_t step, int rank) {
    const auto file = MappedFile::open_in(folder, "dump.json");
    const std::string where = file->path().string();
    const Json json = parse_json(file->text(), where, JsonNumbers::python);
    folders_.push_back(folder / "dump_tensor_data");
    for (const auto& [name, entry] : json.at("data", where).object(where + ": data"))
      read_entry(name, entry, step, rank, where);
  }

  void read_entry(const std::string& full_name, const Json& entry, std::int64_t step, int rank,
                  const std::string& where) {
    const Name parsed = parse_name(full_name);
    Record record;
    record.rank = rank;
    record.id = {step, -1, parsed.phase, parsed.module, "", "", parsed.call};
    if (parsed.phase == Phase::none) {  // debug.json's and other free names
      record.id.slot = "state";
      return read_items(entry, record, "", 0, where);
    }
    const bool is_forward = parsed.phase == Phase::forward;
    for (const auto& [key, value] : entry.object(where + ": " + full_name)) {
      // Seen from backward, the input is the gradient that comes in: that of the output.
      record.id.slot = parsed.is_grad             ? "grad"
                       : key == "parameters"      ? "param"
                       : key == "output"          ? (is_forward ? "output" : "grad_input")
                       : key.starts_with("input") ? (is_forward ? "input" : "grad_output")
                                                  : "";
      if (record.id.slot.empty()) continue;
      if (parsed.is_grad) {
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
    if (depth == max_depth) throw Error("{}: {} is nested deeper than {}", where, like.id.module, max_depth);
    const std::string stem = arg.empty() ? "" : arg + ".";
    if (item.is_array()) {
      for (std::size_t i = 0; i < item.array(where).size(); ++i) {
        read_items(item.array(where)[i], like, stem + std::to_string(i), depth + 1, where);
      }
    } else if (item.is_object() && item.find("type") != nullptr) {
      if (item.find("shape") != nullptr && item.find("dtype") != nullptr) add(item, like, arg, where);
    } else if (item.is_object()) {
      for (const auto& [key, value] : item.object(where))
        read_items(value, like, stem + key, depth + 1, where);
    }
  }

  void add(const Json& leaf, Record record, const std::string& arg, const std::string& where) {
    const Json* data = leaf.find("data_name");
    if (data == nullptr || !data->is_string()) {
      ++without_data_;
      return;
    }
    const std::string tensor = fmt::format("{}: {} {} {}", where, record.id.module, record.id.slot, arg);
    const std::string& word = leaf.at("dtype", tensor).string(tensor + ": dtype");
    const std::optional<DType> dtype = parse_dtype(word);
    if (!dtype) {
      left_out.push_back(fmt::format("{}: is {}, which cannot be compared", tensor, word));
      return;
    }
    record.id.arg = arg;
    record.seq = static_cast<std::int64_t>(records.size());
    record.dtype = *dtype;
    record.shape = record.global_shape = leaf.at("shape", tensor).shape(tensor + ": shape");
    const std::string& file = data->string(tensor);
    if (!is_plain_name(file)) {
      throw Error("{}: data_name is '{}', expected the plain name of a file in dump_tensor_data", tensor,
                  file);
    }
    records.push_back(std::move(record));
    places_.push_back({folders_.size() - 1, file});
  }

  OpenOptions options_;
  std::vector<std::filesystem::path> folders_;
  std::vector<Place> places_;
  std::size_t without_data_ = 0;
};

}  // namespace

bool fits_msprobe(const std::filesystem::path& folder) {
  if (exists(folder / "dump.json")) return true;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step") && is_number(std::string_view(name).substr(4)) && entry.is_directory())
      return true;
    const bool is_rank = is_rank_folder(name) || is_process_folder(name);
    if (is_rank && exists(entry.path() / "dump.json")) return true;
  }
  return false;
}

std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<MsprobeDump>(folder, options);
}

}  // namespace assay
