#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Statements of the user about a dump that carries no layout: its ranks, how they cut tensors, and the start
/// of the numbers in names (docs/rules.md).
struct LayoutRules {
  /// A mesh whose ranks count in C order: the last dimension is the fastest. The rule applies to dumps with
  /// this number of ranks. The mesh may be finer than any single tensor needs, if tensors are cut over
  /// different groups (dp as edp and ep).
  struct MeshRule {
    Mesh mesh;
    std::string
        rank;  ///< regex: its first group is the rank in the name of a tensor, if the dump has no other rank
    std::string source;
  };
  /// A number in a name, or the micro-batch, that starts at 0 on each coordinate of `axis`.
  struct Renumber {
    std::string pattern;  ///< regex; the last group is the number, a group before it is the chunk of a
                          ///< virtual pipeline
    std::string to;       ///< replaces the match; $n is the global number; empty: only the number changes
    std::string axis;
    std::vector<std::int64_t> starts;  ///< one per coordinate; chunk c of coordinate p has entry c P + p
    std::int64_t per = 0;              ///< without `starts`: how many each coordinate has; 0: interleaved
    bool micro_batch = false;
    std::string source;
    mutable bool used = false;
  };
  /// One dimension of a tensor, or a sum over an axis, which is no dimension.
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
    Shape shape;       ///< of a tensor that was recorded flat; else empty
    std::string flat;  ///< the axis over which a flat tensor is cut; else empty
    Shape cut;         ///< extents without padding, 0: unchanged; else empty
    std::string rows;  ///< glob: the tensor with the global row of each row; else empty
    std::string source;
    mutable bool used = false;
  };

  std::vector<MeshRule> meshes;
  std::vector<Renumber> renumbers;
  std::vector<Layout> layouts;

  bool empty() const { return meshes.empty() && renumbers.empty() && layouts.empty(); }
  /// Returns the sources of the rules that matched nothing.
  std::vector<std::string> unused() const;
};

/// Parses dimensions like "out[tp] in", "s[cp:zigzag,tp] h", "t[ep:rows] h", "out in [dp:partial]". Throws
/// Error that shows the unreadable part.
std::vector<LayoutRules::Token> parse_dims(const std::string&);

/// Gives the records of a dump their ranks, numbers and cuts. A dump of one rank stays unchanged.
/// @throws Error  that names the rule, if no mesh has this number of ranks or a tensor does not fit its rule
void cut_by_layout(Dump&, const LayoutRules&);

/// The same for a dump that is looked at alone: what nothing places (Record::unplaced) is said to be left
/// out.
void apply_layout(Dump&, const LayoutRules&);

/// The same for both sides of a comparison. What a recorder could not place is placed by the other side:
/// ranks whose parts differ hold shards of the one dimension in which they are together as long as the whole,
/// in the order of ranks; scalars that were computed forward are addends, and other parts that are as large
/// as the whole are taken for copies. Inside of a module whose results all ranks share they are addends where
/// their sum is nearer to the whole than one of them is, and else each rank's own: these stay unplaced. Where
/// both sides have one mesh and neither is placed, parts are compared rank by rank.
void apply_layouts(Dump& actual, Dump& reference, const LayoutRules&);

/// And gives both sides the same weights of experts (fused_weights.h).
void apply_layouts(std::unique_ptr<Dump>& actual, std::unique_ptr<Dump>& reference, const LayoutRules&);

/// Why those tensors of a dump that nothing has placed cannot be read, each in a sentence.
std::map<Identity, std::string> why_unplaced(const Dump&);

}  // namespace assay
