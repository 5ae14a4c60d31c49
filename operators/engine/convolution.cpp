#include "assay/operators/engine/convolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {
namespace {

// The element of window o at k, where the input has it.
std::int64_t seen_at(const PoolAxis& p, std::int64_t o, std::int64_t k) {
  const std::int64_t i = p.start(o) + k * p.dilation;
  return i >= 0 && i < p.in ? i : -1;
}

std::vector<Covered::OnAxis> covered_on(const PoolAxis& p) {
  std::vector<Covered::OnAxis> all;
  for (std::int64_t first = 0; first < std::min(p.stride, p.in); ++first) {
    const std::int64_t distance = (first + p.padding) % p.stride;
    Covered::OnAxis& one = all.emplace_back();
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

// Each of these with each of those, f(i) of one more axis of this extent: flat positions, -1 where either is.
template <class F>
std::vector<std::int64_t> finer(const std::vector<std::int64_t>& outer, std::int64_t count,
                                std::int64_t extent, F f) {
  std::vector<std::int64_t> all;
  all.reserve(outer.size() * static_cast<std::size_t>(count));
  for (const std::int64_t o : outer) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t inner = f(i);
      all.push_back(o < 0 || inner < 0 ? -1 : o * extent + inner);
    }
  }
  return all;
}

// The index along each axis of the flat one in C order, of so many along each: f(axis, index).
template <class S, class F>
void each_index(const Convolution& c, std::int64_t flat, S size_of, F f) {
  std::int64_t behind = 1;
  for (std::size_t d = 0; d < c.axes.size(); ++d) behind *= size_of(d);
  for (std::size_t d = 0; d < c.axes.size(); ++d) {
    behind /= size_of(d);
    f(d, flat / behind);
    flat %= behind;
  }
}

struct Windows {
  std::int64_t in, kernel, out, stride, padding, dilation;
  bool operator==(const Windows&) const = default;
};

// Of a kernel on one axis. Those that leave elements out in between go one by one; more padding than such a
// kernel reaches over would be windows of zeros.
std::vector<Windows> windows_on(std::int64_t in, std::int64_t kernel, std::int64_t out) {
  std::vector<Windows> all;
  const std::int64_t apart = kernel > 1 ? in / (kernel - 1) : 1;
  for (std::int64_t dilation = 1; dilation <= std::max<std::int64_t>(apart, 1); ++dilation) {
    const std::int64_t reach = (kernel - 1) * dilation;
    for (std::int64_t stride = 1; stride <= (dilation == 1 ? in : 1); ++stride) {
      for (std::int64_t padding = 0; padding <= reach; ++padding) {
        if (in + 2 * padding > reach && (in + 2 * padding - reach - 1) / stride + 1 == out)
          all.push_back({in, kernel, out, stride, padding, dilation});
      }
    }
  }
  return all;
}

bool go_together(const Windows& a, const Windows& b) {
  if (a.in == b.in && a.kernel == b.kernel && a.out == b.out) return a == b;
  return a.stride == b.stride && a.dilation == b.dilation;
}

Candidate candidate_of(const std::vector<Windows>& axes) {
  const auto list = [&](std::int64_t Windows::*of) {
    std::vector<double> values;
    for (const Windows& w : axes) values.push_back(static_cast<double>(w.*of));
    return values;
  };
  const std::vector<double> stride = list(&Windows::stride), padding = list(&Windows::padding),
                            dilation = list(&Windows::dilation);
  return {{{"stride", stride}, {"padding", padding}, {"dilation", dilation}},
          fmt::format("stride = [{}], padding = [{}], dilation = [{}]", fmt::join(stride, ", "),
                      fmt::join(padding, ", "), fmt::join(dilation, ", "))};
}

}  // namespace

std::vector<Candidate> possible_windows(const Shape& x, const Shape& weight, const Shape& y) {
  const std::size_t spatial = weight.size() < 2 ? 0 : weight.size() - 2;
  std::vector<std::vector<Windows>> all = {{}};
  if (spatial == 0 || x.size() < spatial + 1 || y.size() != x.size()) return {};
  for (std::size_t axis = 0; axis < spatial; ++axis) {
    const std::size_t from = x.size() - spatial + axis;
    std::vector<std::vector<Windows>> longer;
    for (const std::vector<Windows>& before : all) {
      for (const Windows& next : windows_on(x[from], weight[2 + axis], y[from])) {
        if (!std::ranges::all_of(before, [&](const Windows& w) { return go_together(w, next); })) continue;
        longer.push_back(before);
        longer.back().push_back(next);
      }
    }
    all = std::move(longer);
  }
  std::vector<Candidate> candidates;
  for (const std::vector<Windows>& axes : all) candidates.push_back(candidate_of(axes));
  return candidates;
}

std::int64_t Convolution::covering() const {
  std::int64_t product = 1;
  for (const PoolAxis& p : axes) {
    std::size_t most = 0;
    for (const Covered::OnAxis& one : covered_on(p)) most = std::max(most, one.elements.size());
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
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>((end - begin) * c.kernel()));
  for (std::int64_t o = begin; o < end; ++o) {
    std::vector<std::int64_t> seen = {0};
    each_index(
        c, o, [&](std::size_t d) { return c.axes[d].out; },
        [&](std::size_t d, std::int64_t window) {
          const PoolAxis& p = c.axes[d];
          seen = finer(seen, p.kernel, p.in, [&](std::int64_t k) { return seen_at(p, window, k); });
        });
    all.insert(all.end(), seen.begin(), seen.end());
  }
  return all;
}

std::vector<std::int64_t> element_positions(const Convolution& c, std::int64_t k) {
  std::vector<std::int64_t> seen = {0};
  each_index(
      c, k, [&](std::size_t d) { return c.axes[d].kernel; },
      [&](std::size_t d, std::int64_t element) {
        const PoolAxis& p = c.axes[d];
        seen = finer(seen, p.out, p.in, [&](std::int64_t o) { return seen_at(p, o, element); });
      });
  return seen;
}

std::vector<Covered> covered_inputs(const Convolution& c) {
  std::vector<Covered> all = {{{}, {0}, {0}}};
  for (const PoolAxis& p : c.axes) {
    std::vector<Covered> with_axis;
    for (const Covered& before : all) {
      for (const Covered::OnAxis& one : covered_on(p)) {
        const auto of = [](const std::vector<std::int64_t>& list) {
          return [&list](std::int64_t i) { return list[static_cast<std::size_t>(i)]; };
        };
        Covered& part = with_axis.emplace_back();
        part.axes = before.axes;
        part.axes.push_back(one);
        part.inputs = finer(before.inputs, std::ssize(one.inputs), p.in, of(one.inputs));
        part.elements = finer(before.elements, std::ssize(one.elements), p.kernel, of(one.elements));
      }
    }
    all = std::move(with_axis);
  }
  return all;
}

std::vector<std::int64_t> covering_windows(const Convolution& c, const Covered& part, std::int64_t begin,
                                           std::int64_t end) {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(end - begin) * part.elements.size());
  for (std::int64_t i = begin; i < end; ++i) {
    std::vector<std::int64_t> windows = {0};
    each_index(
        c, i, [&](std::size_t d) { return std::ssize(part.axes[d].inputs); },
        [&](std::size_t d, std::int64_t at) {
          const PoolAxis& p = c.axes[d];
          const Covered::OnAxis& axis = part.axes[d];
          const std::int64_t s = axis.inputs[static_cast<std::size_t>(at)];
          windows = finer(windows, std::ssize(axis.elements), p.out, [&](std::int64_t e) {
            return window_at(p, s, axis.elements[static_cast<std::size_t>(e)]);
          });
        });
    all.insert(all.end(), windows.begin(), windows.end());
  }
  return all;
}

}  // namespace assay
