#include "assay/golden/error.h"
#include "assay/operators/engine/convolution.h"

namespace assay {
namespace {

// I: the channels of one group of x; K*: the extents of a window; O*: the windows.
struct Conv {
  static constexpr std::string_view name = "conv";
  static constexpr std::string_view math =
      "y_m = sum over channels c and window elements k of w_mck x_c,k + b_m";
  static constexpr std::string_view source = "torch.nn.functional.conv2d; arXiv:1603.07285";
  static constexpr std::string_view aliases[] = {"Conv1d",
                                                 "Conv2d",
                                                 "Conv3d",
                                                 "torch.nn.functional.conv1d",
                                                 "torch.nn.functional.conv2d",
                                                 "torch.nn.functional.conv3d",
                                                 "conv1d",
                                                 "conv2d",
                                                 "conv3d",
                                                 "npu_conv2d",
                                                 "Conv"};
  static constexpr Attribute attributes[] = {
      convolution_stride,
      {"padding", "null", "zeros at both ends; \"same\": as many windows as elements; \"valid\", null: none"},
      convolution_dilation,
      convolution_groups};
  static constexpr Arg args[] = {
      {"x", "N*,C,S*", Role::input},
      {"weight", "M,I,K*", Role::param},
      {.name = "bias", .shape = "M", .role = Role::param, .optional = true},
      {"grad_y", "N*,M,O*", Role::grad_output},
      {.name = "y", .shape = "N*,M,O*", .role = Role::output, .terms = "I K + bias"},
      {.name = "grad_x", .shape = "N*,C,S*", .role = Role::grad_input, .terms = "outputs covering"},
      {.name = "grad_weight", .shape = "M,I,K*", .role = Role::grad_input, .terms = "N O"},
      {.name = "grad_bias", .shape = "M", .role = Role::grad_input, .optional = true, .terms = "N O"},
  };
  static constexpr Example examples[] = {
      {"N=2,C=3,S=9,M=4,I=3,K=3", "padding=1"},
      {"N=1,C=4,S=7x6,M=6,I=2,K=3x2", "groups=2,stride=[2,1],padding=[1,0]", "bias"},
      {"N=,C=3,S=8x9,M=3,I=1,K=3x3", "groups=3,dilation=[2,1],padding=\"same\""},
      {"N=1,C=2,S=4x5x3,M=3,I=2,K=2x3x1", "stride=[1,3,2],dilation=[2,1,1]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static constexpr Solved solved[] = {{.attribute = "padding",
                                       .by = Solved::By::candidates,
                                       .how = "strides, paddings and dilations that make as many windows"}};

  static void infer(Recorded& call) {
    const Tensor *x = call.input("x"), *weight = call.input("weight");
    if (x == nullptr || weight == nullptr) return;
    const std::size_t spatial = spatial_dimensions(name, x->shape(), weight->shape());
    const std::int64_t C = x->shape()[x->shape().size() - spatial - 1], I = weight->shape()[1];
    if (I > 0 && C % I == 0 && C != I) call.attributes.set("groups", static_cast<double>(C / I));
  }
  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    const Tensor *x = call.input("x"), *weight = call.input("weight"), *grad_y = call.input("grad_y");
    if (x == nullptr || weight == nullptr || (grad_y == nullptr && call.output != "y")) return {};
    return possible_windows(x->shape(), weight->shape(),
                            grad_y != nullptr ? grad_y->shape() : call.result.shape());
  }

  static Convolution convolution(const Shape& x, const Shape& weight, const Attributes& a) {
    const std::size_t spatial = spatial_dimensions(name, x, weight);
    const std::int64_t C = x[x.size() - spatial - 1], M = weight[0];
    const std::int64_t N = x.size() == spatial + 2 ? x[0] : 1, groups = groups_of(name, a, "outputs", M);
    if (weight[1] * groups != C) {
      throw Error("{}: x has shape {} and weight {}; expected {} groups of {} channels, has {} channels",
                  name, to_string(x), to_string(weight), groups, weight[1], C);
    }
    Convolution c{N, C, M, groups, {}};
    const auto stride = per_axis(name, a, "stride", spatial, 1),
               dilation = per_axis(name, a, "dilation", spatial, 1);
    const auto* text = std::get_if<std::string>(&a.values().find("padding")->second);
    if (text != nullptr && *text != "same" && *text != "valid")
      throw Error("{}: padding is \"{}\"; expected same, valid or numbers", name, *text);
    for (std::size_t i = 0; i < spatial; ++i) {
      PoolAxis p{x[x.size() - spatial + i], 0, weight[2 + i], stride[i], 0, dilation[i]};
      const std::int64_t beyond = (p.kernel - 1) * p.dilation;
      std::int64_t both = 0;
      if (text == nullptr && a.has("padding")) {
        p.padding = per_axis(name, a, "padding", spatial, 0)[i];
        both = 2 * p.padding;
      } else if (text != nullptr && *text == "same") {
        if (p.stride != 1) throw Error("{}: padding is \"same\" and stride {}; expected 1", name, p.stride);
        p.padding = beyond / 2;  // where it is odd, the one more is behind
        both = beyond;
      }
      if (p.in + both <= beyond) {
        throw Error("{}: no window of extent {} fits into the {} elements of x with padding {}", name,
                    beyond + 1, p.in, both);
      }
      p.out = (p.in + both - beyond - 1) / p.stride + 1;
      c.axes.push_back(p);
    }
    return c;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Convolution c = convolution(x, shape_of_input(inputs, "weight"), a);
    Shape out;
    for (const PoolAxis& p : c.axes) out.push_back(p.out);
    d.set("N", Shape(x.begin(), x.end() - std::ssize(c.axes) - 1));
    d.set("O", out);
    d.set("bias", find_input(inputs, "bias") != nullptr ? 1 : 0);
    d.set("outputs", c.outputs());
    d.set("covering", c.covering());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    if (!t.wants("y")) return;
    const Convolution c = convolution(t.shape("x"), t.shape("weight"), a);
    convolve<T>(c, t["x"].data(), t["weight"].data(), t.optional("bias").data(), t["y"].data());
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const Convolution c = convolution(t.shape("x"), t.shape("weight"), a);
    const T *x = t["x"].data(), *w = t["weight"].data(), *g = t["grad_y"].data();
    if (t.wants("grad_x")) convolve_transposed<T>(c, g, w, nullptr, t["grad_x"].data());
    if (t.wants("grad_weight")) convolve_weights<T>(c, x, g, t["grad_weight"].data());
    if (const auto grad_bias = t.optional("grad_bias"))
      sum_of_channels<T>(c.N, c.M, c.out(), g, grad_bias.data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator conv = describe<Conv>();
}

}  // namespace assay
