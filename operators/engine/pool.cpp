#include "assay/operators/engine/pool.h"

#include <algorithm>
#include <numeric>

#include "assay/golden/error.h"

namespace assay {
namespace {

// Windows that start inside the input or the padding before it; with ceil_mode the last one may end outside.
std::int64_t window_count(const PoolAxis& p, bool ceil_mode) {
  const std::int64_t span = (p.kernel - 1) * p.dilation + 1;
  const std::int64_t room = p.in + 2 * p.padding - span;
  if (room < 0 && !(ceil_mode && room + p.stride > 0)) return 0;
  std::int64_t count = (room + (ceil_mode ? p.stride - 1 : 0)) / p.stride + 1;
  if (ceil_mode && (count - 1) * p.stride >= p.in + p.padding) --count;
  return count;
}

}  // namespace

std::vector<std::int64_t> per_axis(std::string_view op, const Attributes& a, std::string_view attribute,
                                   std::size_t spatial, std::int64_t least) {
  std::vector<std::int64_t> values = a.integers(attribute);
  if (values.size() == 1) values.resize(spatial, values[0]);
  if (values.size() != spatial) {
    throw Error("{}: {} has {} numbers; expected 1 or {}", op, attribute, values.size(), spatial);
  }
  // Far beyond any window, so that nothing overflows below.
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const std::int64_t v : values) {
    if (v < least || v > most) throw Error("{}: {} is {}; expected {} to {}", op, attribute, v, least, most);
  }
  return values;
}

std::vector<PoolAxis> pool_axes(std::string_view op, const Shape& x, const Attributes& a) {
  if (!a.has("kernel_size")) throw Error("{}: attribute 'kernel_size' is missing", op);
  const bool number = std::holds_alternative<double>(a.values().find("kernel_size")->second);
  const std::size_t spatial = number ? std::max<std::size_t>(x.size(), 2) - 2 : a.list("kernel_size").size();
  if (spatial < 1 || spatial > 3 || x.size() < spatial) {
    throw Error("{}: x has shape {} and kernel_size {}; expected one to three dimensions behind [N, C]", op,
                to_string(x), number ? "one number" : fmt::format("{} numbers", spatial));
  }
  const auto of = [&](std::string_view attribute, std::int64_t least) {
    return per_axis(op, a, attribute, spatial, least);
  };
  const auto kernel = of("kernel_size", 1), stride = of(a.has("stride") ? "stride" : "kernel_size", 1),
             padding = of("padding", 0),
             dilation = a.has("dilation") ? of("dilation", 1) : std::vector<std::int64_t>(spatial, 1);
  std::vector<PoolAxis> axes;
  for (std::size_t i = 0; i < spatial; ++i) {
    PoolAxis p{x[x.size() - spatial + i], 0, kernel[i], stride[i], padding[i], dilation[i]};
    const std::int64_t half = ((p.kernel - 1) * p.dilation + 1) / 2;
    if (p.padding > half) {
      throw Error("{}: padding is {}; expected at most half of the window, {}", op, p.padding, half);
    }
    p.out = window_count(p, a.flag("ceil_mode"));
    if (p.in < 1 || p.out < 1) {
      throw Error("{}: no window fits into x of shape {} with kernel_size {}, padding {}", op, to_string(x),
                  p.kernel, p.padding);
    }
    axes.push_back(p);
  }
  return axes;
}

void bind_pool(Dims& d, std::span<const PoolAxis> axes, const Shape& x) {
  const auto spatial = x.end() - static_cast<std::ptrdiff_t>(axes.size());
  Shape out, kernel, covering;
  for (const PoolAxis& p : axes) {
    out.push_back(p.out);
    kernel.push_back(p.kernel);
    // o stride + i dilation is the same for i in steps of stride / gcd.
    const std::int64_t step = p.stride / std::gcd(p.stride, p.dilation);
    covering.push_back((p.kernel + step - 1) / step);
  }
  d.set("A", Shape(x.begin(), spatial));
  d.set("S", Shape(spatial, x.end()));
  d.set("O", out);
  d.set("window", kernel);
  d.set("covering", covering);
}

std::vector<std::vector<std::int64_t>> windows(std::span<const PoolAxis> axes) {
  std::vector<std::vector<std::int64_t>> all = {{0}};
  for (const PoolAxis& p : axes) {
    std::vector<std::vector<std::int64_t>> finer;
    for (const std::vector<std::int64_t>& window : all) {
      for (std::int64_t o = 0; o < p.out; ++o) {
        std::vector<std::int64_t>& seen = finer.emplace_back();
        for (const std::int64_t position : window) {
          for (std::int64_t k = 0; k < p.kernel; ++k) {
            const std::int64_t i = p.start(o) + k * p.dilation;
            if (i >= 0 && i < p.in) seen.push_back(position * p.in + i);
          }
        }
      }
    }
    all = std::move(finer);
  }
  return all;
}

}  // namespace assay
