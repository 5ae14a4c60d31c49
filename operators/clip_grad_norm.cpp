#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// N: the elements of all grads.
struct ClipGradNorm {
  static constexpr std::string_view name = "clip_grad_norm";
  static constexpr std::string_view math =
      "clipped = grad min(1, max_norm / (norm + eps)), norm over all grads";
  static constexpr std::string_view source =
      "arXiv:1211.5063 alg. 1; eps as in torch.nn.utils.clip_grad_norm_";
  static constexpr std::string_view aliases[] = {"torch.nn.utils.clip_grad_norm_", "ClipGradNorm",
                                                 "clip_by_global_norm", "clip_grad_by_total_norm_fp32"};
  static constexpr Attribute attributes[] = {
      {"max_norm", "1", "the norm to keep below"},
      {"norm_type", "2", "p of the norm; \"inf\": the largest absolute value"},
      {"eps", "1e-6", "added to the norm inside the division; MindFormers has none"}};
  static constexpr Arg args[] = {
      {"grad_#", "", Role::input},
      {.name = "norm", .shape = "", .role = Role::output, .terms = "N"},
      {.name = "clipped_#", .shape = "", .role = Role::output, .terms = "N"},
  };
  static constexpr Example examples[] = {{"grad_0=5x7,grad_1=11,grad_2=2x3x4"},
                                         {"grad_0=3,grad_1=2x2", "max_norm=1000"},
                                         {"grad_0=6", "norm_type=\"inf\""},
                                         {"grad_0=4,grad_1=", "norm_type=3"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    std::int64_t n = 0;
    for (const InputShape& input : inputs) {
      if (__builtin_add_overflow(n, element_count(input.shape), &n))
        throw Error("clip_grad_norm: too many elements");
    }
    d.set("N", n);
    if (!(a.real("norm_type") > 0)) throw Error("clip_grad_norm: norm_type must be above 0");
  }

  template <class T>
  static T norm_of(const std::vector<T>& all, double p) {
    const auto n = static_cast<std::int64_t>(all.size());
    const auto magnitude = [&](auto i) { return abs(all[static_cast<std::size_t>(i)]); };
    if (std::isinf(p)) {
      T largest = T(0);
      for (std::int64_t i = 0; i < n; ++i) largest = maximum<T>(largest, magnitude(i));
      return largest;
    }
    if (p == 2) return sqrt(sum<T>(n, [&](auto i) { return magnitude(i) * magnitude(i); }));
    if (p == 1) return sum<T>(n, magnitude);
    const T exponent = constant<T>(p);
    const T total = sum<T>(n, [&](auto i) { return pow(magnitude(i), exponent); });
    return pow(total, T(1) / exponent);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    std::vector<T> all;
    const std::int64_t count = t.count("grad_#");
    for (std::int64_t i = 0; i < count; ++i) {
      const std::vector<T>& grad = t.slot("grad_" + std::to_string(i)).values;
      all.insert(all.end(), grad.begin(), grad.end());
    }
    const T norm = norm_of(all, a.real("norm_type"));
    t["norm"]() = norm;
    // min(1, c), NaN if c is: the gradients must not look clean where the norm is not.
    const T coefficient = constant<T>(a.real("max_norm")) / (norm + constant<T>(a.real("eps")));
    const T scale = -maximum<T>(-coefficient, T(-1));
    for (std::int64_t i = 0; i < count; ++i) {
      auto& clipped = t.slots()["clipped_" + std::to_string(i)];
      clipped = t.slot("grad_" + std::to_string(i));
      clipped.arg = nullptr;
      for (T& g : clipped.values) g *= scale;
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator clip_grad_norm = describe<ClipGradNorm>();
}

}  // namespace assay
