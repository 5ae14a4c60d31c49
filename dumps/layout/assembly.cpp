#include "assay/dumps/layout/assembly.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

#include "assay/dumps/layout/replicas.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t most_named = 8;

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offsets[d] + a.shape[d] <= b.offsets[d] || b.offsets[d] + b.shape[d] <= a.offsets[d]) return false;
  }
  return true;
}

/// A piece as runs of elements that lie side by side both in the global tensor and in the part.
class PieceRuns {
 public:
  PieceRuns(const RankPart& part, const Piece& piece, const Shape& global)
      : part_(&part), piece_(&piece), global_strides_(global.size(), 1), run_dim_(global.size()) {
    for (std::size_t d = global.size(); d-- > 1;) global_strides_[d - 1] = global_strides_[d] * global[d];
    while (run_dim_ > 0) {
      --run_dim_;
      length_ *= piece.box.shape[run_dim_];
      const bool is_dense = run_dim_ > 0 && piece.box.shape[run_dim_] == global[run_dim_] &&
                            piece.strides[run_dim_ - 1] == piece.strides[run_dim_] * global[run_dim_];
      if (!is_dense) break;
    }
    for (std::size_t d = 0; d < run_dim_; ++d) count_ *= piece.box.shape[d];
    first_ = begin(0).global;
    last_ = begin(count_ - 1).global + length_;
  }
  /// Global flat indices: all of the piece lies in [first, last).
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }

  /// Copies what lies in [from, to) to `out`, which starts at `from`.
  void copy(std::int64_t from, std::int64_t to, std::byte* out, std::size_t element) const {
    // The first run that ends behind `from`; runs are in order.
    std::int64_t low = 0, high = count_;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (begin(middle).global + length_ > from)
        high = middle;
      else
        low = middle + 1;
    }
    for (std::int64_t run = low; run < count_; ++run) {
      const Start start = begin(run);
      if (start.global >= to) return;
      const std::int64_t skipped = std::max<std::int64_t>(0, from - start.global);
      const std::int64_t count = std::min(start.global + length_, to) - start.global - skipped;
      copy_run(start.local + skipped, count,
               out + static_cast<std::size_t>(start.global + skipped - from) * element, element);
    }
  }

 private:
  struct Start {
    std::int64_t global, local;
  };
  Start begin(std::int64_t run) const {
    Start start{0, piece_->at};
    for (std::size_t d = global_strides_.size(); d-- > 0;) {
      std::int64_t index = 0;
      if (d < run_dim_) {
        index = run % piece_->box.shape[d];
        run /= piece_->box.shape[d];
      }
      start.global += (piece_->box.offsets[d] + index) * global_strides_[d];
      start.local += index * piece_->strides[d];
    }
    return start;
  }

  void copy_run(std::int64_t local, std::int64_t count, std::byte* out, std::size_t element) const {
    const std::size_t at = static_cast<std::size_t>(local) * element;
    const std::size_t bytes = static_cast<std::size_t>(count) * element;
    const std::vector<Tensor>& addends = part_->addends;
    if (addends.size() == 1) {
      std::memcpy(out, addends.front().bytes().data() + at, bytes);
      return;
    }
    std::vector<Tensor> windows;
    for (const Tensor& addend : addends)
      windows.emplace_back(addend.dtype(), Shape{count}, addend.bytes().subspan(at, bytes), nullptr);
    std::memcpy(out, exact_sum(windows).bytes().data(), bytes);
  }

  const RankPart* part_;
  const Piece* piece_;
  Shape global_strides_;
  std::size_t run_dim_;
  std::int64_t length_ = 1, count_ = 1;
  std::int64_t first_ = 0, last_ = 0;
};

/// Everything that assembles one tensor.
struct Assembly {
  std::vector<RankPart> parts;
  std::vector<PieceRuns> runs;            // by their first element
  std::vector<std::int64_t> last_so_far;  // of runs[0..i]

  Assembly(const Shape& shape, std::vector<RankPart> given) : parts(std::move(given)) {
    for (const RankPart& part : parts) {
      for (const Piece& piece : part.pieces) runs.emplace_back(part, piece, shape);
    }
    std::ranges::sort(runs, {}, &PieceRuns::first);
    std::int64_t last = 0;
    for (const PieceRuns& r : runs) last_so_far.push_back(last = std::max(last, r.last()));
  }

  void fill(std::int64_t begin, std::span<std::byte> out, std::size_t element) const {
    const std::int64_t end = begin + static_cast<std::int64_t>(out.size() / element);
    const auto from = std::ranges::upper_bound(last_so_far, begin) - last_so_far.begin();
    for (auto i = static_cast<std::size_t>(from); i < runs.size() && runs[i].first() < end; ++i)
      runs[i].copy(begin, end, out.data(), element);
  }
};

}  // namespace

// Boxes in the order of one dimension can meet only while the next one starts before the current one ends: of
// all dimensions the one that tells most of them apart.
void check_cover(const std::vector<RankPart>& parts, const Shape& shape, const std::string& tensor) {
  struct Held {
    const Box* box;
    int rank;
  };
  std::vector<Held> held;
  std::int64_t covered = 0;
  for (const RankPart& part : parts) {
    for (const Piece& piece : part.pieces) {
      held.push_back({&piece.box, part.rank});
      // Each lies inside the shape; more than all of it is an overlap, which is found below.
      if (__builtin_add_overflow(covered, element_count(piece.box.shape), &covered))
        covered = std::numeric_limits<std::int64_t>::max();
    }
  }
  std::size_t by = 0, most = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::set<std::int64_t> starts;
    for (const Held& h : held) starts.insert(h.box->offsets[d]);
    if (starts.size() > most) {
      most = starts.size();
      by = d;
    }
  }
  const auto start = [&](const Held& h) { return shape.empty() ? 0 : h.box->offsets[by]; };
  std::ranges::stable_sort(held, {}, start);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const Box& box = *held[i].box;
    for (std::size_t j = i + 1; j < held.size(); ++j) {
      if (!shape.empty() && start(held[j]) >= box.offsets[by] + box.shape[by]) break;
      if (!overlap(box, *held[j].box)) continue;
      throw Error("{}: rank {} holds {} and rank {} holds {}: they overlap", tensor, held[i].rank,
                  to_string(box), held[j].rank, to_string(*held[j].box));
    }
  }
  if (covered == element_count(shape)) return;
  std::string words;
  for (std::size_t i = 0; i < held.size() && i < most_named; ++i)
    words += fmt::format("{}rank {} {}", words.empty() ? "" : ", ", held[i].rank, to_string(*held[i].box));
  if (held.size() > most_named) words += fmt::format(" and {} more", held.size() - most_named);
  throw Error("{}: the parts hold {} of {} elements of {}; a rank or a part is missing ({})", tensor, covered,
              element_count(shape), to_string(shape), words);
}

TensorSource assemble(DType dtype, const Shape& shape, std::vector<RankPart> parts) {
  for (const RankPart& part : parts) {
    // In place, where one recorded tensor is all of it.
    const bool is_whole = part.addends.size() == 1 && part.pieces.size() == 1 &&
                          part.pieces.front().box.shape == shape && part.addends.front().shape() == shape;
    if (is_whole) return part.addends.front();
  }
  const auto assembly = std::make_shared<const Assembly>(shape, std::move(parts));
  return {dtype, shape, [assembly, element = size_of(dtype)](std::int64_t begin, std::span<std::byte> out) {
            assembly->fill(begin, out, element);
          }};
}

}  // namespace assay
