#include "assay/dumps/msprobe/names.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace assay {
namespace {

// Nine digits fit every integer used for them.
bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::int64_t to_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "step12" after "step". With leading zeros two folders could have one number.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view head) {
  if (!text.starts_with(head)) return std::nullopt;
  text.remove_prefix(head.size());
  if (!is_number(text) || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  return to_number(text);
}

std::string join(const std::vector<std::string_view>& parts, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text.append(i == begin ? "" : ".").append(parts[i]);
  return text;
}

// Where the APIs of each type live; MindSpore's mint is PyTorch's interface under another name.
struct ApiType {
  std::string_view type, place;
};
constexpr ApiType api_types[] = {
    {"Functional", "torch.nn.functional."},
    {"Mint", "torch."},
    {"MintFunctional", "torch.nn.functional."},
    {"NPU", ""},
    {"Primitive", ""},
    {"Tensor", "torch.Tensor."},
    {"Torch", "torch."},
};

std::string api_name(std::string_view type, std::string_view name) {
  const auto found = std::ranges::find(api_types, type, &ApiType::type);
  return found == std::end(api_types) ? "" : std::string(found->place).append(name);
}

MsprobeName::Kind kind_of(std::string_view direction) {
  using Kind = MsprobeName::Kind;
  return direction == "forward"           ? Kind::forward
         : direction == "backward"        ? Kind::backward
         : direction == "parameters_grad" ? Kind::grad
                                          : Kind::other;
}

}  // namespace

std::vector<std::string_view> dotted_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

MsprobeName parse_msprobe_name(std::string_view text) {
  const std::vector<std::string_view> parts = dotted_parts(text);
  MsprobeName name;
  std::size_t end = parts.size();
  if (end >= 3 && parts[end - 1] == "debug" && is_number(parts[end - 2])) {
    name.kind = MsprobeName::Kind::debug;
    name.module = name.stem = join(parts, 0, end - 2);
    name.call = to_number(parts[end - 2]);
    return name;
  }
  const bool is_module = parts[0] == "Module" || parts[0] == "Cell";
  if (is_module && end >= 3 && is_number(parts[end - 1])) name.call = to_number(parts[--end]);
  name.kind = kind_of(parts[end - 1]);
  if (name.kind == MsprobeName::Kind::other || end < 2) {
    name = {};
    name.module = name.stem = text;
    return name;
  }
  --end;
  name.is_module = is_module;
  // Old modules count as APIs do. No class is a number.
  if (end >= 2 && is_number(parts[end - 1])) name.call = to_number(parts[--end]);
  name.stem = join(parts, 0, end);
  // The outermost model has a class and no path.
  name.module = is_module && end >= 3 ? join(parts, 1, end - 1) : name.stem;
  if (end >= 2) name.op = is_module ? std::string(parts[end - 1]) : api_name(parts[0], join(parts, 1, end));
  return name;
}

std::optional<std::int64_t> msprobe_step(std::string_view folder) {
  return number_after(folder, "step");
}

std::optional<std::int64_t> msprobe_rank(std::string_view folder) {
  return folder == "rank" ? 0 : number_after(folder, "rank");
}

bool is_msprobe_process(std::string_view folder) {
  return folder.starts_with("proc") && is_number(folder.substr(4));
}

std::optional<SavedVariable> parse_saved_variable(std::string_view file) {
  if (!file.ends_with(".npy")) return std::nullopt;
  file.remove_suffix(4);
  const std::size_t last = file.rfind('_');
  if (last == std::string_view::npos || !is_number(file.substr(last + 1))) return std::nullopt;
  // The dtype may hold a '_' of its own: float8_e4m3fn.
  for (std::size_t at = file.find('_'); at < last; at = file.find('_', at + 1)) {
    if (at == 0) continue;
    if (const auto dtype = parse_dtype(file.substr(at + 1, last - at - 1)))
      return SavedVariable{std::string(file.substr(0, at)), *dtype, to_number(file.substr(last + 1))};
  }
  return std::nullopt;
}

void CallNumbers::add(const MsprobeName& name, bool is_recomputed, std::int64_t micro_batch) {
  if (name.kind == MsprobeName::Kind::forward && is_recomputed) recomputed_[name.stem].push_back(name.call);
  if (name.kind == MsprobeName::Kind::backward && name.is_module)
    backward_[{name.stem, micro_batch}].insert(name.call);
}

std::int64_t CallNumbers::number(const MsprobeName& name, bool is_recomputed, std::int64_t micro_batch) {
  const bool is_call = name.kind == MsprobeName::Kind::forward || name.kind == MsprobeName::Kind::backward;
  if (!is_call) return name.call;
  const bool is_forward = name.kind == MsprobeName::Kind::forward;
  if (!is_forward && name.is_module && !recomputed_.contains(name.stem)) {
    const std::set<std::int64_t>& calls = backward_.at({name.stem, micro_batch});
    return std::distance(calls.begin(), calls.find(name.call));
  }
  if (!is_forward || is_recomputed || micro_batch >= 0)
    return seen_[{name.stem, name.kind, is_forward && is_recomputed, micro_batch}]++;
  const auto found = recomputed_.find(name.stem);
  if (found == recomputed_.end()) return name.call;
  return name.call - std::ranges::count_if(found->second, [&](std::int64_t c) { return c < name.call; });
}

}  // namespace assay
