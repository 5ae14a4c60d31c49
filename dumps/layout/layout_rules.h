#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// How a user says what a dump does not say itself: which ranks there are, how they have cut tensors, and
/// where numbers in names count from (design 3.5).
struct LayoutRules {
  /// Ranks counted in C order: the last dimension is the fastest. It holds for dumps of so many ranks; finer
  /// than any one tensor needs where tensors are cut over different groups (dp as edp and ep).
  struct MeshRule {
    Mesh mesh;
    std::string rank;  ///< regex: its first group is the rank in a tensor's name, where nothing else says it
    std::string source;
  };
  /// A number in a name, or the micro-batch, that each coordinate of `axis` counts from 0.
  struct Renumber {
    std::string pattern;  ///< regex; its last group is the number, one before it a virtual pipeline's chunk
    std::string to;  ///< what the match becomes, $n being the global number; empty: only the number changes
    std::string axis;
    std::vector<std::int64_t> starts;  ///< of each coordinate; of chunk c and coordinate p: entry c P + p
    std::int64_t per = 0;              ///< if there are no starts: equally many each; 0: interleaved
    bool micro_batch = false;
    std::string source;
    mutable bool used = false;
  };
  /// One dimension of a tensor, or no dimension: a sum over an axis.
  struct Token {
    enum class How : std::uint8_t { blocks, zigzag, rows, partial };
    std::string name;  ///< empty for a sum
    struct Axis {
      std::string axis;
      How how = How::blocks;
    };
    std::vector<Axis> axes;  ///< the first is the outermost cut
  };
  struct Layout {
    std::string match;  ///< glob
    std::vector<Token> dims;
    Shape shape;       ///< of the tensor, where it is recorded flat; else empty
    std::string flat;  ///< axis over which it is flattened and cut; else empty
    Shape cut;         ///< extents without padding, 0: as they are; else empty
    std::string rows;  ///< glob: the tensor that holds the global row of each row; else empty
    std::string source;
    mutable bool used = false;
  };

  std::vector<MeshRule> meshes;
  std::vector<Renumber> renumbers;
  std::vector<Layout> layouts;

  bool empty() const { return meshes.empty() && renumbers.empty() && layouts.empty(); }
  /// Those that nothing has matched, as their sources.
  std::vector<std::string> unused() const;
};

/// "out[tp] in", "s[cp:zigzag,tp] h", "t[ep:rows] h", "out in [dp:partial]". Throws Error that shows the part
/// it cannot read.
std::vector<LayoutRules::Token> parse_dims(const std::string&);

/// Gives the records of a dump their ranks, numbers and cuts. A dump of one rank stays as it is.
/// @throws Error that names the rule, if no mesh has as many ranks, or a tensor does not fit its rule
void apply_layout(Dump&, const LayoutRules&);

}  // namespace assay
