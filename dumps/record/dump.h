#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/log.h"
#include "assay/golden/sketch.h"
#include "assay/golden/tensor_source.h"

namespace assay {

enum class Phase : std::uint8_t { none, forward, backward, optimizer };
std::string_view name(Phase);

/// The identity of a recorded tensor, on any number of ranks. Two records with equal identity are parts or
/// copies of one tensor, or the two sides of a comparison. Rank and mesh are layout, never identity
/// (assay-dump v1). Plain files (npz, safetensors, HDF5) have only names: a name stands in `module`, and the
/// other fields keep their defaults.
struct Identity {
  std::int64_t step = 0;
  std::int64_t micro_batch = -1;  ///< global; -1 for tensors of the whole step
  Phase phase = Phase::none;
  std::string module;  ///< with global layer and expert indices
  std::string slot;    ///< input, output, grad_input, grad_output, param, grad, state, loss
  std::string arg;
  std::int64_t call = 0;

  auto operator<=>(const Identity&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
};
/// Returns one line for people, unique within a dump: "layers.1.attn_norm grad weight (step 0, backward)".
std::string to_string(const Identity&);

/// The possible values of Identity::slot.
inline constexpr std::string_view identity_slots[] = {"input", "output", "grad_input", "grad_output",
                                                      "param", "grad",   "state",      "loss"};
bool is_slot(std::string_view);
/// The largest number in an identity: every JSON library writes integers up to 2^53 exactly.
inline constexpr std::int64_t max_index_number = std::int64_t{1} << 53;

/// The placement of a tensor on one mesh dimension, in the words of DTensor. The dimensions cut a tensor from
/// the first to the last.
struct Placement {
  enum class Kind : std::uint8_t { replicate, shard, partial };
  Kind kind = Kind::replicate;
  int dim = 0;  ///< the cut dimension of a shard
  /// Of a shard: the dimension is first cut into this number of parts, and a rank holds its piece of each
  /// part (_StridedShard of DTensor, for fsdp over tp).
  std::int64_t split_factor = 1;
  /// Of a shard: rank r holds the pieces r and 2 n - 1 - r of 2 n pieces (causal context parallelism).
  bool zigzag = false;
  bool operator==(const Placement&) const = default;
};
/// Parses "Replicate()", "Shard(dim=1)", "_StridedShard(dim=0, sf=2)", "Shard(dim=1, zigzag)" or
/// "Partial(sum)". Throws Error for any other text.
Placement parse_placement(std::string_view);
std::string to_string(const Placement&);

/// The greatest length of a module, an argument, an operator or its attributes in a dump.
inline constexpr std::size_t max_name_length = 4096;

/// The statistics that a recorder computed of a tensor. Nothing: not recorded.
struct Statistics {
  std::optional<double> min, max;
  std::optional<double> mean, l2;      ///< perhaps summed and stored in the dtype of the tensor
  std::optional<double> sum, abs_sum;  ///< over the finite elements: exact, rounded once to float64
  /// Counts of NaN and infinities. If NaN are counted, min and max leave them out; else one NaN makes every
  /// statistic NaN.
  std::optional<std::int64_t> nan, inf;
  double rounding = 0;  ///< relative error of each statistic: digits that were not printed, an earlier cast
  /// In which mean and norm were added up and stored. Nothing: float32, or the tensor's own if that is
  /// narrower.
  std::optional<DType> arithmetic;
  bool operator==(const Statistics&) const = default;
};

/// A tensor as one rank recorded it.
struct Record {
  Identity id;
  std::int64_t seq = 0;  ///< execution order on its rank
  int rank = 0;
  std::string op;                     ///< the operator that made it; empty if not recorded
  std::string attributes;             ///< of that operator: a JSON object; empty if not recorded
  std::optional<std::int64_t> count;  ///< accumulation count, if the recorder knew it
  DType dtype = DType::float32;
  Shape shape;                        ///< of the local part
  Shape global_shape;                 ///< of the whole tensor
  std::vector<Placement> placements;  ///< one per mesh dimension; empty: not sharded
  std::vector<std::int64_t> mesh_coordinate;
  bool within = false;  ///< it shows how a module makes its results, which another implementation may not do
  /// The dimensions of the mesh over which ranks hold different values, and the recorder could not say how.
  std::vector<int> unplaced;
  std::optional<Shape> offsets;  ///< first index of the local box, if the cut is not that of torch.chunk
  /// The record is flat and holds the elements [first, last) of its local box in C order (ZeRO, the
  /// distributed optimizer of Megatron). The elements behind them are padding.
  struct Range {
    std::int64_t first = 0, last = 0;
    bool operator==(const Range&) const = default;
  };
  std::optional<Range> flattened_range;
  std::optional<Shape> cut;  ///< extents without the padding in global_shape
  /// The index of the record with the global row of each row (dim 0) of this one: MoE tokens in the order of
  /// their experts.
  std::optional<std::size_t> rows;
  /// The same, where a comparison has found it.
  std::shared_ptr<const std::vector<std::int64_t>> row_numbers;
  bool has_bits = true;  ///< false: only statistics, a sketch or a checksum were recorded
  /// What was recorded instead of the values: the local part at its place in the whole tensor. Its own values
  /// are not in it (Dump::read_sketch).
  std::shared_ptr<const Sketch> sketch;
  std::optional<Statistics> statistics;
  /// The checksum of the bytes by the recorder: "sha256:..", "crc32:fffe2371", "xor:0x..", "md5:..", or of
  /// bytes widened to another dtype: "crc32(float32):..". Empty: none.
  std::string checksum;
};

/// The greatest number of ranks: more than any machine has, and small enough for products of mesh extents.
inline constexpr int max_ranks = 1 << 24;

struct Mesh {
  std::vector<std::string> dims;  ///< "dp", "tp", ..
  std::vector<std::int64_t> shape;
};

/// A group of ranks that communicate with each other, as a recorder wrote it down.
struct RankGroup {
  std::string id;  ///< as the recorder named it
  std::vector<std::int64_t> ranks;
  auto operator<=>(const RankGroup&) const = default;
};

/// An opened file or folder of recorded tensors. Listing never reads the bytes of tensors.
class Dump {
 public:
  Dump() = default;
  virtual ~Dump() = default;
  Dump(const Dump&) = delete;
  Dump& operator=(const Dump&) = delete;

  std::filesystem::path path;
  std::string format;  ///< "npy", "safetensors", "assay-dump", "msprobe", ..
  int world_size = 1;
  Mesh mesh;
  bool has_steps = true;          ///< false: its recorder takes neither losses nor what an optimizer does
  std::vector<RankGroup> groups;  ///< sorted, without repetition
  std::string producer;           ///< JSON text of the manifest's producer, or empty
  std::vector<Record> records;    ///< in execution order within each rank
  std::vector<std::string>
      notes;  ///< assumptions of the reader, for the report: "run: 2 ranks without a layout; .."
  /// Possible tensors that the reader could not take, as "where: why". They count as not compared.
  std::vector<std::string> left_out;
  /// The errors of parts that could not be read, one sentence each; the other parts could be read.
  std::vector<std::string> unreadable;

  /// Reads the bytes of records[index]. Throws Error (file, tensor, found, expected) if they cannot be read
  /// or were not recorded.
  virtual Tensor read(std::size_t index) const = 0;
  /// Reads the same bytes window by window, if the format can do so without holding all of them in memory.
  /// Damage is then an Error of the windows that touch it.
  virtual TensorSource source(std::size_t index) const { return read(index); }
  /// Reads the sketch that was recorded as records[index]. Throws Error if none was, or it cannot be read.
  virtual Sketch read_sketch(std::size_t index) const;
  /// Returns the place of records[index], for messages: "run/rank00000.safetensors: t00000012".
  virtual std::string location(std::size_t index) const = 0;
};

/// An array without a header: little-endian, in C order, from the first byte of the file to the last.
struct RawArray {
  DType dtype = DType::float32;
  Shape shape;
};
/// Parses "float32:4,8", "float32:[4, 8]" or "float32:" (a scalar). Throws Error for any other text.
RawArray parse_raw(std::string_view);

struct OpenOptions {
  /// The true dtype of arrays in files that cannot name it (npy, npz, HDF5): opaque V2 and V1, integers of
  /// one or two bytes that are bits of bfloat16 or float8, float32 that is tfloat32 or hfloat32 (in
  /// safetensors too).
  std::optional<DType> dtype_hint = std::nullopt;
  /// The array in a file of no known format; in a folder, in files that end in .bin or .raw.
  std::optional<RawArray> raw = std::nullopt;
  Log log = {};
};

/// Opens a file or folder of any format in dumps/, recognised by its content and never by its name alone.
/// Throws Error if nothing is there, no format fits or the file is damaged.
std::unique_ptr<Dump> open_dump(const std::filesystem::path&, const OpenOptions& = {});

}  // namespace assay
