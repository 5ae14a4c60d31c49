#include "conversion.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "assay/compare/result/printable.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/assay_dump_writer.h"
#include "assay/dumps/hdf5/writer.h"
#include "assay/dumps/io/shrunk.h"
#include "assay/dumps/layout/merged_sketch.h"
#include "assay/dumps/npy_writer.h"
#include "assay/dumps/record/plain_tensor.h"
#include "assay/dumps/safetensors_writer.h"
#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/golden/sketcher.h"
#include "output.h"
#include "shared_options.h"
#include "terminal.h"

namespace assay {

Tensor read_whole(const Dump& input, const LogicalTensor& tensor) {
  const Record& record = input.records[tensor.records.front()];
  for (std::size_t m = 0; m < record.placements.size(); ++m) {
    if (record.placements[m].kind == Placement::Kind::partial && input.mesh.shape.at(m) > 1)
      throw Error("{}: its ranks hold partial sums, which only an assay-dump can keep; convert it to one",
                  to_string(tensor.id));
  }
  Merged merged = merge(input, tensor);
  if (!merged.replicas.empty()) {
    throw Error(
        "{}: ranks {} and {} hold different bits, which only an assay-dump can keep; convert it to one",
        to_string(tensor.id), merged.replicas[0].rank_a, merged.replicas[0].rank_b);
  }
  return merged.tensor.whole();
}

namespace {

std::string format_of(const Conversion& c) {
  if (!c.to.empty()) {
    if (std::ranges::find(written_formats, c.to) == written_formats.end())
      throw Error("'{}' is no format that assay writes; expected {}", c.to, fmt::join(written_formats, ", "));
    return c.to;
  }
  const std::string extension = std::filesystem::path(c.output).extension().string();
  if (extension == ".safetensors") return "safetensors";
  if (extension == ".npy") return "npy";
  if (extension == ".h5" || extension == ".hdf5") return "hdf5";
  constexpr std::string_view others[] = {".npz", ".pt", ".pth", ".bin", ".gguf", ".json", ".csv", ".tar"};
  if (std::ranges::find(others, extension) != std::end(others)) {
    throw Error(
        "{}: assay does not write {} files; expected .safetensors, .npy, .h5 or a folder's name, or --to",
        c.output, extension);
  }
  return "assay-dump";
}

// Why a record is not to be written; empty if it is.
std::string why_not(const Record& record, const Rules& rules) {
  if (record.sketch) return "only its sketch was recorded";
  if (!record.has_bits) return "only its statistics were recorded";
  return rules.ignored(paths_of(record.id)).value_or("");
}

std::size_t write_assay_dump(const Dump& input, const Conversion& c, const Rules& rules) {
  AssayDumpWriter writer(c.output, {input.world_size, input.mesh, input.producer});
  std::size_t written = 0;
  try {
    Progress progress("converting", Progress::Unit::items);
    for (std::size_t i = 0; i < input.records.size(); ++i) {
      if (!why_not(input.records[i], rules).empty()) continue;
      if (input.records[i].rows)
        throw Error(
            "{}: its rows are in an order of their own, which an assay-dump cannot say; expected OUT to be "
            "safetensors, npy or HDF5",
            to_string(input.records[i].id));
      progress.show(i, input.records.size(), input.records[i].id.module);
      writer.add(input.records[i], input.read(i));
      ++written;
    }
    writer.finish();
  } catch (...) {
    writer.discard();
    throw;
  }
  return written;
}

// A tensor whose rows are in an order of their own, as one of a single rank.
Record put_together(const Record& first, const Shape& shape) {
  Record whole = first;
  whole.shape = whole.global_shape = shape;
  whole.placements.clear();
  whole.mesh_coordinate.clear();
  whole.offsets.reset();
  whole.flattened_range.reset();
  whole.cut.reset();
  whole.rows.reset();
  whole.row_numbers.reset();
  return whole;
}

// What is smaller than its sketch stays as it is.
void write_sketch(AssayDumpWriter& writer, const Dump& input, std::size_t index,
                  const LogicalTensor& tensor) {
  const Record& record = input.records[index];
  const SketchSpec spec = spec_for(tensor.shape, {});
  const bool is_small = !is_sketched(tensor.shape, spec);
  if (record.rows || record.row_numbers) {
    if (index != tensor.records.front()) return;
    const TensorSource whole = merge(input, tensor).tensor;
    const Record one = put_together(record, tensor.shape);
    is_small ? writer.add(one, whole.whole()) : writer.add(one, sketch_of(whole, spec));
  } else if (is_small) {
    writer.add(record, input.read(index));
  } else {
    writer.add(record, sketch_of_record(input, index, spec));
  }
}

std::size_t write_sketches(const Dump& input, const Conversion& c, const Rules& rules) {
  AssayDumpWriter writer(c.output, {input.world_size, input.mesh, input.producer});
  const ThreadScope threads(thread_count(0));
  const std::vector<LogicalTensor> logical = logical_tensors(input);  // without what nobody placed
  std::map<std::size_t, const LogicalTensor*> tensor_of;
  for (const LogicalTensor& t : logical) {
    for (const std::size_t i : t.records) tensor_of[i] = &t;
  }
  std::size_t written = 0;
  try {
    Progress progress("sketching", Progress::Unit::items);
    for (const auto& [i, tensor] : tensor_of) {
      if (!why_not(input.records[i], rules).empty()) continue;
      progress.show(written++, tensor_of.size(), tensor->id.module);
      write_sketch(writer, input, i, *tensor);
    }
    writer.finish();
  } catch (...) {
    writer.discard();
    throw;
  }
  return written;
}

std::vector<PlainTensor> plain_tensors(const Dump& input, const std::vector<LogicalTensor>& logical,
                                       const Rules& rules, Progress& progress) {
  std::vector<PlainTensor> tensors;
  for (const LogicalTensor& tensor : logical) {
    const bool wanted = std::ranges::all_of(
        tensor.records, [&](std::size_t i) { return why_not(input.records[i], rules).empty(); });
    if (!wanted) continue;
    const std::size_t place = tensors.size();
    tensors.push_back(
        {plain_name(tensor.id), tensor.dtype, tensor.shape, [&input, &tensor, &logical, &progress, place] {
           progress.show(place, logical.size(), tensor.id.module);
           return read_whole(input, tensor);
         }});
  }
  return tensors;
}

// What the format cannot say, a reader has to be told.
std::vector<std::string> hints(const std::vector<PlainTensor>& tensors, const std::string& format) {
  std::vector<std::string> lines;
  for (const DType dtype : all_dtypes) {
    const bool is_unknown = dtype == DType::tfloat32 || dtype == DType::hfloat32;
    const bool is_fp8 = dtype == DType::float8_e4m3fn || (dtype == DType::float8_e5m2 && format == "hdf5");
    const bool is_opaque = format != "safetensors" && (dtype == DType::bfloat16 || is_fp8);
    const auto count = std::ranges::count_if(tensors, [&](const PlainTensor& t) {
      const bool is_unpacked =
          dtype == DType::float4_e2m1fn && (format != "safetensors" || !is_packed_in_safetensors(t));
      return t.dtype == dtype && (is_unknown || is_opaque || is_unpacked);
    });
    if (count == 0) continue;
    lines.push_back(fmt::format("{} of {} cannot say so in {}: read with --dtype-hint {}",
                                count == 1 ? "1 tensor" : grouped(count) + " tensors", name(dtype), format,
                                name(dtype)));
  }
  return lines;
}

std::size_t write_plain(const Dump& input, const Conversion& c, const std::string& format, const Rules& rules,
                        std::vector<std::string>& notes) {
  const std::vector<LogicalTensor> logical = logical_tensors(input);
  Progress progress("converting", Progress::Unit::items);
  const std::vector<PlainTensor> tensors = plain_tensors(input, logical, rules, progress);
  if (format == "safetensors") {
    write_safetensors(c.output, tensors);
  } else if (format == "hdf5") {
    write_hdf5(c.output, tensors);
  } else if (std::filesystem::path(c.output).extension() != ".npy") {
    write_npy_folder(c.output, tensors);
  } else if (tensors.size() == 1) {
    write_npy_file(c.output, tensors[0]);
  } else {
    throw Error("{}: holds one tensor, but {} has {}; name a folder and pass --to npy", c.output,
                input.path.string(), tensors.size());
  }
  notes = hints(tensors, format);
  return tensors.size();
}

}  // namespace

Converted convert(const Conversion& c) {
  const std::string format = format_of(c);
  if (is_below(c.output, c.input))
    throw Error("{}: lies in the input {}; expected a place of its own", c.output, c.input);
  const auto input = open_dump(c.input, open_options(c.dtype_hint, c.raw));
  const Rules rules = load_rules(c.rules);
  apply_layout(*input, rules.layout());
  if (!input->records.empty() && std::ranges::none_of(input->records, &Record::has_bits)) {
    throw Error(
        "{}: none of its {} tensors has values, only statistics, sketches or checksums: there is nothing to "
        "convert",
        c.input, input->records.size());
  }
  Converted done;
  try {
    done.tensors = format == "assay-dump" ? write_assay_dump(*input, c, rules)
                   : format == "sketch"   ? write_sketches(*input, c, rules)
                                          : write_plain(*input, c, format, rules, done.notes);
  } catch (...) {  // bytes that are gone cannot be written, which is no fault of the output's
    check_not_shrunk(input->path.string());
    throw;
  }
  try {
    check_not_shrunk(input->path.string());
  } catch (...) {
    std::filesystem::remove_all(c.output);
    throw;
  }
  done.notes.insert(done.notes.end(), input->notes.begin(), input->notes.end());
  done.left_out = input->left_out;
  for (const Record& record : input->records) {
    const std::string why = why_not(record, rules);
    if (!why.empty()) done.left_out.push_back(to_string(record.id) + ": " + why);
  }
  done.unreadable = input->unreadable;
  return done;
}

}  // namespace assay
