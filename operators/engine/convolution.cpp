#include "assay/operators/engine/convolution.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {
namespace {

// The element of window o at k, where the input has it.
std::int64_t seen_at(const PoolAxis& p, std::int64_t o, std::int64_t k) {
  const std::int64_t i = p.start(o) + k * p.dilation;
  return i >= 0 && i < p.in ? i : -1;
}

// Of one axis: inputs at the same distance from the beginning of a window meet the same elements of windows.
struct CoveredOnAxis {
  std::vector<std::int64_t> inputs, elements;
};

std::vector<CoveredOnAxis> covered_on(const PoolAxis& p) {
  std::vector<CoveredOnAxis> all;
  for (std::int64_t first = 0; first < std::min(p.stride, p.in); ++first) {
    const std::int64_t distance = (first + p.padding) % p.stride;
    CoveredOnAxis& one = all.emplace_back();
    for (std::int64_t s = first; s < p.in; s += p.stride) one.inputs.push_back(s);
    for (std::int64_t k = 0; k < p.kernel; ++k) {
      if (k * p.dilation % p.stride == distance) one.elements.push_back(k);
    }
  }
  return all;
}

// The window whose element k is s.
std::int64_t window_at(const PoolAxis& p, std::int64_t s, std::int64_t k) {
  const std::int64_t from = s + p.padding - k * p.dilation;
  return from >= 0 && from % p.stride == 0 && from / p.stride < p.out ? from / p.stride : -1;
}

// Each of these with each of those: a flat position of one more axis.
std::vector<std::int64_t> finer(const std::vector<std::int64_t>& outer,
                                const std::vector<std::int64_t>& inner, std::int64_t extent) {
  std::vector<std::int64_t> all;
  all.reserve(outer.size() * inner.size());
  for (const std::int64_t o : outer) {
    for (const std::int64_t i : inner) all.push_back(o * extent + i);
  }
  return all;
}

}  // namespace

std::int64_t Convolution::covering() const {
  std::int64_t product = 1;
  for (const PoolAxis& p : axes) {
    std::size_t most = 0;
    for (const CoveredOnAxis& one : covered_on(p)) most = std::max(most, one.elements.size());
    product *= static_cast<std::int64_t>(most);
  }
  return product;
}

std::size_t spatial_dimensions(std::string_view op, const Shape& x, const Shape& weight) {
  const std::size_t spatial = weight.size() - std::min<std::size_t>(weight.size(), 2);
  if (spatial < 1 || spatial > 3 || (x.size() != spatial + 1 && x.size() != spatial + 2)) {
    throw Error(
        "{}: x has shape {} and weight {}; expected [N, C, S..] or [C, S..], and [., ., K..] with one to "
        "three dimensions",
        op, to_string(x), to_string(weight));
  }
  for (std::size_t i = 0; i < spatial; ++i) {
    if (x[x.size() - 1 - i] < 1 || weight[weight.size() - 1 - i] < 1)
      throw Error("{}: x has shape {} and weight {}; expected no empty dimension behind the channels", op,
                  to_string(x), to_string(weight));
  }
  return spatial;
}

std::int64_t groups_of(std::string_view op, const Attributes& a, std::string_view what,
                       std::int64_t channels) {
  const std::int64_t groups = a.integer("groups");
  if (groups < 1 || channels % groups != 0)
    throw Error("{}: groups is {}; expected a divisor of the {} {}", op, groups, channels, what);
  return groups;
}

std::vector<std::int64_t> window_positions(const Convolution& c, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all, seen, more;
  all.reserve(static_cast<std::size_t>((end - begin) * c.kernel()));
  for (std::int64_t o = begin; o < end; ++o) {
    std::int64_t behind = c.out(), rest = o;
    seen.assign(1, 0);
    for (const PoolAxis& p : c.axes) {
      behind /= p.out;
      const std::int64_t window = rest / behind;
      rest %= behind;
      more.clear();
      for (const std::int64_t before : seen) {
        for (std::int64_t k = 0; k < p.kernel; ++k) {
          const std::int64_t i = seen_at(p, window, k);
          more.push_back(before < 0 || i < 0 ? -1 : before * p.in + i);
        }
      }
      seen.swap(more);
    }
    all.insert(all.end(), seen.begin(), seen.end());
  }
  return all;
}

std::vector<Covered> covered_inputs(const Convolution& c) {
  std::vector<Covered> all = {{{0}, {0}, {0}}};
  for (const PoolAxis& p : c.axes) {
    std::vector<Covered> with_axis;
    for (const Covered& before : all) {
      for (const CoveredOnAxis& one : covered_on(p)) {
        Covered& part = with_axis.emplace_back();
        part.inputs = finer(before.inputs, one.inputs, p.in);
        part.elements = finer(before.elements, one.elements, p.kernel);
        part.windows.reserve(part.inputs.size() * part.elements.size());
        for (std::size_t i = 0; i < before.inputs.size(); ++i) {
          for (const std::int64_t s : one.inputs) {
            for (std::size_t e = 0; e < before.elements.size(); ++e) {
              const std::int64_t outer = before.windows[i * before.elements.size() + e];
              for (const std::int64_t k : one.elements) {
                const std::int64_t o = window_at(p, s, k);
                part.windows.push_back(outer < 0 || o < 0 ? -1 : outer * p.out + o);
              }
            }
          }
        }
      }
    }
    all = std::move(with_axis);
  }
  return all;
}

}  // namespace assay
