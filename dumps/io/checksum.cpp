#include "assay/dumps/io/checksum.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <memory>

#include "assay/golden/error.h"
#include "assay/golden/sketcher.h"

namespace assay {
namespace {

using Bytes = std::span<const std::byte>;

/// SHA-256 or MD5, part by part.
class Digest {
 public:
  explicit Digest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    works_ = context_ && EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1;
  }
  void add(Bytes bytes) {
    works_ = works_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  std::string text() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned length = 0;
    if (!works_ || EVP_DigestFinal_ex(context_.get(), digest.data(), &length) != 1)
      throw Error(
          "checksums are not available from the OpenSSL library; expected a build with SHA-256 and MD5");
    std::string text;
    for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  bool works_;
};

class Crc32 {
 public:
  void add(Bytes bytes) { sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()); }
  std::string text() const { return fmt::format("{:08x}", sum_); }

 private:
  unsigned long sum_ = 0;
};

/// msprobe's xor_checksum: of words of 64 bits, the last one filled up with zeros.
class Xor {
 public:
  void add(Bytes bytes) {
    for (const std::byte b : bytes) word_[at_++ % word_.size()] ^= b;
  }
  std::string text() const {
    std::string text = "0x";
    for (auto b = word_.rbegin(); b != word_.rend(); ++b)
      text += fmt::format("{:02x}", std::to_integer<unsigned>(*b));
    return text;
  }

 private:
  std::array<std::byte, 8> word_{};
  std::size_t at_ = 0;
};

template <class Sum>
std::string text_of(Sum sum, const TensorSource& tensor) {
  tensor.for_each_window([&](const Tensor& window, std::int64_t) { sum.add(window.bytes()); });
  return sum.text();
}

template <class Sum>
std::string text_of_float32(Sum sum, const TensorSource& tensor) {
  tensor.for_each_window([&](const Tensor& window, std::int64_t) {
    sum.add(Tensor::from_values(DType::float32, {window.size()}, window.values()).bytes());
  });
  return sum.text();
}

}  // namespace

std::string sha256(Bytes bytes) {
  Digest digest(EVP_sha256());
  digest.add(bytes);
  return digest.text();
}

std::string sha256(const TensorSource& tensor) {
  return text_of(Digest(EVP_sha256()), tensor);
}

std::string_view checksum_kind(std::string_view checksum) {
  return checksum.substr(0, checksum.find(':'));
}

std::optional<bool> has_checksum(const TensorSource& tensor, std::string_view checksum) {
  const std::string_view kind = checksum_kind(checksum);
  std::string expected(checksum.substr(std::min(kind.size() + 1, checksum.size())));
  std::ranges::transform(expected, expected.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_bfloat16 = tensor.dtype() == DType::bfloat16;
  if (kind == "sha256") return sha256(tensor) == expected;
  if (kind == "fingerprint") return fmt::format("{:016x}", fingerprint_of_bits(tensor)) == expected;
  if (kind == "crc32(float32)") return text_of_float32(Crc32(), tensor) == expected;
  if (kind == "crc32")
    return text_of(Crc32(), tensor) == expected ||
           (is_bfloat16 && text_of_float32(Crc32(), tensor) == expected);
  if (kind == "md5")
    return text_of(Digest(EVP_md5()), tensor) == expected ||
           (is_bfloat16 && text_of_float32(Digest(EVP_md5()), tensor) == expected);
  // Of a scalar msprobe takes the value itself.
  if (kind == "xor" && !tensor.shape().empty()) return text_of(Xor(), tensor) == expected;
  return std::nullopt;
}

}  // namespace assay
