#include "assay/dumps/safetensors.h"

#include <algorithm>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::uint64_t max_header = 100'000'000;  // the reference implementation's limit

struct Type {
  std::string_view name;
  int bits;
};
// Every type of the format has a size, so that a file is checked as a whole even if a tensor cannot be
// compared.
constexpr Type types[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64},
    {"U64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}};

// Two float4_e2m1fn in a byte, the first in its low bits (torch's float4_e2m1fn_x2); the shape counts both.
constexpr std::string_view packed = "F4";

std::vector<std::byte> unpacked(std::span<const std::byte> pairs) {
  std::vector<std::byte> elements;
  elements.reserve(2 * pairs.size());
  for (const std::byte pair : pairs) {
    elements.push_back(pair & std::byte{0xf});
    elements.push_back(pair >> 4);
  }
  return elements;
}

SafetensorsFile::Entry parse_entry(const Json::Member& member, std::uint64_t data, const std::string& path) {
  const std::string where = path + ": tensor '" + member.first + "'";
  SafetensorsFile::Entry entry;
  entry.name = member.first;
  if (member.second.object(where).size() != 3)
    throw Error("{}: expected exactly dtype, shape and data_offsets", where);
  entry.type = member.second.at("dtype", where).string(where + ": dtype");
  entry.shape = member.second.at("shape", where).shape(where + ": shape");
  const Json::Array& offsets = member.second.at("data_offsets", where).array(where + ": data_offsets");
  const auto type =
      std::find_if(std::begin(types), std::end(types), [&](const Type& t) { return t.name == entry.type; });
  if (type == std::end(types)) throw Error("{}: has the unknown dtype '{}'", where, entry.type);
  entry.dtype = entry.type == packed ? DType::float4_e2m1fn : parse_dtype(entry.type);
  if (offsets.size() != 2) throw Error("{}: data_offsets has {} numbers, expected 2", where, offsets.size());
  const std::int64_t begin = offsets[0].integer(where + ": data_offsets");
  const std::int64_t end = offsets[1].integer(where + ": data_offsets");
  std::int64_t bits = 0;
  if (begin < 0 || end < begin || __builtin_mul_overflow(element_count(entry.shape), type->bits, &bits) ||
      bits % 8 != 0 || bits / 8 != end - begin) {
    throw Error("{}: {} of shape {} does not fill its bytes [{}, {})", where, entry.type,
                to_string(entry.shape), begin, end);
  }
  entry.begin = data + static_cast<std::uint64_t>(begin);
  entry.end = data + static_cast<std::uint64_t>(end);
  return entry;
}

class SafetensorsDump : public Dump {
 public:
  SafetensorsDump(std::shared_ptr<const MappedFile> file, const OpenOptions& options)
      : file_(std::move(file)) {
    path = file_.file().path();
    format = "safetensors";
    records.reserve(file_.entries().size());
    for (const SafetensorsFile::Entry& entry : file_.entries()) {
      if (!entry.dtype) {
        left_out.push_back(why_left_out(file_, entry));
        continue;
      }
      records.push_back(safetensors_record(file_, entry, records.size(), options.dtype_hint));
      entries_.push_back(&entry);
    }
    if (std::any_of(records.begin(), records.end(), [](const Record& r) { return r.offsets.has_value(); })) {
      notes.push_back(path.string() +
                      ": one of the shards of a checkpoint; open its folder for the whole tensors");
    }
  }
  Tensor read(std::size_t index) const override {
    return file_.read(*entries_.at(index), records.at(index).dtype);
  }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + entries_.at(index)->name;
  }

 private:
  SafetensorsFile file_;
  std::vector<const SafetensorsFile::Entry*> entries_;
};

}  // namespace

SafetensorsFile::SafetensorsFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
  const std::string path = file_->path().string();
  const auto bytes = file_->bytes();
  if (bytes.size() < 8) throw Error("{}: too short for a safetensors file ({} bytes)", path, bytes.size());
  const auto length = load_little<std::uint64_t>(bytes, 0);
  if (length > max_header || length > bytes.size() - 8) {
    throw Error("{}: the safetensors header claims {} bytes, but the file has {} and the limit is {}", path,
                length, bytes.size() - 8, max_header);
  }
  const std::uint64_t data = 8 + length;
  const Json header = parse_json(file_->text().substr(8, length), path);
  std::string sharding;
  for (const Json::Member& member : header.object(path)) {
    if (member.first == "__metadata__") {
      for (const auto& [key, text] : member.second.object(path + ": __metadata__")) {
        const std::string& value = text.string(path + ": __metadata__");
        if (key == "DCP_SHARDING_INFO") sharding = value;
      }
    } else {
      entries_.push_back(parse_entry(member, data, path));
    }
  }
  check_data(data);
  by_name_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
  if (!sharding.empty()) read_sharding(sharding);
}

// Holes and overlaps are where a second file could hide.
void SafetensorsFile::check_data(std::uint64_t data) const {
  const std::string path = file_->path().string();
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries_) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
  });
  std::uint64_t position = data;
  for (const Entry* entry : sorted) {
    if (entry->begin != position) {
      throw Error("{}: tensor '{}' starts at byte {} of the data, expected {}: there is a hole or an overlap",
                  path, entry->name, entry->begin - data, position - data);
    }
    position = entry->end;
  }
  if (position != file_->bytes().size()) {
    throw Error("{}: the tensors end at byte {}, but the file has {}: it is truncated or damaged", path,
                position, file_->bytes().size());
  }
}

// torch/distributed/checkpoint/_hf_utils.py: {"name": {"saved_offsets": [..]}} for every tensor of the file.
void SafetensorsFile::read_sharding(const std::string& text) {
  const std::string where = file_->path().string() + ": DCP_SHARDING_INFO";
  const Json sharding = parse_json(text, where);
  offsets_.resize(entries_.size());
  std::vector<bool> known(entries_.size(), false);
  for (const Json::Member& member : sharding.object(where)) {
    const std::string tensor = where + ": tensor '" + member.first + "'";
    const auto found = by_name_.find(member.first);
    if (found == by_name_.end()) throw Error("{}: is not in the file", tensor);
    const Shape& shape = entries_[found->second].shape;
    Shape& offsets = offsets_[found->second];
    for (const Json& number : member.second.at("saved_offsets", tensor).array(tensor + ": saved_offsets"))
      offsets.push_back(number.integer(tensor + ": saved_offsets"));
    bool fits = offsets.size() == shape.size();
    std::int64_t end = 0;
    for (std::size_t d = 0; fits && d < shape.size(); ++d)
      fits = offsets[d] >= 0 && !__builtin_add_overflow(offsets[d], shape[d], &end);
    if (!fits) throw Error("{}: saved_offsets do not fit the shape {}", tensor, to_string(shape));
    known[found->second] = true;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!known[i]) throw Error("{}: has no saved_offsets of tensor '{}'", where, entries_[i].name);
  }
}

std::optional<Shape> SafetensorsFile::offsets(const Entry& entry) const {
  if (offsets_.empty()) return std::nullopt;
  return offsets_[static_cast<std::size_t>(&entry - entries_.data())];
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::string why_left_out(const SafetensorsFile& file, const SafetensorsFile::Entry& entry) {
  return file.file().path().string() + ": tensor '" + entry.name + "' is " + entry.type +
         ", which cannot be compared; expected a real type of 8 bits or more that assay knows, or an integer";
}

Record safetensors_record(const SafetensorsFile& file, const SafetensorsFile::Entry& entry, std::size_t seq,
                          std::optional<DType> hint) {
  const DType stored = entry.dtype.value();
  const DType dtype = stored == DType::float32 ? hinted(stored, hint) : stored;
  Record record = plain_record(entry.name, dtype, entry.shape, seq);
  record.offsets = file.offsets(entry);
  for (std::size_t d = 0; record.offsets && d < entry.shape.size(); ++d)
    record.global_shape[d] += (*record.offsets)[d];
  return record;
}

Tensor SafetensorsFile::read(const Entry& entry) const {
  if (!entry.dtype) throw Error("{}", why_left_out(*this, entry));
  return read(entry, *entry.dtype);
}

Tensor SafetensorsFile::read(const Entry& entry, DType dtype) const {
  const auto bytes = file_->bytes().subspan(entry.begin, entry.end - entry.begin);
  if (entry.type == packed) return {dtype, entry.shape, unpacked(bytes)};
  return {dtype, entry.shape, bytes, file_};
}

// A length in its limits, then '{' behind spaces.
bool fits_safetensors(const std::shared_ptr<const MappedFile>& file) {
  if (file->bytes().size() < 10) return false;
  const auto length = load_little<std::uint64_t>(file->bytes(), 0);
  if (length < 2 || length > max_header) return false;
  const std::size_t at = file->text().find_first_not_of(" \n\t\r", 8);
  return at != std::string_view::npos && file->text()[at] == '{';
}

std::unique_ptr<Dump> open_safetensors(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<SafetensorsDump>(std::move(file), options);
}

}  // namespace assay
