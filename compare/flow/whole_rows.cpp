// Rows that are added up where an index says, joined, and cut into pieces: how many there are of each is
// another in each micro-batch.
#include "assay/compare/flow/whole_rows.h"

#include <algorithm>

#include "assay/compare/flow/moves.h"

namespace assay {
namespace {

// Elements as they were made: those that nothing is moved to are 0.
class Moving {
 public:
  explicit Moving(std::int64_t size) {
    for (std::vector<double>* all : {&value_.values, &value_.magnitude, &value_.error})
      all->resize(static_cast<std::size_t>(size), 0);
    value_.is_exact = true;
  }
  // False if there is no place for them.
  bool take(const DerivedValue& from, std::size_t first, std::size_t count, std::size_t to) {
    if (first + count > from.values.size() || to + count > value_.values.size()) return false;
    for (std::size_t i = 0; i < count; ++i) {
      value_.values[to + i] = from.values[first + i];
      value_.magnitude[to + i] = from.size(first + i);
      value_.error[to + i] = from.of(first + i);
    }
    value_.roundoff = std::max(value_.roundoff, from.roundoff);
    value_.is_exact = value_.is_exact && from.is_exact;
    return true;
  }
  DerivedValue made() && {
    if (value_.is_exact) value_.error.clear(), value_.magnitude.clear();
    return std::move(value_);
  }

 private:
  DerivedValue value_;
};

// A sum of rows is what the gradient is of rows that are taken, and the other way round.
Relation gathered(const Relation& scattered) {
  Relation rows = scattered;
  rows.kind = Relation::Kind::rows;
  rows.choice = Relation::each_number;
  return rows;
}

// How many elements lie before those of a source that was joined, or before a piece.
std::optional<std::size_t> before(const Relation& r, std::size_t first, std::size_t end,
                                  const ReadSource& read) {
  std::size_t size = 0;
  for (std::size_t s = first; s < end; ++s) {
    const auto other = read(r.sources[s]);
    if (other == nullptr) return {};
    size += other->values.size();
  }
  return size;
}

}  // namespace

std::optional<DerivedValue> evaluate_whole_rows(const Relation& r, const Shape& shape,
                                                const ReadSource& read) {
  const auto first = read(r.sources.front());
  if (first == nullptr) return {};
  if (r.kind == Relation::Kind::scattered)
    return adjoint(gathered(r), 0, as_expected(*first), first->shape, shape, read);
  const std::int64_t size = element_count(shape);
  Moving moving(size);
  if (r.kind == Relation::Kind::stretch) {
    const auto at = before(r, 1, r.sources.size(), read);
    if (!at || !moving.take(as_expected(*first), *at, static_cast<std::size_t>(size), 0)) return {};
    return std::move(moving).made();
  }
  std::size_t at = 0;
  for (const Name& name : r.sources) {
    const auto source = read(name);
    if (source == nullptr || !moving.take(as_expected(*source), 0, source->values.size(), at)) return {};
    at += source->values.size();
  }
  if (at != static_cast<std::size_t>(size)) return {};
  return std::move(moving).made();
}

std::optional<DerivedValue> adjoint_of_whole_rows(const Relation& r, std::size_t source,
                                                  const DerivedValue& gradient, const Shape& target,
                                                  const Shape& shape, const ReadSource& read) {
  const bool is_joined = r.kind == Relation::Kind::joined;
  if (!is_joined && source != 0) return {};
  const auto size = static_cast<std::size_t>(element_count(shape)), given = gradient.values.size();
  Moving moving(element_count(shape));
  if (r.kind == Relation::Kind::scattered) {
    const auto index = read(r.sources.back());
    bool fits = index != nullptr;
    const Map move = [&](std::int64_t to, Moved from) {
      fits =
          fits && moving.take(gradient, static_cast<std::size_t>(from.from), 1, static_cast<std::size_t>(to));
    };
    if (!fits || !for_each_row(gathered(r), shape, target, *index, move) || !fits) return {};
    return std::move(moving).made();
  }
  const auto at = is_joined ? before(r, 0, source, read) : before(r, 1, r.sources.size(), read);
  if (!at || !(is_joined ? moving.take(gradient, *at, size, 0) : moving.take(gradient, 0, given, *at)))
    return {};
  return std::move(moving).made();
}

}  // namespace assay
