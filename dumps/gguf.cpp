#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/claim.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// ggml-org/ggml, docs/gguf.md. All counts and lengths are 64-bit and bounded by the bytes that are left.
constexpr std::string_view magic = "GGUF";
constexpr std::uint32_t max_dimensions = 4;      // GGML_MAX_DIMS
constexpr std::uint64_t default_alignment = 32;  // where general.alignment is not given
constexpr std::uint64_t max_key = 65535;         // the specification's limit

// A tensor type: `block` elements in `bytes` bytes. gguf-py, constants.py, GGML_QUANT_SIZES.
struct Type {
  std::uint32_t code;
  std::string_view name;
  std::uint64_t block, bytes;
  std::optional<DType> dtype;  // nothing: quantised
};
const Type types[] = {{0, "F32", 1, 4, DType::float32},
                      {1, "F16", 1, 2, DType::float16},
                      {2, "Q4_0", 32, 18, {}},
                      {3, "Q4_1", 32, 20, {}},
                      {6, "Q5_0", 32, 22, {}},
                      {7, "Q5_1", 32, 24, {}},
                      {8, "Q8_0", 32, 34, {}},
                      {9, "Q8_1", 32, 40, {}},
                      {10, "Q2_K", 256, 84, {}},
                      {11, "Q3_K", 256, 110, {}},
                      {12, "Q4_K", 256, 144, {}},
                      {13, "Q5_K", 256, 176, {}},
                      {14, "Q6_K", 256, 210, {}},
                      {15, "Q8_K", 256, 292, {}},
                      {16, "IQ2_XXS", 256, 66, {}},
                      {17, "IQ2_XS", 256, 74, {}},
                      {18, "IQ3_XXS", 256, 98, {}},
                      {19, "IQ1_S", 256, 50, {}},
                      {20, "IQ4_NL", 32, 18, {}},
                      {21, "IQ3_S", 256, 110, {}},
                      {22, "IQ2_S", 256, 82, {}},
                      {23, "IQ4_XS", 256, 136, {}},
                      {24, "I8", 1, 1, DType::int8},
                      {25, "I16", 1, 2, DType::int16},
                      {26, "I32", 1, 4, DType::int32},
                      {27, "I64", 1, 8, DType::int64},
                      {28, "F64", 1, 8, DType::float64},
                      {29, "IQ1_M", 256, 56, {}},
                      {30, "BF16", 1, 2, DType::bfloat16},
                      {34, "TQ1_0", 256, 54, {}},
                      {35, "TQ2_0", 256, 66, {}},
                      {39, "MXFP4", 32, 17, {}},
                      {40, "NVFP4", 64, 36, {}}};

// Of metadata values.
enum ValueType : std::uint32_t { boolean = 7, string = 8, array = 9, uint32 = 4 };
// Bytes of a value of the types 0 to 12: u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64; 0: no fixed
// size.
constexpr std::uint64_t value_sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct Info {
  std::string name;
  const Type* type = nullptr;  // nothing: newer than this table
  std::uint32_t code = 0;
  Shape shape;
  std::uint64_t begin = 0, size = 0;  // in the file
};

// Reads from the front; every step is checked against the end of the file.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}
  bool big_endian = false;

  std::uint64_t position() const { return at_; }
  std::uint64_t left() const { return file_.bytes().size() - at_; }
  void skip(std::uint64_t bytes, std::string_view what) {
    file_.range(at_, bytes, what);
    at_ += bytes;
  }
  template <class T>
  T number(std::string_view what) {
    const auto bytes = file_.range(at_, sizeof(T), what);
    at_ += sizeof(T);
    if (!big_endian) return load_little<T>(bytes, 0);
    const auto swapped = byte_swapped({bytes.begin(), bytes.end()}, sizeof(T));
    return load_little<T>(swapped, 0);
  }
  std::string text(std::uint64_t limit, std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    if (length > left() || length > limit) {
      throw Error("{}: {} claims {} bytes, but {} are left and the limit is {}", file_.path().string(), what,
                  length, left(), limit);
    }
    const std::string value(file_.text().substr(at_, length));
    at_ += length;
    return value;
  }
  /// A count of things that take at least `smallest` bytes each.
  std::uint64_t count(std::uint64_t smallest, std::string_view what) {
    const auto value = number<std::uint64_t>(what);
    if (value > left() / smallest) {
      throw Error("{}: claims {} {}, more than the {} bytes that are left can hold", file_.path().string(),
                  value, what, left());
    }
    return value;
  }

 private:
  const MappedFile& file_;
  std::uint64_t at_ = 0;
};

class GgufDump : public Dump {
 public:
  explicit GgufDump(std::shared_ptr<const MappedFile> file) : file_(std::move(file)), cursor_(*file_) {
    path = file_->path();
    format = "gguf";
    read_header();
    const auto tensors = cursor_.count(smallest_info, "tensors");
    const auto values = cursor_.count(smallest_value, "metadata values");
    for (std::uint64_t i = 0; i < values; ++i) read_value();
    std::vector<Info> infos;
    for (std::uint64_t i = 0; i < tensors; ++i) infos.push_back(read_info());
    place(infos);
    for (Info& info : infos) {
      if (info.type != nullptr && info.type->dtype) {
        records.push_back(plain_record(info.name, *info.type->dtype, info.shape, records.size()));
        infos_.push_back(std::move(info));
      } else {
        left_out.push_back(
            fmt::format("{}: is {}: dequantise it (gguf-py: dequantize) to compare it", where(info),
                        info.type != nullptr ? fmt::format("quantised as {}", info.type->name)
                                             : fmt::format("of the unknown type {}", info.code)));
      }
    }
  }
  Tensor read(std::size_t index) const override {
    const Info& info = infos_.at(index);
    const auto bytes = file_->range(info.begin, info.size, "tensor '" + info.name + "'");
    const DType dtype = *info.type->dtype;
    if (!cursor_.big_endian || size_of(dtype) == 1) return {dtype, info.shape, bytes, file_};
    return within_memory(info.size, where(info), [&] {
      return Tensor(dtype, info.shape, byte_swapped({bytes.begin(), bytes.end()}, size_of(dtype)));
    });
  }
  std::string location(std::size_t index) const override { return where(infos_.at(index)); }

 private:
  // A name's length, dimensions, type and offset; a key's length and a type and a byte.
  static constexpr std::uint64_t smallest_info = 8 + 4 + 4 + 8, smallest_value = 8 + 4 + 1;

  std::string where(const Info& info) const { return path.string() + ": tensor '" + info.name + "'"; }

  void read_header() {
    cursor_.skip(magic.size(), "the magic");
    auto version = cursor_.number<std::uint32_t>("the version");
    // A version in the upper half is one of the other byte order.
    if ((version & 0xffff) == 0) {
      cursor_.big_endian = true;
      version = version >> 24 | (version >> 8 & 0xff00);
    }
    if (version != 2 && version != 3)
      throw Error("{}: GGUF version {}, expected 2 or 3: convert it again", path.string(), version);
  }

  void read_value() {
    std::string key = cursor_.text(max_key, "a metadata key");
    const std::string what = "metadata '" + key + "'";
    const auto type = cursor_.number<std::uint32_t>(what);
    if (key == "general.alignment") {
      if (type != uint32) throw Error("{}: {} has type {}, expected uint32", path.string(), what, type);
      alignment_ = cursor_.number<std::uint32_t>(what);
      if (alignment_ == 0 || (alignment_ & (alignment_ - 1)) != 0)
        throw Error("{}: {} is {}, expected a power of two", path.string(), what, alignment_);
    } else {
      skip_values(type, what);
    }
    if (!keys_.insert(std::move(key)).second)
      throw Error("{}: {} stands twice in the file", path.string(), what);
  }

  // Arrays may lie in arrays, to any depth: what is still to come of each is on a stack of our own.
  void skip_values(std::uint32_t type, const std::string& what) {
    struct Run {
      std::uint32_t type;
      std::uint64_t count;
    };
    std::vector<Run> open = {{type, 1}};
    while (!open.empty()) {
      Run& run = open.back();
      if (run.type >= std::size(value_sizes))
        throw Error("{}: {} has the unknown type {}", path.string(), what, run.type);
      const std::uint64_t size = value_sizes[run.type];
      if (size != 0) {
        // Of fixed size: all at once. The count is at most the bytes that are left, so nothing overflows.
        for (std::uint64_t i = 0; run.type == boolean && i < run.count; ++i) {
          if (file_->range(cursor_.position() + i, 1, what)[0] > std::byte{1})
            throw Error("{}: {} is a bool other than 0 and 1", path.string(), what);
        }
        cursor_.skip(run.count * size, what);
        run.count = 0;
      } else if (run.count != 0) {
        --run.count;
        if (run.type == string) {
          cursor_.skip(cursor_.number<std::uint64_t>(what), what);
        } else {
          const auto inner = cursor_.number<std::uint32_t>(what);
          open.push_back({inner, cursor_.count(1, what + " elements")});
          continue;
        }
      }
      if (run.count == 0) open.pop_back();
    }
  }

  Info read_info() {
    Info info;
    info.name = cursor_.text(max_name_length, "a tensor's name");
    if (!names_.insert(info.name).second) throw Error("{}: stands twice in the file", where(info));
    const auto dimensions = cursor_.number<std::uint32_t>("a tensor's dimensions");
    if (dimensions > max_dimensions)
      throw Error("{}: has {} dimensions, expected at most {}", where(info), dimensions, max_dimensions);
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const auto extent = cursor_.number<std::uint64_t>("a tensor's shape");
      if (extent > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        throw Error("{}: has an extent of {}, expected less than 2^63", where(info), extent);
      info.shape.push_back(static_cast<std::int64_t>(extent));
    }
    const std::uint64_t innermost = info.shape.empty() ? 1 : static_cast<std::uint64_t>(info.shape.front());
    std::uint64_t elements = 1;
    bool fits = true;
    for (const std::int64_t extent : info.shape)
      fits = fits && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements);
    std::reverse(info.shape.begin(), info.shape.end());  // GGUF counts from the innermost dimension
    info.code = cursor_.number<std::uint32_t>("a tensor's type");
    const auto* type =
        std::find_if(std::begin(types), std::end(types), [&](const Type& t) { return t.code == info.code; });
    if (type != std::end(types)) info.type = type;
    info.begin = cursor_.number<std::uint64_t>("a tensor's offset");
    if (info.type != nullptr) {
      // Blocks do not reach over the end of a row.
      fits = fits && innermost % info.type->block == 0 &&
             !__builtin_mul_overflow(elements / info.type->block, info.type->bytes, &info.size) &&
             info.size <= file_->bytes().size();
    }
    if (!fits) {
      throw Error("{}: {} of shape {} is no whole number of blocks, or larger than the file", where(info),
                  info.type != nullptr ? info.type->name : "its type", to_string(info.shape));
    }
    return info;
  }

  // Offsets count from the first aligned byte behind the header; each tensor starts where the one before it,
  // padded, ends. A type of unknown size ends anywhere.
  void place(std::vector<Info>& infos) {
    const auto padded = [&](std::uint64_t bytes) {
      return (bytes + alignment_ - 1) / alignment_ * alignment_;
    };
    const std::uint64_t data = padded(cursor_.position()), end = file_->bytes().size();
    std::vector<Info*> sorted;
    for (Info& info : infos) {
      if (info.begin % alignment_ != 0)
        throw Error("{}: lies at {}, expected a multiple of {}", where(info), info.begin, alignment_);
      if (data > end || info.begin > end - data || info.size > end - data - info.begin) {
        throw Error("{}: is {} bytes at {} of the data, but the file has {}: it is truncated or damaged",
                    where(info), info.size, info.begin, end > data ? end - data : 0);
      }
      info.begin += data;
      sorted.push_back(&info);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const Info* a, const Info* b) {
      return std::tie(a->begin, a->size) < std::tie(b->begin, b->size);
    });
    std::uint64_t expected = data, unpadded = cursor_.position();
    for (const Info* info : sorted) {
      if (info->begin < expected || (info->begin != expected && !any_size_)) {
        throw Error("{}: lies at byte {}, expected {}: there is a hole or an overlap", where(*info),
                    info->begin, expected);
      }
      any_size_ = info->type == nullptr;
      unpadded = info->begin + info->size;
      expected = padded(unpadded);
    }
    // Some writers pad the last tensor, too.
    if (end != unpadded && end != expected && !any_size_) {
      throw Error("{}: the tensors end at byte {}, but the file has {}: it is damaged", path.string(),
                  unpadded, end);
    }
  }

  std::shared_ptr<const MappedFile> file_;
  Cursor cursor_;
  std::uint64_t alignment_ = default_alignment;
  bool any_size_ = false;  // the last tensor placed has a type whose size is not known
  std::set<std::string> keys_, names_;
  std::vector<Info> infos_;
};

}  // namespace

bool fits_gguf(const std::shared_ptr<const MappedFile>& file) {
  return has_magic(*file, magic);
}

std::unique_ptr<Dump> open_gguf(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  return std::make_unique<GgufDump>(std::move(file));
}

}  // namespace assay
