#include "assay/operators/engine/attention_mask.h"

#include <map>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"

namespace assay {
namespace {

Shape heads(const Dims& d) {
  Shape all = d.extents("B");
  all.insert(all.end(), d.extents("H").begin(), d.extents("H").end());
  return all;
}

}  // namespace

HeadBroadcast::HeadBroadcast(const Shape& from, const Dims& d) {
  Shape full = from;
  while (full.size() < 2) full.insert(full.begin(), 1);
  const std::int64_t S = full.back(), L = full[full.size() - 2];
  head_ = broadcast_positions(Shape(full.begin(), full.end() - 2), heads(d));
  for (std::int64_t& position : head_) position *= L * S;
  l_ = L == 1 ? 0 : S;
  s_ = S == 1 ? 0 : 1;
}

std::vector<VisibleKeys::Place> VisibleKeys::places(View<const std::int64_t> ids,
                                                    View<const std::int64_t> cu_seqlens, std::int64_t ends,
                                                    std::int64_t tokens) {
  std::vector<Place> all(static_cast<std::size_t>(tokens));
  std::map<std::int64_t, std::int64_t> lengths;
  std::int64_t document = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    if (cu_seqlens) {
      while (document + 1 < ends && i >= cu_seqlens(document + 1)) ++document;
    }
    const std::int64_t id = ids ? ids(i) : cu_seqlens && document + 1 >= ends ? -1 : document;
    all[static_cast<std::size_t>(i)] = {id, lengths[id]++};
  }
  return all;
}

VisibleKeys::VisibleKeys(const HidingInputs& in, const Dims& d, const Attributes& a)
    : mask_(in.mask), causal_(a.flag("is_causal")) {
  const std::vector<std::int64_t> window = a.integers("window_size");
  left_ = window[0];
  right_ = window[1];
  if (in.mask_shape != nullptr) of_mask_ = HeadBroadcast(*in.mask_shape, d);
  const std::int64_t ends = in.cu_seqlens_q ? d.at("P") : 0;
  queries_ = places(in.document_q, in.cu_seqlens_q, ends, d.at("L"));
  keys_ = places(in.document_k ? in.document_k : in.document_q,
                 in.cu_seqlens_k ? in.cu_seqlens_k : in.cu_seqlens_q, ends, d.at("S"));
  if (a.text("alignment") == "top_left") return;
  std::map<std::int64_t, std::int64_t> longer;  // by document: keys that it has more than queries
  for (const Place& key : keys_) ++longer[key.document];
  for (const Place& query : queries_) --longer[query.document];
  for (Place& query : queries_) query.position += longer[query.document];
}

std::vector<std::int64_t> VisibleKeys::operator()(std::int64_t head, std::int64_t l) const {
  std::vector<std::int64_t> visible;
  visible.reserve(keys_.size());
  const Place query = queries_[static_cast<std::size_t>(l)];
  if (query.document < 0) return visible;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto s = static_cast<std::int64_t>(i);
    const std::int64_t ahead = keys_[i].position - query.position;
    if (keys_[i].document != query.document || (causal_ && ahead > 0)) continue;
    if ((left_ >= 0 && -ahead > left_) || (right_ >= 0 && ahead > right_)) continue;
    if (mask_ && mask_.data()[of_mask_(head, l, s)] == 0) continue;
    visible.push_back(s);
  }
  return visible;
}

namespace {

void check_cumulative(const InputShape* ends, std::string_view name, std::int64_t tokens) {
  if (ends == nullptr || ends->indices == nullptr) return;
  const std::vector<std::int64_t> at = ends->indices->indices();
  if (at.empty() || at.front() != 0 || at.back() > tokens) {
    throw Error("attention: '{}' must begin with 0 and end at most at the {} tokens", name, tokens);
  }
  for (std::size_t i = 1; i < at.size(); ++i) {
    if (at[i] < at[i - 1]) {
      throw Error("attention: '{}' goes from {} down to {}; expected ascending ends of documents", name,
                  at[i - 1], at[i]);
    }
  }
}

}  // namespace

void check_visible_keys(const Dims& d, InputShapes inputs, const Attributes& a) {
  const std::vector<std::int64_t> window = a.integers("window_size");
  if (window.size() != 2 || window[0] < -1 || window[1] < -1) {
    throw Error("attention: window_size must be [left, right], each -1 (no limit) or above");
  }
  if (a.text("alignment") != "top_left" && a.text("alignment") != "bottom_right") {
    throw Error("attention: alignment is \"{}\"; expected top_left or bottom_right", a.text("alignment"));
  }
  const std::string& unseen = a.text("unseen");
  if (unseen != "zeros" && unseen != "mean" && unseen != "either")
    throw Error("attention: unseen is \"{}\"; expected zeros, mean or either", unseen);
  Shape scores = heads(d);
  scores.insert(scores.end(), {d.at("L"), d.at("S")});
  for (const std::string_view name : {"mask", "bias"}) {
    const InputShape* given = find_input(inputs, name);
    if (given != nullptr && broadcast(given->shape, scores) != scores) {
      throw Error("attention: '{}' has shape {}; it must broadcast to the scores {}", name,
                  to_string(given->shape), to_string(scores));
    }
  }
  const auto given = [&](std::string_view name) { return find_input(inputs, name) != nullptr; };
  for (const auto& [queries, keys] :
       {std::pair<std::string_view, std::string_view>{"document_q", "document_k"},
        {"cu_seqlens_q", "cu_seqlens_k"}}) {
    if (given(keys) && !given(queries)) throw Error("attention: '{}' needs '{}'", keys, queries);
    if (given(queries) && !given(keys) && d.at("L") != d.at("S")) {
      throw Error("attention: {} queries have {} keys; '{}' needs '{}'", d.at("L"), d.at("S"), queries, keys);
    }
  }
  if (given("document_q") && given("cu_seqlens_q")) {
    throw Error("attention: documents are given by document_q or by cu_seqlens_q, not by both");
  }
  check_cumulative(find_input(inputs, "cu_seqlens_q"), "cu_seqlens_q", d.at("L"));
  check_cumulative(find_input(inputs, "cu_seqlens_k"), "cu_seqlens_k", d.at("S"));
}

}  // namespace assay
