#include "assay/golden/error.h"
#include "assay/operators/engine/convolution.h"

namespace assay {
namespace {

// The transpose of the convolution from its output to its input: each element of x weights a window of y.
struct ConvTranspose {
  static constexpr std::string_view name = "conv_transpose";
  static constexpr std::string_view math =
      "y_m = sum over channels c and windows that cover an element, at k, of w_cmk x_c + b_m";
  static constexpr std::string_view source = "torch.nn.functional.conv_transpose2d; arXiv:1603.07285 ch. 4";
  static constexpr std::string_view aliases[] = {"ConvTranspose1d",
                                                 "ConvTranspose2d",
                                                 "ConvTranspose3d",
                                                 "torch.nn.functional.conv_transpose1d",
                                                 "torch.nn.functional.conv_transpose2d",
                                                 "torch.nn.functional.conv_transpose3d",
                                                 "conv_transpose1d",
                                                 "conv_transpose2d",
                                                 "conv_transpose3d",
                                                 "npu_conv_transpose2d",
                                                 "ConvTranspose"};
  static constexpr Attribute attributes[] = {
      convolution_stride,
      {"padding", "[0]", "elements at both ends of y that are left out"},
      {"output_padding", "[0]",
       "elements at the end of y that are there beyond the last window, or not left out"},
      convolution_dilation,
      convolution_groups};
  static constexpr Arg args[] = {
      {"x", "N*,C,S*", Role::input},
      {"weight", "C,I,K*", Role::param},
      {.name = "bias", .shape = "M", .role = Role::param, .optional = true},
      {"grad_y", "N*,M,O*", Role::grad_output},
      {.name = "y", .shape = "N*,M,O*", .role = Role::output, .terms = "inputs covering + bias"},
      {.name = "grad_x", .shape = "N*,C,S*", .role = Role::grad_input, .terms = "I K"},
      {.name = "grad_weight", .shape = "C,I,K*", .role = Role::grad_input, .terms = "N S"},
      {.name = "grad_bias", .shape = "M", .role = Role::grad_input, .optional = true, .terms = "N O"},
  };
  static constexpr Example examples[] = {
      {"N=2,C=3,S=5,I=4,K=3", "stride=2,padding=1,output_padding=1", "bias"},
      {"N=1,C=4,S=4x3,I=3,K=3x2,M=6", "groups=2,stride=[2,1],dilation=[1,2]"},
      {"N=,C=2,S=3x4,I=2,K=2x2,M=2", "stride=[3,2],padding=[0,1]"},
      {"N=1,C=2,S=3x2x4,I=2,K=2x3x1,M=2", "stride=[2,1,1]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static Convolution convolution(const Shape& x, const Shape& weight, const Attributes& a) {
    const std::size_t spatial = spatial_dimensions(name, x, weight);
    const std::int64_t C = x[x.size() - spatial - 1], N = x.size() == spatial + 2 ? x[0] : 1;
    const std::int64_t groups = groups_of(name, a, "channels", C);
    if (weight[0] != C)
      throw Error("{}: x has shape {} and weight {}; expected {} channels in both", name, to_string(x),
                  to_string(weight), C);
    Convolution c{N, weight[1] * groups, C, groups, {}};
    const auto of = [&](std::string_view attribute, std::int64_t least) {
      return per_axis(name, a, attribute, spatial, least);
    };
    const auto stride = of("stride", 1), padding = of("padding", 0), more = of("output_padding", 0),
               dilation = of("dilation", 1);
    for (std::size_t i = 0; i < spatial; ++i) {
      PoolAxis p{0, x[x.size() - spatial + i], weight[2 + i], stride[i], padding[i], dilation[i]};
      if (more[i] >= std::max(p.stride, p.dilation)) {
        throw Error("{}: output_padding is {}; expected less than the stride {} or the dilation {}", name,
                    more[i], p.stride, p.dilation);
      }
      p.in = (p.out - 1) * p.stride - 2 * p.padding + (p.kernel - 1) * p.dilation + more[i] + 1;
      if (p.in < 1) {
        throw Error("{}: padding is {}; nothing is left of y for x of shape {}", name, p.padding,
                    to_string(x));
      }
      c.axes.push_back(p);
    }
    return c;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Convolution c = convolution(x, shape_of_input(inputs, "weight"), a);
    Shape out;
    for (const PoolAxis& p : c.axes) out.push_back(p.in);
    d.set("N", Shape(x.begin(), x.end() - std::ssize(c.axes) - 1));
    d.set("M", c.C);
    d.set("O", out);
    d.set("bias", find_input(inputs, "bias") != nullptr ? 1 : 0);
    d.set("inputs", c.outputs());
    d.set("covering", c.covering());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    if (!t.wants("y")) return;
    const Convolution c = convolution(t.shape("x"), t.shape("weight"), a);
    convolve_transposed<T>(c, t["x"].data(), t["weight"].data(), t.optional("bias").data(), t["y"].data());
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const Convolution c = convolution(t.shape("x"), t.shape("weight"), a);
    const T *x = t["x"].data(), *w = t["weight"].data(), *g = t["grad_y"].data();
    if (t.wants("grad_x")) convolve<T>(c, g, w, nullptr, t["grad_x"].data());
    if (t.wants("grad_weight")) convolve_weights<T>(c, g, x, t["grad_weight"].data());
    if (const auto grad_bias = t.optional("grad_bias"))
      sum_of_channels<T>(c.N, c.C, c.in(), g, grad_bias.data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator conv_transpose = describe<ConvTranspose>();
}

}  // namespace assay
