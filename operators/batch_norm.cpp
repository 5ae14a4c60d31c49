#include "assay/operators/engine/channel_norm.h"

namespace assay {
namespace {

// In training with the mean and variance of the batch, which the running ones then move to; else with those.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr std::string_view math =
      "y = (x - mean) w / sqrt(var + eps) + b, per channel, over the batch; "
      "running' = (1 - momentum) running + momentum (mean, var n / (n - 1))";
  static constexpr std::string_view source = "arXiv:1502.03167 alg. 1; torch.nn.BatchNorm2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.batch_norm", "torch.batch_norm",
                                                 "npu_batch_norm", "BatchNorm", "BatchNormalization"};
  static constexpr Attribute attributes[] = {
      {"training", "false", "mean and variance of the batch; false: running_mean and running_var"},
      {"momentum", "0.1", "what the running ones take of the batch"},
      {"eps", "1e-5", "added to the variance"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N,C,D*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "running_mean", .shape = "C", .role = Role::input, .optional = true, .domain = norm_domain},
      {.name = "running_var",
       .shape = "C",
       .role = Role::input,
       .low = .5,
       .high = 2,
       .optional = true,
       .domain = {.low = 0, .high = 0x1p84}},
      {.name = "weight", .shape = "C", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {"grad_y", "N,C,D*", Role::grad_output},
      {.name = "y", .shape = "N,C,D*", .role = Role::output, .terms = "set"},
      {.name = "mean", .shape = "C", .role = Role::output, .terms = "set"},
      {.name = "rstd", .shape = "C", .role = Role::output, .terms = "set"},
      {.name = "new_running_mean", .shape = "C", .role = Role::output, .optional = true, .terms = "set"},
      {.name = "new_running_var", .shape = "C", .role = Role::output, .optional = true, .terms = "set"},
      {.name = "grad_x", .shape = "N,C,D*", .role = Role::grad_input, .terms = "set"},
      {.name = "grad_weight", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "N D"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "N D"},
  };
  static constexpr Example examples[] = {
      {"N=5,C=3,D=", "training=true"},
      {"N=2,C=3,D=3x2", "training=true,momentum=0.3,eps=1e-3", "running_mean,running_var"},
      {"N=3,C=4,D=5", "", "bias"},
      {"N=2,C=2,D=4", "training=true", "weight,bias"}};
  static constexpr Rows rows = Rows::together;
  static constexpr bool over_batch = true;

  // "set": the elements behind one mean; 1 where it is given.
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    d.set("D", Shape(x.begin() + 2, x.end()));
    const std::int64_t n = x[0] * d.at("D");
    const bool has_mean = find_input(inputs, "running_mean") != nullptr,
               has_var = find_input(inputs, "running_var") != nullptr;
    if (has_mean != has_var)
      throw Error("batch_norm: of running_mean and running_var one is given; expected both or none");
    if (!a.flag("training") && !has_mean)
      throw Error("batch_norm: not in training, and no running_mean is given; expected it or training=true");
    if (a.flag("training") && n == 1)
      throw Error("batch_norm: x has shape {}, one element for each channel; expected several in training",
                  to_string(x));
    d.set("set", a.flag("training") ? n : 1);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T eps = constant<T>(a.real("eps")), taken = constant<T>(a.real("momentum")),
            kept = constant<T>(1 - a.real("momentum"));
    const auto x = t["x"].data();
    const auto mean = t["mean"], rstd = t["rstd"], running_mean = t.optional("running_mean"),
               running_var = t.optional("running_var"), new_mean = t.optional("new_running_mean"),
               new_var = t.optional("new_running_var");
    const bool training = a.flag("training"), moves = training && running_mean;
    const std::int64_t count = d.at("N") * d.at("D");
    each_in_parallel(d.at("C"), grain_of(8 * count), [&](std::int64_t c) {
      const Normed of(d, over_batch, c);
      if (training) {
        const T of_mean = sum<T>(count, [&](auto i) { return x[of(i)]; }) / number<T>(count);
        const T squares = sum<T>(count, [&](auto i) {
          const T deviation = x[of(i)] - of_mean;
          return deviation * deviation;
        });
        mean(c) = of_mean;
        rstd(c) = T(1) / sqrt(squares / number<T>(count) + eps);
        if (moves) {
          new_mean(c) = kept * running_mean(c) + taken * of_mean;
          new_var(c) = kept * running_var(c) + taken * (squares / number<T>(count - 1));
        }
      } else {
        mean(c) = running_mean(c);
        rstd(c) = T(1) / sqrt(running_var(c) + eps);
      }
      normalise<T>(t, of, mean(c), rstd(c));
    });
    if (moves) return;
    t.slots().erase("new_running_mean");
    t.slots().erase("new_running_var");
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto mean = t["mean"], rstd = t["rstd"], w = t.optional("weight");
    const T* g = t["grad_y"].data();
    T* grad_x = t["grad_x"].data();
    each_in_parallel(d.at("C"), grain_of(8 * d.at("N") * d.at("D")), [&](std::int64_t c) {
      const Normed of(d, over_batch, c);
      if (a.flag("training")) return normalised_set_gradient<T>(t, of, mean(c), rstd(c));
      const T scale = w ? stored(rstd(c)) * w(c) : stored(rstd(c));
      for (std::int64_t i = 0; i < of.size(); ++i) grad_x[of(i)] = g[of(i)] * scale;
    });
    channel_gradients<T>(t, d, [](std::int64_t, std::int64_t c) { return c; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator batch_norm = describe<BatchNorm>();
}

}  // namespace assay
