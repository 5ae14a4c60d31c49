// Muon where matrices are cut (docs/semantics.md C, E). An orthogonalized matrix is no matter of its
// elements: every rank all-gathers value, gradient and momentum, along the dimension in which the matrix is
// cut, over tp, of an expert's over etp; before that, what ZeRO has cut, over dp and cp, of experts over edp.
// All ranks of these groups compute the same whole update, and each keeps its piece; nothing is summed. What
// expert parallel cuts are whole matrices.
#include "assay/align/strategies/muon.h"

#include "assay/align/arithmetic/pieces.h"

namespace assay::align {

MuonMatrices::MuonMatrices(const Ranks& ranks, const PlannedParameter& p, MuonMatrix matrix) : ranks_(ranks) {
  if (matrix == MuonMatrix::blockwise) return;
  for (const Sharding& s : p.shardings) {
    const bool inside = s.placed.dim + 2 >= p.whole.size();  // the rows or the columns
    if (inside && ranks.mesh().size(s.axis) > 1) cuts_.push_back(s);
  }
}

Tensor MuonMatrices::gather(const Tensor& piece, const std::string& name) const {
  Tensor whole = piece;
  for (const Sharding& s : cuts_)
    whole = ranks_.move({Movement::Kind::all_gather, s.axis, s.placed.dim}, name, whole);
  return whole;
}

Tensor MuonMatrices::piece(const Tensor& matrices) const {
  Tensor own = matrices;
  for (const Sharding& s : cuts_)
    own = piece_of(own, s.placed.dim, ranks_.mesh().coordinate(s.axis), ranks_.mesh().size(s.axis));
  return own;
}

}  // namespace assay::align
