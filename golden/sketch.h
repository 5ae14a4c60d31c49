#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "assay/golden/tensor.h"

/// Linear sketches: 2 KB that stand for a tensor of any size in comparisons (Sketcher makes them).
///
/// A tensor is a matrix A: its rows are all dimensions but the last, in C order of the global shape, its
/// columns the last one. The rows fall into contiguous blocks (row i of n into block floor(i blocks / n)),
/// and so do the columns. Each pair of blocks p, q is projected on random signs:
///
///     S[p, q, j] = sum over the rows i of p and the columns c of q of  sign(i, j) sign(c, j) A[i, c]
///
/// S is linear: shards add up, partial sums add up, and what is a combination of tensors is the same
/// combination of their sketches. E S[p, q, j]^2 is the sum of squares of the block (AMS: Alon, Matias and
/// Szegedy 1999, doi:10.1006/jcss.1997.1545). A sign depends on the axis, the global index and j alone, so
/// every rank sketches what it holds.
namespace assay {

/// How fine a sketch is. Sketches of one seed can be compared: the finer one is coarsened.
struct SketchSpec {
  std::int64_t grid_rows = 4, grid_columns = 4;  ///< blocks of rows and of columns
  /// Projections of each block. Two errors of one block that are equal and opposite cancel in all of them
  /// with probability 2^-signs.
  std::int64_t signs = 16;
  std::uint64_t seed = 0;

  std::int64_t size() const { return grid_rows * grid_columns * signs; }
  bool operator==(const SketchSpec&) const = default;
};

/// Rows and columns of a tensor, as sketches see it.
struct MatrixExtents {
  std::int64_t rows = 1, columns = 1;
};
MatrixExtents matrix_extents(const Shape&);

/// Throws Error for a spec without blocks or signs, or with more than 2^16 values.
void check_spec(const SketchSpec&);

/// The blocks of a tensor of this global shape: what has fewer rows than blocks has all blocks along its
/// columns, and vice versa.
SketchSpec spec_for(const Shape&, const SketchSpec&);

/// Whether the tensor has more elements than its sketch would have values; else it is kept itself.
bool is_sketched(const Shape&, const SketchSpec&);

/// Of a tensor, a shard, a partial sum or a difference.
struct Sketch {
  Shape shape;                 ///< global
  SketchSpec spec;             ///< of this shape (spec_for)
  std::vector<double> values;  ///< spec.size(), [p, q, j] in C order; NaN and infinities are zero in them
  std::int64_t nan = 0, positive_infinities = 0, negative_infinities = 0;
  std::optional<double> square;              ///< the sum of squares; nothing where it is not known
  std::optional<double> peak;                ///< the largest magnitude
  std::optional<std::uint64_t> fingerprint;  ///< of all bits: see key_of_row

  /// Of no elements yet.
  static Sketch nothing(const Shape&, const SketchSpec&);
  /// Takes another shard of the tensor in. Throws Error if shape or spec differ.
  void join(const Sketch& shard);
  /// Adds `factor` times another tensor of the shape. What is not linear is unknown then, and counts of NaN
  /// and infinities become upper bounds.
  void add(const Sketch&, double factor = 1);
  /// What the coarser spec would have given: its signs are the first ones, its blocks neighbouring blocks
  /// together. Throws Error if it is not coarser.
  Sketch coarsened(const SketchSpec&) const;

  std::int64_t infinities() const { return positive_infinities + negative_infinities; }
  double estimated_norm() const;                ///< of the L2 norm, from the values alone
  double norm() const;                          ///< the L2 norm, estimated where it is not known
  std::vector<double> norms_of_blocks() const;  ///< estimates, [p, q]
};

/// The finest spec that both are made of. Throws Error if there is none, or the seeds differ.
SketchSpec common_spec(const SketchSpec&, const SketchSpec&);

/// The L2 norm of actual - reference, which lies in [low, high] with 99.9 % whatever the difference looks
/// like, if it does not lie in a single block.
struct SketchDistance {
  double estimate = 0, low = 0, high = 0;
};
SketchDistance distance(const Sketch& actual, const Sketch& reference);
/// The interval of an estimate, as of distance().
SketchDistance interval(double estimate, const Sketch& of);
/// Degrees of freedom of an estimate: its square, divided by the true one, is chi-square over so many, about.
double degrees_of_freedom(const Sketch&);

/// 64 random bits of an index: of its signs (bit j of word w is sign 64 w + j, set for a minus) or of its key
/// in fingerprints. The finalizer of splitmix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195),
/// twice.
enum class HashAxis : std::uint64_t { row = 0x526F77, column = 0x436F6C };
std::uint64_t mixed(std::uint64_t);
std::uint64_t sign_bits(std::int64_t index, HashAxis, std::uint64_t seed, std::uint64_t word = 0);
/// The fingerprint of a tensor is the sum over its elements of mixed(bits ^ (key of row + key of column)),
/// modulo 2^64: it adds up over shards in any order, and tells where an element lies. Bits are those of the
/// value as float64 (all NaN are one, +0 is not -0), of integers as int64. Tensors that differ have equal
/// ones with probability 2^-64, unless they were made for it.
std::uint64_t fingerprint_key(std::int64_t index, HashAxis, std::uint64_t seed);

}  // namespace assay
