#include "assay/compare/calls/partial_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "assay/dumps/layout/layout.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"

namespace assay {
namespace {

// The letter of each dimension; "" where the declaration does not say it.
std::vector<std::string_view> letters_of(const Arg& arg, std::size_t dims) {
  const std::vector<Part> parts = parts_of(arg.shape);
  std::vector<std::string_view> letters(dims);
  const auto starred = static_cast<std::size_t>(std::ranges::count_if(parts, &Part::starred));
  const std::size_t plain = parts.size() - starred;
  if (dims < plain || (starred != 1 && dims != parts.size())) return letters;
  std::size_t d = 0;
  for (const Part& part : parts) {
    const std::size_t count = part.starred && starred == 1 ? dims - plain : 1;
    for (std::size_t i = 0; i < count && d < dims; ++i) letters[d++] = part.letter;
  }
  return letters;
}

// A product is linear in its weights, too.
bool is_linear_in(const Operator& op, const std::string& output, const std::string& input) {
  if (!op.linear_in.empty() && input_arg(op, input).role == Role::param) return true;
  if (output.starts_with("grad_")) return input.starts_with("grad_");
  return input == op.linear_in;
}

// In order, where one begins at the end of another as one.
Parts::value_type joined(Parts::value_type stretches) {
  std::ranges::sort(stretches);
  Parts::value_type part;
  for (const auto& [first, last] : stretches) {
    if (first >= last) continue;
    if (!part.empty() && first <= part.back().second)
      part.back().second = std::max(part.back().second, last);
    else
      part.emplace_back(first, last);
  }
  return part;
}

}  // namespace

std::vector<Parts> parts_of(const Dump& dump, const LogicalTensor& tensor) {
  std::vector<Parts> dims(tensor.shape.size());
  std::vector<std::set<Parts::value_type>> seen(dims.size());
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    if (record.rows || record.flattened_range) return dims;  // neither is a cut of one dimension
    const std::vector<Piece> pieces = pieces_of(record, dump.mesh);
    for (std::size_t d = 0; d < dims.size(); ++d) {
      Parts::value_type part;
      for (const Piece& piece : pieces)
        part.emplace_back(piece.box.offsets[d], piece.box.offsets[d] + piece.box.shape[d]);
      std::ranges::sort(part);
      part.erase(std::unique(part.begin(), part.end()), part.end());
      if (!part.empty()) seen[d].insert(part);
    }
  }
  for (std::size_t d = 0; d < dims.size(); ++d) dims[d].assign(seen[d].begin(), seen[d].end());
  return dims;
}

bool is_cut(const Dump& dump) {
  return dump.world_size > 1 || !dump.mesh.dims.empty();
}

std::set<std::size_t> dims_of_ranks(const Dump& dump, const LogicalTensor& tensor) {
  std::set<std::size_t> dims;
  const Record& first = dump.records[tensor.records.front()];
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    for (std::size_t d = 0; d < std::min(first.mesh_coordinate.size(), record.mesh_coordinate.size()); ++d)
      if (record.mesh_coordinate[d] != first.mesh_coordinate[d]) dims.insert(d);
  }
  return dims;
}

std::vector<Parts> gathered_parts_of(const Dump& dump, const LogicalTensor& tensor,
                                     const std::set<std::size_t>& dims) {
  std::map<std::vector<std::int64_t>, std::vector<Parts::value_type>> by_place;
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    if (record.rows || record.flattened_range) return std::vector<Parts>(tensor.shape.size());
    std::vector<std::int64_t> place;
    for (const std::size_t d : dims)
      place.push_back(d < record.mesh_coordinate.size() ? record.mesh_coordinate[d] : 0);
    auto& gathered = by_place[place];
    gathered.resize(tensor.shape.size());
    for (const Piece& piece : pieces_of(record, dump.mesh)) {
      for (std::size_t d = 0; d < gathered.size(); ++d)
        gathered[d].emplace_back(piece.box.offsets[d], piece.box.offsets[d] + piece.box.shape[d]);
    }
  }
  std::vector<std::set<Parts::value_type>> seen(tensor.shape.size());
  for (auto& [place, gathered] : by_place) {
    for (std::size_t d = 0; d < gathered.size(); ++d)
      if (auto part = joined(std::move(gathered[d])); !part.empty()) seen[d].insert(std::move(part));
  }
  std::vector<Parts> parts(seen.size());
  for (std::size_t d = 0; d < seen.size(); ++d) parts[d].assign(seen[d].begin(), seen[d].end());
  return parts;
}

double addends_of(const Dump& dump, const LogicalTensor& t) {
  const Record& first = dump.records[t.records.front()];
  double count = 1;
  for (std::size_t d = 0; d < first.placements.size() && d < dump.mesh.shape.size(); ++d) {
    if (first.placements[d].kind == Placement::Kind::partial)
      count *= static_cast<double>(dump.mesh.shape[d]);
  }
  return count;
}

Magnitudes::Magnitudes(const Dump& of) : of_(of) {
  path = of.path;
  world_size = of.world_size;
  mesh = of.mesh;
  records = of.records;
}

Tensor Magnitudes::read(std::size_t index) const {
  const Tensor t = of_.read(index);
  std::vector<double> values = t.values();
  for (double& v : values) v = std::abs(v);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

std::vector<double> errors_of_addends(const Dump& dump, const LogicalTensor& t) {
  if (!is_float(t.dtype)) return {};  // exact
  const double addends = addends_of(dump, t);
  if (addends == 1) return {};
  std::vector<double> errors = merge(Magnitudes(dump), t).tensor.whole().values();
  for (double& e : errors) e *= addends * unit_roundoff(t.dtype);
  return errors;
}

std::vector<SharedSum> shared_sums(const Operator& op, const std::string& output,
                                   const std::vector<CutInput>& inputs) {
  const std::vector<Part> kept = parts_of(output_arg(op, output).shape);
  std::map<std::string, SharedSum, std::less<>> by_letter;
  for (const CutInput& input : inputs) {
    const std::vector<std::string_view> letters = letters_of(input_arg(op, input.name), input.dims.size());
    for (std::size_t d = 0; d < letters.size(); ++d) {
      const bool is_kept = std::ranges::find(kept, letters[d], &Part::letter) != kept.end();
      if (letters[d].empty() || is_kept || input.dims[d].size() < 2) continue;
      const bool is_linear = is_linear_in(op, output, input.name);
      const auto known = by_letter.find(letters[d]);
      if (known != by_letter.end() && (known->second.is_linear || !is_linear)) continue;
      by_letter[std::string(letters[d])] = {input.name, d, input.dims[d], is_linear};
    }
  }
  std::vector<SharedSum> sums;
  for (auto& [letter, sum] : by_letter) sums.push_back(std::move(sum));
  return sums;
}

Tensor only_part(const Tensor& tensor, std::size_t dim, const Parts::value_type& part) {
  std::vector<double> values = tensor.values();
  const Shape strides = dense_strides(tensor.shape());
  const std::int64_t stride = strides[dim], extent = tensor.shape()[dim];
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t at = i / stride % extent;
    const bool inside =
        std::ranges::any_of(part, [&](const auto& p) { return p.first <= at && at < p.second; });
    if (!inside) values[static_cast<std::size_t>(i)] = 0;
  }
  return Tensor::from_values(tensor.dtype(), tensor.shape(), values);
}

}  // namespace assay
