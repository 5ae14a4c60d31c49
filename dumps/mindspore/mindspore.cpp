#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "assay/dumps/mindspore/names.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr int max_depth = 16;
// Larger than any that a run writes; a row takes 20 times its text in memory.
constexpr std::uint64_t max_csv = std::uint64_t{256} << 20;
constexpr std::string_view statistics_file = "statistic.csv", mapping_file = "mapping.csv";

using Walk = std::filesystem::recursive_directory_iterator;  // follows no links

bool is_tensor_file(const std::string& name) {
  const std::string extension = std::filesystem::path(name).extension().string();
  return std::ranges::any_of(file_formats(), [&](const FileFormat& format) {
    return !extension.empty() &&
           std::ranges::find(format.extensions, extension) != std::end(format.extensions);
  });
}

class MindSporeDump : public Dump {
 public:
  MindSporeDump(const std::filesystem::path& root, const OpenOptions& options) : options_(options) {
    path = root;
    format = "mindspore";
    std::map<std::filesystem::path, std::set<std::string>> folders;
    for (auto entry = Walk(root); entry != Walk(); ++entry) {
      if (entry->is_symlink()) {
        left_out.push_back(fmt::format("{}: a symbolic link, not followed", entry->path().string()));
      } else if (entry->is_regular_file()) {
        folders[entry->path().parent_path()].insert(entry->path().filename().string());
      } else if (entry.depth() >= max_depth) {
        throw Error("{}: folders nested deeper than {}", entry->path().string(), max_depth);
      }
    }
    for (const auto& [folder, files] : folders) read_folder(folder, files);
    order();
    if (world_size > 1) {
      notes.push_back(fmt::format("{}: {} ranks without a layout; tensors of one name are taken as copies",
                                  path.string(), world_size));
    }
    if (rank_is_device_)
      notes.push_back(fmt::format("{}: the tree names devices, taken for ranks", path.string()));
    if (records.empty() && !left_out.empty())
      throw Error("{}: no tensor can be read: {}", path.string(), left_out[0]);
  }
  Tensor read(std::size_t index) const override {
    const Place& place = places_.at(index);
    if (!records[index].has_bits)
      throw Error("{}: holds no values, only what was computed of them", location(index));
    const auto dump = open_file(MappedFile::open(folders_[place.folder] / place.file), options_);
    if (dump == nullptr || dump->records.size() != 1)
      throw Error("{}: does not hold one tensor", location(index));
    return as_recorded(dump->read(0), true, records[index], location(index), "its name");
  }
  std::string location(std::size_t index) const override {
    const Place& place = places_.at(index);
    return (folders_[place.folder] / place.file).string();
  }

 private:
  struct Place {
    std::size_t folder = 0;
    std::string file;
  };
  /// A record before calls are counted.
  struct Found {
    Record record;
    Place place;
    std::uint64_t timestamp = 0;
  };

  void read_folder(const std::filesystem::path& folder, const std::set<std::string>& files) {
    folders_.push_back(folder);
    const auto where = parse_kernel_folder(std::filesystem::absolute(folder));
    constexpr int max_ranks = 1'000'000;
    if (where.rank >= max_ranks) throw Error("{}: a rank above {}", folder.string(), max_ranks);
    world_size = std::max(world_size, where.rank + 1);
    rank_is_device_ = rank_is_device_ || where.rank_is_device;
    // Only looked up, never opened: whatever a mapping says, the file is one of this folder.
    const auto mapping =
        files.contains(std::string(mapping_file)) ? mapping_in(folder) : std::map<std::string, std::string>();
    std::size_t protobufs = 0, strangers = 0;
    std::string first_protobuf, first_stranger;
    for (const std::string& file : files) {
      const auto mapped = mapping.find(file);
      const std::string& name = mapped == mapping.end() ? file : mapped->second;
      if (is_kernel_protobuf(name)) {
        if (protobufs++ == 0) first_protobuf = file;
      } else if (const auto kernel = parse_kernel_name(name)) {
        add_file(folder, file, *kernel, where);
      } else if (is_tensor_file(file)) {
        if (strangers++ == 0) first_stranger = file;
      }
    }
    if (protobufs != 0) {
      left_out.push_back(
          fmt::format("{}: {} files in CANN's protobuf form, first {}; convert them with: msaccucmp.py "
                      "convert -d {} -out "
                      "FOLDER -t npy",
                      folder.string(), protobufs, first_protobuf, folder.string()));
    }
    if (strangers != 0) {
      left_out.push_back(fmt::format("{}: {} files whose names are not those of a MindSpore dump, first {}",
                                     folder.string(), strangers, first_stranger));
    }
    if (files.contains(std::string(statistics_file))) read_statistics(folder, where);
  }

  std::map<std::string, std::string> mapping_in(const std::filesystem::path& folder) {
    try {
      return parse_mapping(csv_in(folder, mapping_file)->text());
    } catch (const Error& problem) {
      left_out.push_back(fmt::format("{}: {}", (folder / mapping_file).string(), problem.what()));
      return {};
    }
  }

  static std::shared_ptr<const MappedFile> csv_in(const std::filesystem::path& folder,
                                                  std::string_view name) {
    auto file = MappedFile::open_in(folder, name);
    if (file->bytes().size() > max_csv)
      throw Error("{} bytes, expected at most {}", file->bytes().size(), max_csv);
    return file;
  }

  static Record record_of(const KernelName& kernel, const KernelFolder& where, DType dtype, Shape shape) {
    Record record = plain_record(where.graph.empty() ? kernel.op : where.graph + "/" + kernel.op, dtype,
                                 std::move(shape), 0);
    record.op = kernel.type;
    record.rank = where.rank;
    record.id.step = where.step;
    record.id.slot = where.is_constants ? "param" : kernel.is_input ? "input" : "output";
    record.id.arg = std::to_string(kernel.slot);
    return record;
  }

  void add_file(const std::filesystem::path& folder, const std::string& file, const KernelName& kernel,
                const KernelFolder& where) {
    try {
      const auto dump = open_file(MappedFile::open(folder / file), options_);
      if (dump == nullptr || dump->records.size() != 1)
        throw Error("{}: does not hold one tensor", (folder / file).string());
      const Record& stored = dump->records[0];
      // int4 and uint1 are stored as bytes, under names that no dtype has: the bytes are the values.
      found_.push_back({record_of(kernel, where, kernel.dtype.value_or(stored.dtype), stored.shape),
                        {folders_.size() - 1, file},
                        kernel.timestamp});
    } catch (const Error& problem) {
      left_out.emplace_back(problem.what());
    }
  }

  void read_statistics(const std::filesystem::path& folder, const KernelFolder& where) {
    const std::string file = (folder / statistics_file).string();
    try {
      const auto csv = csv_in(folder, statistics_file);
      for (KernelStatistics& row : parse_statistics(csv->text(), file, left_out)) {
        Record record = record_of(row.name, where, *row.name.dtype, std::move(row.shape));
        record.has_bits = false;
        record.statistics = row.statistics;
        record.checksum = std::move(row.checksum);
        found_.push_back(
            {std::move(record), {folders_.size() - 1, std::string(statistics_file)}, row.name.timestamp});
      }
    } catch (const Error& problem) {
      left_out.push_back(fmt::format("{}: {}", file, problem.what()));
    }
  }

  // By time: within a rank's step that is the order of execution, and the calls of one kernel are counted in
  // it. Statistics of a tensor that has a file too are that record's.
  void order() {
    std::ranges::stable_sort(found_, [](const Found& a, const Found& b) {
      return std::tie(a.record.id.step, a.record.rank, a.timestamp) <
             std::tie(b.record.id.step, b.record.rank, b.timestamp);
    });
    using Key = std::pair<int, Identity>;
    std::map<Key, std::int64_t> files, rows;
    std::map<Key, std::size_t> with_bits;
    for (Found& f : found_) {
      const Key key{f.record.rank, f.record.id};
      f.record.id.call = (f.record.has_bits ? files : rows)[key]++;
    }
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].record.has_bits) with_bits.emplace(Key{found_[i].record.rank, found_[i].record.id}, i);
    }
    for (Found& f : found_) {
      const auto other = with_bits.find({f.record.rank, f.record.id});
      if (f.record.has_bits || other == with_bits.end()) continue;
      Record& record = found_[other->second].record;
      if (record.shape != f.record.shape) {
        left_out.push_back(fmt::format("{}: {} has shape {}, its file {}", location_of(f.place),
                                       to_string(f.record.id), to_string(f.record.shape),
                                       to_string(record.shape)));
      } else {
        record.statistics = f.record.statistics;
        record.checksum = f.record.checksum;
      }
      f.place.file.clear();  // told of; not a record of its own
    }
    for (Found& f : found_) {
      if (f.place.file.empty()) continue;
      f.record.seq = static_cast<std::int64_t>(records.size());
      records.push_back(std::move(f.record));
      places_.push_back(std::move(f.place));
    }
    found_.clear();
  }

  std::string location_of(const Place& place) const { return (folders_[place.folder] / place.file).string(); }

  OpenOptions options_;
  std::vector<std::filesystem::path> folders_;
  std::vector<Found> found_;
  std::vector<Place> places_;
  bool rank_is_device_ = false;
};

bool is_statistics(const std::filesystem::path& path) {
  if (path.filename() != statistics_file) return false;
  return is_statistics_header(MappedFile::open(path)->text());
}

}  // namespace

bool fits_mindspore(const std::filesystem::path& folder) {
  for (auto entry = Walk(folder); entry != Walk(); ++entry) {
    if (entry.depth() >= max_depth) entry.disable_recursion_pending();
    if (entry->is_symlink() || !entry->is_regular_file()) continue;
    const std::string name = entry->path().filename().string();
    if (parse_kernel_name(name) || is_kernel_protobuf(name) || is_statistics(entry->path())) return true;
  }
  return false;
}

std::unique_ptr<Dump> open_mindspore(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<MindSporeDump>(folder, options);
}

}  // namespace assay
