#include "assay/dumps/safetensors.h"

#include <algorithm>

#include "assay/dumps/json.h"
#include "assay/dumps/readers.h"
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
  entry.dtype = parse_dtype(entry.type);
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
  explicit SafetensorsDump(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
    path = file_.file().path();
    format = "safetensors";
    for (const SafetensorsFile::Entry& entry : file_.entries()) {
      records.push_back(
          plain_record(entry.name, entry.dtype.value_or(DType::uint8), entry.shape, records.size()));
    }
  }
  Tensor read(std::size_t index) const override { return file_.read(file_.entries().at(index)); }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + file_.entries().at(index).name;
  }

 private:
  SafetensorsFile file_;
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
  for (const Json::Member& member : header.object(path)) {
    if (member.first == "__metadata__") {
      for (const auto& text : member.second.object(path + ": __metadata__"))
        text.second.string(path + ": __metadata__");
    } else {
      entries_.push_back(parse_entry(member, data, path));
    }
  }
  // Holes and overlaps are where a second file could hide.
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t position = data;
  for (const Entry& entry : entries_) {
    if (entry.begin != position) {
      throw Error("{}: tensor '{}' starts at byte {} of the data, expected {}: there is a hole or an overlap",
                  path, entry.name, entry.begin - data, position - data);
    }
    position = entry.end;
  }
  if (position != bytes.size()) {
    throw Error("{}: the tensors end at byte {}, but the file has {}: it is truncated or damaged", path,
                position, bytes.size());
  }
  by_name_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Tensor SafetensorsFile::read(const Entry& entry) const {
  if (!entry.dtype) {
    throw Error(
        "{}: tensor '{}' is {}, which cannot be compared; expected a real type of 8 bits or more or an "
        "integer",
        file_->path().string(), entry.name, entry.type);
  }
  return read(entry, *entry.dtype);
}

Tensor SafetensorsFile::read(const Entry& entry, DType dtype) const {
  return {dtype, entry.shape, file_->bytes().subspan(entry.begin, entry.end - entry.begin), file_};
}

// A length in its limits, then '{' behind spaces.
bool fits_safetensors(const std::shared_ptr<const MappedFile>& file) {
  if (file->bytes().size() < 10) return false;
  const auto length = load_little<std::uint64_t>(file->bytes(), 0);
  if (length < 2 || length > max_header) return false;
  const std::size_t at = file->text().find_first_not_of(" \n\t\r", 8);
  return at != std::string_view::npos && file->text()[at] == '{';
}

std::unique_ptr<Dump> open_safetensors(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  return std::make_unique<SafetensorsDump>(std::move(file));
}

}  // namespace assay
