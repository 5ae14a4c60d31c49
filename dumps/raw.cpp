#include <charconv>

#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::string_view form = "expected DTYPE:N,N,.. such as float32:4,8";

class RawDump : public Dump {
 public:
  RawDump(std::shared_ptr<const MappedFile> file, const RawArray& raw) : file_(std::move(file)) {
    path = file_->path();
    format = "raw";
    auto bytes = static_cast<std::int64_t>(size_of(raw.dtype));
    bool fits = true;
    for (const std::int64_t extent : raw.shape) fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    if (!fits || static_cast<std::uint64_t>(bytes) != file_->bytes().size()) {
      throw Error("{}: has {} bytes, which is not {} of shape {}, as --raw says", path.string(),
                  file_->bytes().size(), name(raw.dtype), to_string(raw.shape));
    }
    records.push_back(plain_record("", raw.dtype, raw.shape, 0));
  }
  Tensor read(std::size_t) const override {
    return {records[0].dtype, records[0].shape, file_->bytes(), file_};
  }
  std::string location(std::size_t) const override { return path.string(); }

 private:
  std::shared_ptr<const MappedFile> file_;
};

}  // namespace

RawArray parse_raw(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto dtype = parse_dtype(text.substr(0, colon));
  if (colon == std::string_view::npos || !dtype) throw Error("'{}': is no raw array; {}", text, form);
  std::string_view rest = text.substr(colon + 1);
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  RawArray raw{*dtype, {}};
  while (!rest.empty()) {
    std::int64_t extent = -1;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const bool more = rest.starts_with(',');
    if (more) rest.remove_prefix(rest.starts_with(", ") ? 2 : 1);
    if (problem != std::errc() || extent < 0 || more == rest.empty())
      throw Error("'{}': is no raw array; {}", text, form);
    raw.shape.push_back(extent);
  }
  return raw;
}

std::unique_ptr<Dump> open_raw(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<RawDump>(std::move(file), options.raw.value());
}

}  // namespace assay
