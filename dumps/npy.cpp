#include "assay/dumps/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/claim.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t max_header = 64 * 1024;

// A type that stands for no numbers; what is known of it is a sentence.
struct Refused {
  std::string why;
};

// The header is a Python dict literal; numpy writes exactly this much of the grammar.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      bool* seen = key == "descr" ? &has_descr : key == "fortran_order" ? &has_order : &has_shape;
      if ((key != "descr" && key != "fortran_order" && key != "shape") || *seen) {
        fail("the key '" + key + "'", "descr, fortran_order and shape, once each");
      }
      *seen = true;
      if (key == "descr") {
        header.descr = descr();
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else {
        header.shape = shape();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) fail("a missing key", "descr, fortran_order and shape");
    skip_space();
    if (at_ != text_.size()) fail("text behind the dict", "spaces only");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& found, std::string_view expected) const {
    throw Error("{}: the npy header has {} at byte {}, expected {}", where_, found, at_, expected);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("other text", std::string("'") + c + "'");
  }
  std::string quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("other text", "a quoted string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("an open string", "its closing quote");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  std::string descr() {
    skip_space();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      throw Refused{
          "the array has a structured dtype, expected plain numbers: save each field as its own array"};
    }
    return quoted();
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("other text", "True or False");
  }
  Shape shape() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t extent = -1;
      const char* const begin = text_.data() + at_;
      const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (problem != std::errc() || extent < 0) fail("other text", "an extent");
      at_ += static_cast<std::size_t>(end - begin);
      accept('L');  // Python 2 wrote 3L
      shape.push_back(extent);
      if (shape.size() > 64) fail("more than 64 extents", "at most 64");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

// kind and bytes of "<f4", or a whole name as some write by hand ('bfloat16').
void resolve_dtype(NpyHeader& header, std::optional<DType> hint) {
  std::string_view code = header.descr;
  if (const auto named = parse_dtype(code); named && code.size() > 3) {
    header.dtype = named;
    return;
  }
  if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
    header.big_endian = code[0] == '>';
    code.remove_prefix(1);
  }
  if (code.starts_with('O')) {
    throw Refused{"the array holds Python objects (a pickle), which are never loaded: save numbers"};
  }
  struct Code {
    std::string_view code;
    DType dtype;
  };
  // float8_e5m2 of ml_dtypes calls itself f1.
  constexpr Code codes[] = {{"f8", DType::float64},     {"f4", DType::float32}, {"f2", DType::float16},
                            {"f1", DType::float8_e5m2}, {"i8", DType::int64},   {"i4", DType::int32},
                            {"i2", DType::int16},       {"i1", DType::int8},    {"u8", DType::uint64},
                            {"u4", DType::uint32},      {"u2", DType::uint16},  {"u1", DType::uint8},
                            {"b1", DType::boolean},     {"?", DType::boolean}};
  for (const Code& known : codes) {
    if (known.code == code) header.dtype = known.dtype;
  }
  const bool is_opaque = code == "V2" || code == "V1";
  if (!header.dtype && !is_opaque) {
    throw Refused{"the array has numpy type '" + header.descr + "', expected real numbers or booleans"};
  }
  if (header.dtype) {
    header.dtype = hinted(*header.dtype, hint);
  } else if (hint && size_of(*hint) == static_cast<std::size_t>(code[1] - '0')) {
    header.dtype = hint;
  }
}

std::size_t item_size(const NpyHeader& header) {
  return header.dtype ? size_of(*header.dtype) : static_cast<std::size_t>(header.descr.back() - '0');
}

// Little-endian, in C order.
Tensor in_c_order(const NpyHeader& header, std::span<const std::byte> data,
                  std::shared_ptr<const void> owner) {
  const std::size_t size = size_of(*header.dtype);
  const bool swap = header.big_endian && size > 1;
  const std::size_t rank = header.shape.size();
  Shape stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  const Tensor tensor = swap ? Tensor(*header.dtype, stored, byte_swapped({data.begin(), data.end()}, size))
                             : Tensor(*header.dtype, stored, data, std::move(owner));
  if (!header.fortran_order || rank < 2) return tensor;
  Shape strides(rank, 1);
  for (std::size_t d = 1; d < rank; ++d) strides[d] = strides[d - 1] * header.shape[d - 1];
  return gather_view(tensor, header.shape, strides, 0);
}

class NpyDump : public Dump {
 public:
  NpyDump(std::shared_ptr<const MappedFile> file, const OpenOptions& options) : file_(std::move(file)) {
    path = file_->path();
    format = "npy";
    header_ = parse_npy(file_->bytes(), file_->bytes().size(), path.string(), options.dtype_hint);
    if (!header_.refused.empty()) throw Error("{}: {}", path.string(), header_.refused);
    records.push_back(plain_record("", listed_dtype(header_), header_.shape, 0));
  }
  Tensor read(std::size_t) const override { return read_npy(header_, file_->bytes(), file_, path.string()); }
  std::string location(std::size_t) const override { return path.string(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy(std::span<const std::byte> head, std::uint64_t size, std::string_view where,
                    std::optional<DType> hint) {
  if (head.size() < 10 || std::memcmp(head.data(), npy_magic.data(), npy_magic.size()) != 0) {
    throw Error("{}: not a whole npy file: its first bytes are not \\x93NUMPY and a version", where);
  }
  const auto version = static_cast<unsigned>(head[6]);
  if (version < 1 || version > 3 || static_cast<unsigned>(head[7]) != 0) {
    throw Error("{}: npy version {}.{}, expected 1.0 to 3.0", where, version, static_cast<unsigned>(head[7]));
  }
  const std::size_t start = version == 1 ? 10 : 12;
  if (head.size() < start) throw Error("{}: the npy header is cut off", where);
  const std::size_t length =
      version == 1 ? load_little<std::uint16_t>(head, 8) : load_little<std::uint32_t>(head, 8);
  if (length > max_header || length > head.size() - start) {
    throw Error("{}: the npy header claims {} bytes, but the file has {} and the limit is {}", where, length,
                head.size() - start, max_header);
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + start, length);
  NpyHeader header;
  try {
    header = HeaderParser(text, where).parse();
    resolve_dtype(header, hint);
  } catch (Refused& refused) {
    header.refused = std::move(refused.why);
    return header;
  }
  header.data_offset = start + length;

  // numpy refuses a product that overflows even where a later extent is 0, and so does this.
  auto bytes = static_cast<std::int64_t>(item_size(header));
  bool fits = true;
  for (const std::int64_t extent : header.shape)
    fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
  const std::uint64_t have = size - header.data_offset;
  if (!fits || static_cast<std::uint64_t>(bytes) != have) {
    throw Error(
        "{}: an array of {} of shape {} does not fill the {} bytes behind its header: the file is damaged",
        where, header.descr, to_string(header.shape), have);
  }
  return header;
}

Tensor read_npy(const NpyHeader& header, std::span<const std::byte> file, std::shared_ptr<const void> owner,
                std::string_view where) {
  if (!header.dtype) {
    throw Error(
        "{}: numpy type '{}' says only how many bytes an element has: pass --dtype-hint (bfloat16, ..)",
        where, header.descr);
  }
  const std::span<const std::byte> data = file.subspan(header.data_offset);
  return within_memory(data.size(), where, [&] { return in_c_order(header, data, std::move(owner)); });
}

DType listed_dtype(const NpyHeader& header) {
  return header.dtype.value_or(item_size(header) == 2 ? DType::uint16 : DType::uint8);
}

bool fits_npy(const std::shared_ptr<const MappedFile>& file) {
  return has_magic(*file, npy_magic);
}

std::unique_ptr<Dump> open_npy(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<NpyDump>(std::move(file), options);
}

}  // namespace assay
