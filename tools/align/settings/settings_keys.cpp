#include "assay/align/settings/settings_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace assay::align {
namespace {

template <class T>
std::string read_number(std::string_view text, T low, T high, T& value) {
  T read = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, read);
  if (error != std::errc() || end != last || !(read >= low && read <= high))
    return fmt::format("a number from {} to {}", low, high);
  value = read;
  return "";
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> all;
  for (bool more = !text.empty(); more;) {
    const std::size_t end = std::min(text.find(mark), text.size());
    all.push_back(text.substr(0, end));
    more = end < text.size();
    text.remove_prefix(end + (more ? 1 : 0));
  }
  return all;
}

std::string listed(const std::vector<std::string_view>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string read_integer(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& value) {
  return read_number(text, low, high, value);
}

std::string read_real(std::string_view text, double low, double high, double& value) {
  return read_number(text, low, high, value);
}

std::string read_choice(std::string_view text, const std::vector<std::string_view>& names,
                        std::size_t& value) {
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (names[k] != text) continue;
    value = k;
    return "";
  }
  return listed(names);
}

std::string written(double x) {
  return fmt::format("{}", x);
}

}  // namespace assay::align
