#include <fmt/core.h>

#include <charconv>

#include "assay/dumps/dump.h"
#include "assay/golden/error.h"

namespace assay {

std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"none", "forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

std::string to_string(const Identity& id) {
  std::string text = id.module;
  for (const std::string* part : {&id.slot, &id.arg}) {
    if (!part->empty()) text += (text.empty() ? "" : " ") + *part;
  }
  if (id.phase == Phase::none && id.step == 0 && id.micro_batch == -1 && id.call == 0) return text;
  text += fmt::format(" (step {}", id.step);
  if (id.micro_batch != -1) text += fmt::format(", micro-batch {}", id.micro_batch);
  if (id.phase != Phase::none) text += fmt::format(", {}", name(id.phase));
  if (id.call != 0) text += fmt::format(", call {}", id.call);
  return text + ")";
}

Placement parse_placement(std::string_view text) {
  if (text == "Replicate()") return {Placement::Kind::replicate, 0};
  if (text == "Partial(sum)") return {Placement::Kind::partial, 0};
  constexpr std::string_view head = "Shard(dim=";
  if (text.starts_with(head) && text.ends_with(")")) {
    const char* const begin = text.data() + head.size();
    const char* const end = text.data() + text.size() - 1;
    int dim = -1;
    const auto [parsed, problem] = std::from_chars(begin, end, dim);
    if (problem == std::errc() && parsed == end && dim >= 0) return {Placement::Kind::shard, dim};
  }
  throw Error("placement '{}', expected Replicate(), Shard(dim=N) or Partial(sum)", text);
}

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::shard:
      return fmt::format("Shard(dim={})", placement.dim);
    case Placement::Kind::partial:
      return "Partial(sum)";
    case Placement::Kind::replicate:
      break;
  }
  return "Replicate()";
}

}  // namespace assay
