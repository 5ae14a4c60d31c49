#include <fmt/format.h>

#include <cmath>

#include "assay/compare/result/printable.h"

namespace assay {
namespace {

// Length of the well-formed UTF-8 sequence at the front (Unicode 15, table 3-7); 0 if there is none.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if ((first & 0xf0) == 0xe0) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0, surrogate = first == 0xed && byte(1) >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90, beyond = first == 0xf4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

struct Range {
  std::uint32_t first, last;
};
// Controls, marks that reorder or hide text, and what XML has no way to say.
constexpr Range misleading[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
                                {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f}};

// Of a well-formed sequence.
bool is_misleading(std::string_view sequence) {
  if (sequence.size() == 1) return static_cast<unsigned char>(sequence[0]) < 0x20 || sequence[0] == 0x7f;
  constexpr unsigned lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};  // the bits of the first byte, by length
  std::uint32_t c = static_cast<unsigned char>(sequence.front()) & lead[sequence.size()];
  for (const char next : sequence.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3fu);
  for (const Range& r : misleading) {
    if (c >= r.first && c <= r.last) return true;
  }
  return false;
}

// The text with every byte of what cannot be shown replaced.
template <class Replace>
std::string shown(std::string_view text, Replace replace) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    if (length == 0 || is_misleading(sequence)) {
      for (const char c : sequence) out += replace(c);
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return shown(text, [](char c) { return fmt::format("\\x{:02x}", static_cast<unsigned char>(c)); });
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string only_option(std::string_view name) {
  const std::string_view between = name.starts_with('-') ? "=" : " ";  // else it would be taken for an option
  return fmt::format(" --only{}{}", between, shell_quoted(shown(name, [](char) { return "?"; })));
}

std::string format_value(DType dtype, double value) {
  // Every narrower float is a float32, so its shortest float32 digits identify it.
  if (is_float(dtype) && dtype != DType::float64) return fmt::format("{}", static_cast<float>(value));
  if (!is_float(dtype) && std::abs(value) < 0x1p53)
    return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view safe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:@%+";
  if (!word.empty() && word.find_first_not_of(safe) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3;
       i > 0 && digits[static_cast<std::size_t>(i) - 1] != '-'; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

}  // namespace assay
