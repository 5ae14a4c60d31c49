#pragma once

#include "assay/golden/certified_matmul.h"
#include "assay/golden/correctly_rounded.h"
#include "assay/operators/engine/operator.h"

/// Fast ways to certified outputs, for the operators that have one (Operator::certify).
namespace assay {

inline void add(Proof& proof, const Certificate& c) {
  proof.exact += c.exact;
  proof.certified += c.certified;
  proof.repaired += c.repaired_double_double + c.repaired_exact;
}

/// A dense rows x columns matrix at `data`, or the transpose of one that is stored columns x rows.
inline MatrixView dense(const float* data, std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {data, rows, columns, transposed ? rows : columns, transposed};
}

/// y = a b into a dense matrix.
inline void certify_matmul(Proof& proof, const MatrixView& a, const MatrixView& b, float* y) {
  add(proof, certified_matmul(a, b, std::span<float>(y, static_cast<std::size_t>(a.rows * b.columns))));
}

/// y = f(x), element by element.
inline void certify_map(Function f, Tensors<float>& t, Proofs& proofs) {
  Proof& proof = proofs["y"];
  proof.repaired = correctly_rounded(f, t.slot("x").values, t.slot("y").values);
  proof.certified = t.size("y") - proof.repaired;
}

}  // namespace assay
