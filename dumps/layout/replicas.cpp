#include "assay/dumps/layout/replicas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "assay/dumps/layout/layout.h"
#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"

namespace assay {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes().size() == b.bytes().size() &&
         (a.bytes().empty() || std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0);
}

ReplicaMismatch mismatch(const RankCopy& a, const RankCopy& b, std::string mesh_dim) {
  ReplicaMismatch result{std::move(mesh_dim), a.record->rank, b.record->rank, 0, 0, 0, 0};
  const std::size_t size = size_of(a.tensor.dtype());
  double worst = -1;
  for (std::int64_t i = 0; i < a.tensor.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(a.tensor.bytes().data() + at, b.tensor.bytes().data() + at, size) == 0) continue;
    ++result.different;
    const double value_a = a.tensor.value(i), value_b = b.tensor.value(i);
    double difference = std::abs(value_a - value_b);
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference <= worst) continue;
    worst = difference;
    result.worst = i;
    result.value_a = value_a;
    result.value_b = value_b;
  }
  return result;
}

bool is_partial(const Record& record, std::size_t mesh_dim) {
  return mesh_dim < record.placements.size() && record.placements[mesh_dim].kind == Placement::Kind::partial;
}

Shape partial_coordinates(const Record& record, const std::vector<bool>& also = {}) {
  Shape coordinates;
  for (std::size_t m = 0; m < record.mesh_coordinate.size(); ++m) {
    if (is_partial(record, m) || (m < also.size() && also[m]))
      coordinates.push_back(record.mesh_coordinate[m]);
  }
  return coordinates;
}

// Ranks that differ in the coordinate of one mesh dimension only are compared along that dimension, so that a
// disagreement is blamed on it and on no other.
void compare_along(const std::vector<const RankCopy*>& copies, std::size_t m, const Mesh& mesh,
                   std::vector<ReplicaMismatch>& mismatches, std::vector<bool>& disagreeing) {
  std::map<Shape, const RankCopy*> lines;
  for (const RankCopy* copy : copies) {
    Shape line = copy->record->mesh_coordinate;
    line[m] = 0;
    const auto [first, is_new] = lines.try_emplace(line, copy);
    if (is_new || same_bits(first->second->tensor, copy->tensor)) continue;
    mismatches.push_back(mismatch(*first->second, *copy, mesh.dims[m]));
    disagreeing[m] = true;
  }
}

void compare_group(const std::vector<const RankCopy*>& copies, const Mesh& mesh,
                   std::vector<ReplicaMismatch>& mismatches, std::vector<bool>& disagreeing) {
  const auto differs = [&](const RankCopy* copy) { return !same_bits(copy->tensor, copies.front()->tensor); };
  if (std::none_of(copies.begin(), copies.end(), differs)) return;
  const std::size_t before = mismatches.size();
  const std::size_t dims = copies.front()->record->mesh_coordinate.size();
  for (std::size_t m = 0; m < dims; ++m) compare_along(copies, m, mesh, mismatches, disagreeing);
  if (mismatches.size() != before) return;
  // The ranks that disagree are no neighbours in the mesh, or there is none: all dimensions in question are
  // named.
  for (const RankCopy* copy : copies) {
    if (!differs(copy)) continue;
    std::string names;
    for (std::size_t m = 0; m < dims; ++m) {
      if (copy->record->mesh_coordinate[m] == copies.front()->record->mesh_coordinate[m]) continue;
      names += (names.empty() ? "" : ",") + mesh.dims[m];
      disagreeing[m] = true;
    }
    mismatches.push_back(mismatch(*copies.front(), *copy, names));
  }
}

Tensor exact_sum_of_integers(const std::vector<Tensor>& addends) {
  const DType dtype = addends.front().dtype();
  if (dtype == DType::boolean) throw Error("booleans cannot be partial sums");
  const std::size_t size = size_of(dtype);
  const bool is_signed =
      dtype == DType::int64 || dtype == DType::int32 || dtype == DType::int16 || dtype == DType::int8;
  const int bits = static_cast<int>(8 * size) - (is_signed ? 1 : 0);
  const __int128 highest = (static_cast<__int128>(1) << bits) - 1, lowest = is_signed ? -highest - 1 : 0;
  std::vector<std::byte> bytes(addends.front().bytes().size());
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    __int128 sum = 0;
    for (const Tensor& addend : addends) {
      std::uint64_t code = 0;
      std::memcpy(&code, addend.bytes().data() + at, size);
      const int unused = static_cast<int>(64 - 8 * size);
      sum += is_signed ? static_cast<__int128>(static_cast<std::int64_t>(code << unused) >> unused)
                       : static_cast<__int128>(code);
    }
    if (sum < lowest || sum > highest)
      throw Error(
          "the sum of {} parts at element {} does not fit {}: they are no partial sums, or of a narrower "
          "dtype than their sum",
          addends.size(), at / size, name(dtype));
    const auto code = static_cast<std::uint64_t>(sum);
    std::memcpy(bytes.data() + at, &code, size);
  }
  return {dtype, addends.front().shape(), std::move(bytes)};
}

}  // namespace

void compare_replicas(std::vector<RankCopy>& copies, const Mesh& mesh,
                      std::vector<ReplicaMismatch>& mismatches, std::vector<bool>& disagreeing) {
  std::sort(copies.begin(), copies.end(),
            [](const RankCopy& a, const RankCopy& b) { return a.record->rank < b.record->rank; });
  std::map<Shape, std::vector<const RankCopy*>> groups;
  for (const RankCopy& copy : copies) groups[partial_coordinates(*copy.record)].push_back(&copy);
  for (const auto& [coordinates, group] : groups) compare_group(group, mesh, mismatches, disagreeing);
}

void check_agreement(const Dump& dump, const LogicalTensor& tensor) {
  const Record& first = dump.records[tensor.records.front()];
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    if (record.dtype == first.dtype && record.global_shape == first.global_shape && record.cut == first.cut &&
        record.placements == first.placements) {
      continue;
    }
    throw Error("{}: rank {} says {} of global shape {}, rank {} says {} of {}{}", to_string(tensor.id),
                first.rank, name(first.dtype), to_string(shape_of(first)), record.rank, name(record.dtype),
                to_string(shape_of(record)),
                record.placements != first.placements ? ", and their placements differ" : "");
  }
}

void check_addends(const std::vector<RankCopy>& copies, const Dump& dump, const LogicalTensor& tensor) {
  const Record& first = *copies.front().record;
  const Mesh& mesh = dump.mesh;
  const auto has_kind = [&](std::size_t m, Placement::Kind kind) {
    return m < first.placements.size() && first.placements[m].kind == kind;
  };
  std::vector<std::size_t> partial_dims;
  for (std::size_t m = 0; m < first.placements.size(); ++m) {
    if (has_kind(m, Placement::Kind::partial)) partial_dims.push_back(m);
  }
  if (partial_dims.empty()) return;
  std::set<Shape> found;
  for (const auto& [record, values] : copies) {
    if (record->mesh_coordinate.size() != mesh.dims.size() || mesh.shape.size() != mesh.dims.size() ||
        partial_dims.back() >= mesh.dims.size()) {
      throw Error("{}: rank {} holds a partial sum without a place in the mesh", to_string(tensor.id),
                  record->rank);
    }
    Shape at;
    for (const std::size_t m : partial_dims) at.push_back(record->mesh_coordinate[m]);
    found.insert(std::move(at));
  }
  Shape extents;
  for (const std::size_t m : partial_dims) extents.push_back(mesh.shape[m]);
  const std::int64_t expected = element_count(extents), have = static_cast<std::int64_t>(found.size());
  if (have == expected) return;

  std::int64_t gap = 0;
  while (found.contains(unravel(gap, extents))) ++gap;
  const Shape missing = unravel(gap, extents);
  Shape place = first.mesh_coordinate;
  for (std::size_t i = 0; i < missing.size(); ++i) place[partial_dims[i]] = missing[i];
  std::string words;
  for (std::size_t m = 0; m < place.size(); ++m) {
    if (!has_kind(m, Placement::Kind::partial) && !has_kind(m, Placement::Kind::shard)) continue;
    words += fmt::format("{}{}={}", words.empty() ? "" : ", ", mesh.dims[m], place[m]);
  }
  // Which rank that is, another of its records says.
  for (const Record& record : dump.records) {
    if (record.mesh_coordinate != place) continue;
    words += fmt::format(" (rank {})", record.rank);
    break;
  }
  throw Error("{}: the addend of {} is missing{}; {} of {} partial sums are recorded", to_string(tensor.id),
              words, expected - have == 1 ? "" : fmt::format(", and {} more", expected - have - 1), have,
              expected);
}

std::vector<const RankCopy*> addends_among(const std::vector<RankCopy>& copies,
                                           const std::vector<bool>& also) {
  std::map<Shape, const RankCopy*> addends;
  const bool has_mesh = !copies.front().record->mesh_coordinate.empty();
  for (const RankCopy& copy : copies) {
    // Without a mesh nothing tells copies apart but their rank.
    const Shape key =
        has_mesh || also.empty() ? partial_coordinates(*copy.record, also) : Shape{copy.record->rank};
    addends.try_emplace(key, &copy);
  }
  std::vector<const RankCopy*> chosen;
  for (const auto& [coordinates, copy] : addends) chosen.push_back(copy);
  return chosen;
}

std::vector<Tensor> addends_of(const std::vector<RankCopy>& copies, const std::vector<bool>& also) {
  std::vector<Tensor> tensors;
  for (const RankCopy* copy : addends_among(copies, also)) tensors.push_back(copy->tensor);
  return tensors;
}

Tensor exact_sum(const std::vector<Tensor>& addends) {
  const Tensor& first = addends.front();
  if (addends.size() == 1) return first;
  if (!is_float(first.dtype())) return exact_sum_of_integers(addends);
  std::vector<std::vector<double>> values;
  for (const Tensor& addend : addends) values.push_back(addend.values());
  std::vector<double> sums(values.front().size());
  ExactSum sum;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sum.clear();
    for (const auto& addend : values) sum.add(addend[i]);
    sums[i] = sum.round(first.dtype());
  }
  return Tensor::from_values(first.dtype(), first.shape(), sums);
}

}  // namespace assay
