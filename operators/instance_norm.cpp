#include "assay/operators/engine/channel_norm.h"

namespace assay {
namespace {

struct InstanceNorm {
  static constexpr std::string_view name = "instance_norm";
  static constexpr std::string_view math =
      "y = (x - mean) w / sqrt(var + eps) + b, over each channel of each sample";
  static constexpr std::string_view source =
      "arXiv:1607.08022 eq. 4; biased variance as in torch.nn.InstanceNorm2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.instance_norm", "npu_instance_norm",
                                                 "InstanceNorm", "InstanceNormalization"};
  static constexpr Attribute attributes[] = {{"eps", "1e-5", "added to the variance"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N,C,D*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "weight", .shape = "C", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {"grad_y", "N,C,D*", Role::grad_output},
      {.name = "y", .shape = "N,C,D*", .role = Role::output, .terms = "D"},
      {.name = "mean", .shape = "N,C", .role = Role::output, .terms = "D"},
      {.name = "rstd", .shape = "N,C", .role = Role::output, .terms = "D"},
      {.name = "grad_x", .shape = "N,C,D*", .role = Role::grad_input, .terms = "D"},
      {.name = "grad_weight", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "N D"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "N D"},
  };
  static constexpr Example examples[] = {
      {"N=2,C=3,D=5"}, {"N=3,C=2,D=3x4", "eps=1e-3", "bias"}, {"N=2,C=2,D=4x2x2", "", "weight,bias"}};
  static constexpr bool over_batch = false;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T eps = constant<T>(a.real("eps"));
    const T* x = t["x"].data();
    T *mean = t["mean"].data(), *rstd = t["rstd"].data();
    each_in_parallel(Normed::count(d, over_batch), grain_of(8 * d.at("D")), [&](std::int64_t set) {
      const Normed of(d, over_batch, set);
      const Moments<T> m = moments(
          of.size(), [&](auto i) { return x[of(i)]; }, eps);
      mean[set] = m.mean;
      rstd[set] = m.rstd;
      normalise<T>(t, of, m.mean, m.rstd);
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const T *mean = t["mean"].data(), *rstd = t["rstd"].data();
    each_in_parallel(Normed::count(d, over_batch), grain_of(8 * d.at("D")), [&](std::int64_t set) {
      normalised_set_gradient<T>(t, Normed(d, over_batch, set), mean[set], rstd[set]);
    });
    channel_gradients<T>(t, d, [C = d.at("C")](std::int64_t n, std::int64_t c) { return n * C + c; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator instance_norm = describe<InstanceNorm>();
}

}  // namespace assay
