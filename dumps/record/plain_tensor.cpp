#include "assay/dumps/record/plain_tensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "assay/golden/error.h"

namespace assay {
namespace {

// A mark behind names that would otherwise be taken apart.
constexpr std::string_view mark = "name";
constexpr std::string_view keys[] = {"step", "micro_batch", "phase", "slot", "arg", "call"};

// A value ends at a comma, and the fields start behind the last '@'.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '%' || c == ',' || c == '@') {
      text += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      text += c;
    }
  }
  return text;
}

std::string unescaped(std::string_view text) {
  std::string value;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '%' && text.size() - i > 2 &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, code, 16).ptr == text.data() + i + 3) {
      value += static_cast<char>(code);
      i += 2;
    } else {
      value += text[i];
    }
  }
  return value;
}

std::string fields_of(const Identity& id) {
  const Identity usual;
  std::string text;
  const auto add = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  };
  if (id.step != usual.step) add("step", std::to_string(id.step));
  if (id.micro_batch != usual.micro_batch) add("micro_batch", std::to_string(id.micro_batch));
  if (id.phase != usual.phase) add("phase", std::string(name(id.phase)));
  if (id.slot != usual.slot) add("slot", escaped(id.slot));
  if (id.arg != usual.arg) add("arg", escaped(id.arg));
  if (id.call != usual.call) add("call", std::to_string(id.call));
  return text;
}

bool parse_field(std::string_view key, std::string_view value, Identity& id) {
  if (key == "phase") {
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      if (value == name(phase)) id.phase = phase;
    }
    return id.phase != Phase::none;
  }
  if (key == "slot") {
    id.slot = unescaped(value);
    return is_slot(id.slot);
  }
  if (key == "arg") {
    id.arg = unescaped(value);
    return true;
  }
  std::int64_t* number = key == "step" ? &id.step : key == "call" ? &id.call : &id.micro_batch;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), *number);
  return problem == std::errc() && end == value.data() + value.size() && *number >= -1 &&
         *number <= max_index_number;
}

// A name with fields behind its last '@', as plain_name writes them and in no other spelling.
std::optional<Identity> parse_fields(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  Identity id;
  id.module = text.substr(0, at);
  const std::string_view fields = text.substr(at + 1);
  for (std::string_view rest = fields; !rest.empty();) {
    const std::string_view field = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const std::string_view key = field.substr(0, field.find('='));
    if (key.size() == field.size() || std::find(std::begin(keys), std::end(keys), key) == std::end(keys) ||
        !parse_field(key, field.substr(key.size() + 1), id)) {
      return std::nullopt;
    }
  }
  if (fields.empty() || fields_of(id) != fields) return std::nullopt;
  return id;
}

std::optional<std::string_view> without_mark(std::string_view text) {
  if (!text.ends_with(mark)) return std::nullopt;
  text.remove_suffix(mark.size());
  if (!text.ends_with('@')) return std::nullopt;
  return text.substr(0, text.size() - 1);
}

bool is_special(std::string_view text) {
  return without_mark(text) || parse_fields(text);
}

}  // namespace

std::string plain_name(const Identity& id) {
  const std::string fields = fields_of(id);
  if (!fields.empty()) return id.module + "@" + fields;
  return is_special(id.module) ? id.module + "@" + std::string(mark) : id.module;
}

Identity parse_plain_name(std::string_view text) {
  if (const auto id = parse_fields(text)) return *id;
  const auto bare = without_mark(text);
  Identity id;
  id.module = bare && is_special(*bare) ? *bare : text;
  return id;
}

void check_path_name(std::string_view name, std::string_view where) {
  constexpr std::size_t longest = 255 - std::string_view(".npy").size();  // NAME_MAX
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    if (part.empty() || part == "." || part == ".." || part.size() > longest ||
        part.find('\0') != std::string_view::npos) {
      throw Error("{}: '{}' cannot name a file or a group; convert to safetensors or assay-dump", where,
                  name);
    }
    at = slash + 1;
  }
}

}  // namespace assay
