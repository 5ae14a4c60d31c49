#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Which keys a query attends to: causal, sliding window, documents, any mask; each takes keys away.
namespace assay {

/// For a tensor that broadcasts to [B*, H*, L, S]: where its element for one head, query and key lies.
class HeadBroadcast {
 public:
  HeadBroadcast() = default;
  HeadBroadcast(const Shape& from, const Dims&);
  std::int64_t operator()(std::int64_t head, std::int64_t l, std::int64_t s) const {
    return head_[static_cast<std::size_t>(head)] + l * l_ + s * s_;
  }

 private:
  std::vector<std::int64_t> head_;
  std::int64_t l_ = 0, s_ = 0;
};

/// The index tensors of a call that hide keys; what was not given is an empty View.
struct HidingInputs {
  View<const std::int64_t> mask, document_q, document_k, cu_seqlens_q, cu_seqlens_k;
  const Shape* mask_shape = nullptr;
};

class VisibleKeys {
 public:
  VisibleKeys(const HidingInputs&, const Dims&, const Attributes&);
  /// The keys that query l of a head (one of B* H*) attends to, ascending.
  std::vector<std::int64_t> operator()(std::int64_t head, std::int64_t l) const;
  /// The place of key s in its document less that of the key on the diagonal of query l.
  std::int64_t ahead(std::int64_t l, std::int64_t s) const {
    return keys_[static_cast<std::size_t>(s)].position - queries_[static_cast<std::size_t>(l)].position;
  }

 private:
  // A token's document, negative for padding, and its position therein.
  struct Place {
    std::int64_t document, position;
  };
  static std::vector<Place> places(View<const std::int64_t> ids, View<const std::int64_t> cu_seqlens,
                                   std::int64_t ends, std::int64_t tokens);

  std::vector<Place> queries_, keys_;  // the position of a query: that of the key on its diagonal
  View<const std::int64_t> mask_;
  HeadBroadcast of_mask_;
  bool causal_;
  std::int64_t left_, right_;  // -1: no limit
};

/// Throws Error for attributes and inputs of a call that VisibleKeys cannot be made of.
void check_visible_keys(const Dims&, InputShapes, const Attributes&);

}  // namespace assay
