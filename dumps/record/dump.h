#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/tensor_source.h"

namespace assay {

enum class Phase : std::uint8_t { none, forward, backward, optimizer };
std::string_view name(Phase);

/// What a recorded tensor is, on any number of ranks: two records with equal identity are parts or copies of
/// one tensor, or the two sides of a comparison. Rank and mesh are layout, never identity. (assay-dump v1)
/// Plain files (npz, safetensors, HDF5) have only names: they stand in `module`, the rest keeps its default.
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
/// One line for people, unique within a dump: "layers.1.attn_norm grad weight (step 0, backward)".
std::string to_string(const Identity&);

/// The words that may stand under Identity::slot.
inline constexpr std::string_view identity_slots[] = {"input", "output", "grad_input", "grad_output",
                                                      "param", "grad",   "state",      "loss"};
bool is_slot(std::string_view);
/// No number in an identity is larger: every producer's JSON library writes up to 2^53 exactly.
inline constexpr std::int64_t max_index_number = std::int64_t{1} << 53;

/// DTensor's words, one per mesh dimension; a tensor is cut by them from the first to the last.
struct Placement {
  enum class Kind : std::uint8_t { replicate, shard, partial };
  Kind kind = Kind::replicate;
  int dim = 0;  ///< of a shard
  /// Of a shard: the dimension is cut into so many parts first, and a rank holds its piece of each (DTensor's
  /// _StridedShard, for fsdp over tp).
  std::int64_t split_factor = 1;
  /// Of a shard: of 2 n pieces rank r holds r and 2 n - 1 - r (causal context parallelism).
  bool zigzag = false;
  bool operator==(const Placement&) const = default;
};
/// "Replicate()", "Shard(dim=1)", "_StridedShard(dim=0, sf=2)", "Shard(dim=1, zigzag)", "Partial(sum)".
/// Throws Error for anything else.
Placement parse_placement(std::string_view);
std::string to_string(const Placement&);

/// No name in a dump is longer: neither a module nor an argument nor an operator.
inline constexpr std::size_t max_name_length = 4096;

/// What a recorder computed of a tensor. Nothing: not recorded.
struct Statistics {
  std::optional<double> min, max;
  std::optional<double> mean, l2;      ///< perhaps summed and stored in the tensor's own dtype
  std::optional<double> sum, abs_sum;  ///< of the finite elements: exact, rounded once to float64
  /// How many there are. Where NaN are counted, min and max leave them out; else one NaN makes all NaN.
  std::optional<std::int64_t> nan, inf;
  double rounding = 0;  ///< relative, of each of them: digits that were not printed, a cast before
  bool operator==(const Statistics&) const = default;
};

/// A tensor as one rank recorded it.
struct Record {
  Identity id;
  std::int64_t seq = 0;  ///< execution order on its rank
  int rank = 0;
  std::string op;                     ///< operator that produced it; empty if not recorded
  std::optional<std::int64_t> count;  ///< accumulation count, where the recorder knew it
  DType dtype = DType::float32;
  Shape shape;                        ///< of the local part
  Shape global_shape;                 ///< of the whole tensor
  std::vector<Placement> placements;  ///< one per mesh dimension; empty: not sharded
  std::vector<std::int64_t> mesh_coordinate;
  std::optional<Shape> offsets;  ///< first index of the local box, where the cut is not torch.chunk's
  /// The record is flat and holds elements [first, last) of its local box in C order (ZeRO, Megatron's
  /// distributed optimizer); what it has behind them is padding.
  struct Range {
    std::int64_t first = 0, last = 0;
    bool operator==(const Range&) const = default;
  };
  std::optional<Range> flattened_range;
  std::optional<Shape> cut;  ///< extents of the tensor without the padding that global_shape has
  /// Which record of its rank holds, per row (dim 0) of this one, the row of the whole tensor: MoE tokens in
  /// the order of their experts.
  std::optional<std::size_t> rows;
  bool has_bits = true;  ///< false: all that was recorded are statistics or a checksum
  std::optional<Statistics> statistics;
  /// The recorder's, of the tensor's bytes: "sha256:..", "crc32:fffe2371", "xor:0x..", "md5:..", or of the
  /// bytes it widened them to: "crc32(float32):..". Empty: none.
  std::string checksum;
};

/// More ranks than any machine has; it keeps the products of mesh extents small.
inline constexpr int max_ranks = 1 << 24;

struct Mesh {
  std::vector<std::string> dims;  ///< "dp", "tp", ..
  std::vector<std::int64_t> shape;
};

/// Ranks that communicate with each other, where a recorder wrote it down.
struct RankGroup {
  std::string id;  ///< the recorder's
  std::vector<std::int64_t> ranks;
  auto operator<=>(const RankGroup&) const = default;
};

/// A file or folder of recorded tensors, opened. Listing never reads tensor bytes.
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
  std::vector<RankGroup> groups;  ///< each once, sorted
  std::string producer;           ///< JSON text of the manifest's producer, or empty
  std::vector<Record> records;    ///< in execution order within each rank
  std::vector<std::string>
      notes;  ///< what a reader assumed, for the report: "run: 2 ranks without a layout; .."
  /// What may be a tensor and could not be taken as one, as "where: why". It counts as not compared.
  std::vector<std::string> left_out;
  /// What was meant to be read and could not be, as the Error's sentence; the rest could.
  std::vector<std::string> unreadable;

  /// The bytes of records[index]. Throws Error (file, tensor, found, expected) if they cannot be read, or
  /// were not recorded.
  virtual Tensor read(std::size_t index) const = 0;
  /// The same, window by window, where the format can do that without having all of it in memory: then what
  /// is damaged may be an Error only of the window that touches it.
  virtual TensorSource source(std::size_t index) const { return read(index); }
  /// Where records[index] lies, for messages: "run/rank00000.safetensors: t00000012".
  virtual std::string location(std::size_t index) const = 0;
};

/// Bytes without a header: little-endian, in C order, from the first byte of the file to the last.
struct RawArray {
  DType dtype = DType::float32;
  Shape shape;
};
/// "float32:4,8", "float32:[4, 8]", "float32:" (a scalar). Throws Error for anything else.
RawArray parse_raw(std::string_view);

struct OpenOptions {
  /// The true type of arrays whose file (npy, npz, HDF5) cannot name it: opaque V2 and V1, one- and two-byte
  /// integers that are the bits of bfloat16 or float8, float32 (safetensors' too) that is tfloat32 or
  /// hfloat32.
  std::optional<DType> dtype_hint = std::nullopt;
  /// What a file of no known format holds; in a folder, files that end in .bin or .raw.
  std::optional<RawArray> raw = std::nullopt;
};

/// Opens any format below dumps/ by its content, never by its name alone.
/// Throws Error if nothing is there, no format fits or the file is damaged.
std::unique_ptr<Dump> open_dump(const std::filesystem::path&, const OpenOptions& = {});

}  // namespace assay
