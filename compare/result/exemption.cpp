#include "assay/compare/result/exemption.h"

#include <algorithm>
#include <iterator>

namespace assay {
namespace {

using Kind = Exemption::Kind;

constexpr ExemptionRow kinds[] = {
    {Kind::amplified_rounding, "amplified_rounding", "amplified rounding",
     "its operator is within the bound of its own inputs, and nothing before it is wrong"},
    {Kind::equivalent_attribute, "equivalent_attribute", "equivalent attribute",
     "it is right with an attribute that the reference does not tell from its own"},
    {Kind::order_of_blocks, "order_of_blocks", "order of blocks",
     "it is right with blocks that end at other tokens"},
    {Kind::noise_of_reruns, "noise_of_reruns", "noise of reruns",
     "reruns of the reference with their sums in other orders differ by nearly as much"},
    {Kind::legal_tie, "legal_tie", "legal tie",
     "its own scores allow this choice, its order means nothing, or it follows from such a choice"},
    {Kind::part_of_whole, "part_of_whole", "part of a whole",
     "the module in which it is has the right results: how it makes them is its own affair"},
    {Kind::nothing, "nothing", "nothing",
     "one side recorded no gradient, and that of the other is zeros or has no elements"},
    {Kind::scale_by_convention, "scale_by_convention", "scale by convention",
     "losses are scaled by one factor, and the gradients of parameters are not"},
};

}  // namespace

const ExemptionRow& row_for(Kind kind) {
  return *std::ranges::find(kinds, kind, &ExemptionRow::kind);
}

std::span<const ExemptionRow> exemption_rows() {
  return kinds;
}

std::string_view name(Kind kind) {
  return row_for(kind).name;
}

std::string sentence(const Exemption& e) {
  return std::string(name(e.kind)) + ": " + e.source;
}

}  // namespace assay
