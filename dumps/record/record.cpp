#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {

// Of a shard; the rank of a tensor is far below.
constexpr std::int64_t max_dim = 1 << 16;

std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"none", "forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

bool is_slot(std::string_view word) {
  return std::ranges::find(identity_slots, word) != std::end(identity_slots);
}

Phase parse_phase(std::string_view text, std::string_view where) {
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    if (text == name(phase)) return phase;
  }
  throw Error("{}: phase '{}', expected forward, backward or optimizer", where, text);
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

Sketch Dump::read_sketch(std::size_t index) const {
  throw Error("{}: no sketch of it was recorded; expected an assay-dump of sketches", location(index));
}

Placement parse_placement(std::string_view text) {
  if (text == "Replicate()") return {};
  if (text == "Partial(sum)") return {Placement::Kind::partial};
  // The number after `head`, which is taken off the text.
  const auto number_after = [&](std::string_view head) -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    if (!text.starts_with(head)) return std::nullopt;
    const char* const end = text.data() + text.size();
    const auto [parsed, problem] = std::from_chars(text.data() + head.size(), end, number);
    if (problem != std::errc() || number < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(parsed - text.data()));
    return number;
  };
  const std::string_view whole = text;
  if (const auto dim = number_after("Shard(dim="); dim && *dim <= max_dim) {
    if (text == ")") return {Placement::Kind::shard, static_cast<int>(*dim)};
    if (text == ", zigzag)") return {Placement::Kind::shard, static_cast<int>(*dim), 1, true};
  } else if (const auto strided = number_after("_StridedShard(dim="); strided && *strided <= max_dim) {
    const auto factor = number_after(", sf=");
    if (factor && *factor > 0 && text == ")")
      return {Placement::Kind::shard, static_cast<int>(*strided), *factor};
  }
  throw Error(
      "placement '{}', expected Replicate(), Shard(dim=N), Shard(dim=N, zigzag), _StridedShard(dim=N, sf=M) "
      "or "
      "Partial(sum)",
      whole);
}

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::shard:
      if (placement.split_factor != 1)
        return fmt::format("_StridedShard(dim={}, sf={})", placement.dim, placement.split_factor);
      return fmt::format("Shard(dim={}{})", placement.dim, placement.zigzag ? ", zigzag" : "");
    case Placement::Kind::partial:
      return "Partial(sum)";
    case Placement::Kind::replicate:
      break;
  }
  return "Replicate()";
}

Record plain_record(std::string name, DType dtype, Shape shape, std::size_t seq) {
  Record record;
  record.id.module = std::move(name);
  record.seq = static_cast<std::int64_t>(seq);
  record.dtype = dtype;
  record.global_shape = shape;
  record.shape = std::move(shape);
  return record;
}

DType hinted(DType stored, std::optional<DType> hint) {
  if (!hint) return stored;
  // Wider integers are indices, and every wider float has a name of its own in every format.
  const bool is_raw = !is_float(stored) && stored != DType::boolean && size_of(stored) <= 2;
  const bool is_narrowed = stored == DType::float32 && (hint == DType::tfloat32 || hint == DType::hfloat32);
  return (is_raw && size_of(*hint) == size_of(stored)) || is_narrowed ? *hint : stored;
}

Tensor as_recorded(Tensor stored, bool may_be_widened, const Record& record, std::string_view where,
                   std::string_view source) {
  const bool is_widened = may_be_widened && stored.dtype() == DType::float32 && is_float(record.dtype) &&
                          size_of(record.dtype) < 4;
  if ((stored.dtype() != record.dtype && !is_widened) || stored.shape() != record.shape) {
    throw Error("{}: holds {} of shape {}, {} says {} of shape {}", where, name(stored.dtype()),
                to_string(stored.shape()), source, name(record.dtype), to_string(record.shape));
  }
  if (!is_widened) return stored;
  const std::vector<double> values = stored.values();
  Tensor narrow = Tensor::from_values(record.dtype, record.shape, values);
  const std::vector<double> back = narrow.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != back[i] && !(std::isnan(values[i]) && std::isnan(back[i]))) {
      throw Error("{}: holds the float32 {} at {}, {} says that it is {} widened", where, values[i], i,
                  source, name(record.dtype));
    }
  }
  return narrow;
}

bool has_magic(const MappedFile& file, std::string_view magic, std::size_t at) {
  return at <= file.text().size() && file.text().substr(at).starts_with(magic);
}

void check_names(const Record& record, std::string_view where) {
  if (record.attributes.size() > max_name_length) {
    throw Error("{}: the attributes have {} characters, expected at most {}", where, record.attributes.size(),
                max_name_length);
  }
  for (const std::string* name : {&record.id.module, &record.id.slot, &record.id.arg, &record.op}) {
    if (name->size() <= max_name_length) continue;
    throw Error("{}: a name has {} characters, expected at most {}: '{}..'", where, name->size(),
                max_name_length, name->substr(0, 64));
  }
}

}  // namespace assay
