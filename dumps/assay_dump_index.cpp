#include "assay/dumps/assay_dump_index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "assay/dumps/layout/layout.h"
#include "assay/dumps/record/readers.h"
#include "assay/dumps/record/statistics_in_json.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

void parse_layout(const Json& entry, const std::string& where, const Mesh& mesh, Record& record) {
  if (const Json* placements = entry.find("placements")) {
    for (const Json& word : placements->array(where + ": placements")) {
      try {
        record.placements.push_back(parse_placement(word.string(where + ": placements")));
      } catch (const Error& problem) {
        throw Error("{}: {}", where, problem.what());
      }
    }
  }
  if (const Json* coordinate = entry.find("mesh_coordinate")) {
    record.mesh_coordinate = coordinate->shape(where + ": mesh_coordinate");
  }
  if (const Json* offsets = entry.find("offsets"); offsets != nullptr && !offsets->is_null()) {
    record.offsets = offsets->shape(where + ": offsets");
  }
  if (const Json* range = entry.find("flattened_range"); range != nullptr && !range->is_null()) {
    const Shape ends = range->shape(where + ": flattened_range");
    if (ends.size() != 2 || ends[0] > ends[1] || record.shape.size() != 1 ||
        record.shape[0] < ends[1] - ends[0]) {
      throw Error(
          "{}: flattened_range is {} and shape {}; expected [first, last] and a flat tensor of at least last "
          "- "
          "first",
          where, to_string(ends), to_string(record.shape));
    }
    record.flattened_range = {ends[0], ends[1]};
  }
  if (const Json* cut = entry.find("cut"); cut != nullptr && !cut->is_null())
    record.cut = cut->shape(where + ": cut");
  if (const Json* unplaced = entry.find("unplaced"); unplaced != nullptr && !unplaced->is_null()) {
    for (const Json& dim : unplaced->array(where + ": unplaced")) {
      const auto found = std::ranges::find(mesh.dims, dim.string(where + ": unplaced"));
      if (found == mesh.dims.end())
        throw Error("{}: unplaced has '{}', expected dimensions of the mesh [{}]", where, dim.string(where),
                    fmt::join(mesh.dims, ", "));
      record.unplaced.push_back(static_cast<int>(found - mesh.dims.begin()));
    }
  }
  const std::size_t rank = record.global_shape.size();
  bool fits = record.unplaced.empty() || !record.placements.empty();
  fits = fits && (record.flattened_range ? !record.offsets : record.shape.size() == rank) &&
         (!record.offsets || record.offsets->size() == rank) && (!record.cut || record.cut->size() == rank);
  fits = fits && (record.placements.empty() || record.placements.size() == mesh.dims.size());
  fits = fits && record.mesh_coordinate.size() ==
                     (record.placements.empty() && record.mesh_coordinate.empty() ? 0 : mesh.dims.size());
  for (const Placement& placement : record.placements)
    fits = fits && placement.dim < static_cast<int>(std::max<std::size_t>(rank, 1));
  for (std::size_t d = 0; fits && d < record.mesh_coordinate.size(); ++d)
    fits = record.mesh_coordinate[d] < mesh.shape[d];
  if (!fits) {
    throw Error(
        "{}: shape, global_shape, placements, mesh_coordinate and offsets do not fit each other or the "
        "mesh [{}] of shape {}",
        where, fmt::join(mesh.dims, ", "), to_string(mesh.shape));
  }
}

// What the recorder computed of the tensor, instead of its bits or beside them.
void parse_what_is_known(const Json& entry, const std::string& where, Record& record) {
  const auto is_said = [&](const Json* value) { return value != nullptr && !value->is_null(); };
  if (const Json* statistics = entry.find("statistics"); is_said(statistics)) {
    if (!statistics->is_object())
      throw Error("{}: statistics is {}, expected an object", where, statistics->kind());
    record.statistics = statistics_in(*statistics, element_count(record.shape), where + ": statistics");
  }
  if (const Json* checksum = entry.find("checksum"); is_said(checksum))
    record.checksum = checksum->string(where + ": checksum");
  record.has_bits = is_said(entry.find("data"));
  if (!record.has_bits && !record.statistics && record.checksum.empty())
    throw Error("{}: has no data, no statistics and no checksum; expected one of them", where);
}

constexpr std::int64_t sketch_version = 1;

std::int64_t number_in(const Json& object, std::string_view key, const std::string& where) {
  const std::int64_t value = object.at(key, where).integer(fmt::format("{}: {}", where, key));
  if (value < 0 || value > max_index_number)
    throw Error("{}: {} is {}, expected 0 to 2^53", where, key, value);
  return value;
}

std::optional<double> magnitude_in(const Json& entry, std::string_view key, const std::string& where) {
  const Json* value = entry.find(key);
  if (value == nullptr || value->is_null()) return {};
  const auto found = value->number();
  if (!found || !(*found >= 0)) throw Error("{}: {} is no number from 0 on", where, key);
  return found;
}

// What the line says of a sketch, beside its values.
void parse_sketch(const Json& entry, const std::string& where, Record& record) {
  const Json* json = entry.find("sketch");
  if (json == nullptr || json->is_null()) return;
  const std::string inside = where + ": sketch";
  if (const std::int64_t version = number_in(*json, "version", inside); version != sketch_version)
    throw Error("{} is of version {}, expected {}: what wrote it is newer", inside, version, sketch_version);
  Sketch sketch;
  const Shape grid = json->at("grid", inside).shape(inside + ": grid");
  if (grid.size() != 2)
    throw Error("{}: grid is {}, expected the blocks of rows and of columns", inside, to_string(grid));
  sketch.spec = {grid[0], grid[1], number_in(*json, "signs", inside),
                 static_cast<std::uint64_t>(number_in(*json, "seed", inside))};
  try {
    check_spec(sketch.spec);
  } catch (const Error& problem) {
    throw Error("{}: {}", where, problem.what());
  }
  sketch.shape = shape_of(record);
  sketch.nan = number_in(entry, "nan", where);
  sketch.positive_infinities = number_in(entry, "pinf", where);
  sketch.negative_infinities = number_in(entry, "ninf", where);
  sketch.square = magnitude_in(entry, "square", where);
  sketch.peak = magnitude_in(entry, "peak", where);
  if (const Json* print = entry.find("fingerprint"); print != nullptr && !print->is_null()) {
    const std::string& digits = print->string(where + ": fingerprint");
    const bool is_hex =
        digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hex) throw Error("{}: fingerprint is '{}', expected 16 hexadecimal digits", where, digits);
    sketch.fingerprint = std::stoull(digits, nullptr, 16);
  }
  if (!record.has_bits) throw Error("{} has no data; expected its values", inside);
  record.has_bits = false;
  record.statistics.emplace();
  record.statistics->arithmetic = DType::float64;
  record.statistics->nan = sketch.nan;
  record.statistics->inf = sketch.infinities();
  if (sketch.square && sketch.nan + sketch.infinities() == 0)
    record.statistics->l2 = std::sqrt(*sketch.square);
  record.sketch = std::make_shared<const Sketch>(std::move(sketch));
}

void add_sketch(const Record& record, Json::Object& line) {
  if (!record.sketch) return;
  const Sketch& s = *record.sketch;
  const auto number = [](std::int64_t n) { return Json{n}; };
  line.push_back({"sketch", Json{Json::Object{{"version", number(sketch_version)},
                                              {"grid", json_numbers({s.spec.grid_rows, s.spec.grid_columns})},
                                              {"signs", number(s.spec.signs)},
                                              {"seed", number(static_cast<std::int64_t>(s.spec.seed))},
                                              {"accumulate", {std::string("float64")}}}}});
  line.push_back({"nan", number(s.nan)});
  line.push_back({"pinf", number(s.positive_infinities)});
  line.push_back({"ninf", number(s.negative_infinities)});
  if (s.square && std::isfinite(*s.square)) line.push_back({"square", Json{*s.square}});
  if (s.peak) line.push_back({"peak", Json{*s.peak}});
  if (s.fingerprint) line.push_back({"fingerprint", {fmt::format("{:016x}", *s.fingerprint)}});
}

}  // namespace

Json json_numbers(const Shape& shape) {
  Json::Array items;
  for (const std::int64_t extent : shape) items.push_back({extent});
  return {std::move(items)};
}

Json json_texts(const std::vector<std::string>& words) {
  Json::Array items;
  for (const std::string& word : words) items.push_back({word});
  return {std::move(items)};
}

// The fields in the order of the format's description; those that say nothing are left out.
Json index_entry(const Record& record, const std::string& file, const std::string& name,
                 std::optional<std::uint64_t> offset) {
  Json::Object line;
  const auto add = [&](const char* key, Json value) { line.push_back({key, std::move(value)}); };
  add("seq", {record.seq});
  add("step", {record.id.step});
  add("micro_batch", {record.id.micro_batch});
  if (record.id.phase != Phase::none) add("phase", {std::string(assay::name(record.id.phase))});
  add("module", {record.id.module});
  if (!record.op.empty()) add("op", {record.op});
  if (!record.attributes.empty()) line.push_back({"attributes", parse_json(record.attributes, name)});
  if (!record.id.slot.empty()) add("slot", {record.id.slot});
  add("arg", {record.id.arg});
  add("call", {record.id.call});
  if (record.count) add("count", {*record.count});
  if (record.within) add("within", {true});
  add("dtype", {std::string(assay::name(record.dtype))});
  add("shape", json_numbers(record.shape));
  add("global_shape", json_numbers(record.global_shape));
  if (!record.placements.empty()) {
    std::vector<std::string> words;
    for (const Placement& placement : record.placements) words.push_back(to_string(placement));
    add("placements", json_texts(words));
  }
  if (!record.mesh_coordinate.empty()) add("mesh_coordinate", json_numbers(record.mesh_coordinate));
  if (record.offsets) add("offsets", json_numbers(*record.offsets));
  if (record.flattened_range)
    add("flattened_range", json_numbers({record.flattened_range->first, record.flattened_range->last}));
  if (record.cut) add("cut", json_numbers(*record.cut));
  add_sketch(record, line);
  Json::Object data = {{"file", {file}}, {"name", {name}}};
  if (offset) data.push_back({"offset", {static_cast<std::int64_t>(*offset)}});
  add("data", {std::move(data)});
  return {std::move(line)};
}

Record parse_index_entry(const Json& entry, const std::string& where, int rank, const Mesh& mesh) {
  const auto number = [&](std::string_view key, const Json& json) {
    const std::int64_t value = json.integer(fmt::format("{}: {}", where, key));
    if (value < -1 || value > max_index_number)
      throw Error("{}: {} is {}, expected -1 to 2^53", where, key, value);
    return value;
  };
  const auto optional_number = [&](std::string_view key, std::int64_t otherwise) {
    const Json* value = entry.find(key);
    return value == nullptr || value->is_null() ? otherwise : number(key, *value);
  };
  const auto text = [&](std::string_view key) -> const std::string& {
    const Json& value = entry.at(key, where);
    if (!value.is_string()) throw Error("{}: {} is {}, expected a string", where, key, value.kind());
    return value.string(where);
  };
  Record record;
  record.rank = rank;
  record.seq = number("seq", entry.at("seq", where));
  record.id.step = number("step", entry.at("step", where));
  record.id.micro_batch = optional_number("micro_batch", -1);
  // Tensors that were converted from plain files have neither phase nor slot.
  if (entry.find("phase") != nullptr) record.id.phase = parse_phase(text("phase"), where);
  record.id.module = text("module");
  if (entry.find("slot") != nullptr) record.id.slot = text("slot");
  record.id.call = optional_number("call", 0);
  if (const Json* arg = entry.find("arg"); arg != nullptr && !arg->is_null()) {
    record.id.arg = arg->is_string() ? arg->string(where) : std::to_string(arg->integer(where + ": arg"));
  }
  if (const Json* op = entry.find("op"); op != nullptr && !op->is_null())
    record.op = op->string(where + ": op");
  if (const Json* attributes = entry.find("attributes"); attributes != nullptr && !attributes->is_null()) {
    if (!attributes->is_object())
      throw Error("{}: attributes is {}, expected an object", where, attributes->kind());
    record.attributes = attributes->text();
  }
  if (const Json* count = entry.find("count"); count != nullptr && !count->is_null()) {
    record.count = number("count", *count);
  }
  if (entry.find("slot") != nullptr && !is_slot(record.id.slot)) {
    throw Error("{}: slot '{}', expected one of {}", where, record.id.slot, fmt::join(identity_slots, ", "));
  }
  if (const Json* within = entry.find("within"); within != nullptr && !within->is_null())
    record.within = within->number() == 1.0;
  const std::optional<DType> dtype = parse_dtype(text("dtype"));
  if (!dtype) throw Error("{}: dtype '{}' is unknown", where, text("dtype"));
  record.dtype = *dtype;
  record.shape = entry.at("shape", where).shape(where + ": shape");
  const Json* global = entry.find("global_shape");
  record.global_shape = global == nullptr ? record.shape : global->shape(where + ": global_shape");
  parse_layout(entry, where, mesh, record);
  parse_what_is_known(entry, where, record);
  parse_sketch(entry, where, record);
  return record;
}

}  // namespace assay
