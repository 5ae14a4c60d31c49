// The formulas of operators a second time, as array expressions of xtensor: written from the papers, without
// the operators' code, their order of summation or their tricks. Two values in float64, each within the error
// bound of float64 arithmetic, differ by no more than two of these bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <map>
#include <numbers>
#include <tuple>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xindex_view.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xsort.hpp>
#include <xtensor/xview.hpp>

#include "assay/golden/xtensor.h"
#include "assay/operators/engine/generate.h"

namespace assay::second_opinion_test {
namespace {

using Values = xt::xarray<double>;
using Named = std::map<std::string, Values>;
using Formula = std::function<Named(const Named&)>;

// [.., 1] beside [.., C]: what was reduced along the last dimension, to be broadcast along it again.
Values last(const Values& reduced) {
  return xt::expand_dims(reduced, reduced.dimension());
}
Values sum_over(const Values& x, int dim = -1) {
  return xt::sum(x, {dim});
}
Values sigmoid(const Values& x) {
  return 1. / (1. + xt::exp(-x));
}
Values normal_cdf(const Values& x) {
  return 0.5 * xt::erfc(-x / std::numbers::sqrt2);
}
Values normal_pdf(const Values& x) {
  return xt::exp(-x * x / 2.) / std::sqrt(2 * std::numbers::pi);
}
Values softmax(const Values& x) {
  const Values e = xt::exp(x - last(xt::amax(x, {-1})));
  return e / last(sum_over(e));
}
Values log_softmax(const Values& x) {
  const Values shifted = x - last(xt::amax(x, {-1}));
  return shifted - last(xt::log(sum_over(xt::exp(shifted))));
}
// c_ij = sum_k a_ik b_kj.
Values product(const Values& a, const Values& b) {
  return xt::sum(xt::view(a, xt::all(), xt::all(), xt::newaxis()) * xt::view(b, xt::newaxis()), {1});
}
Values transposed(const Values& a) {
  return xt::transpose(a);
}

struct Opinion {
  const char *op, *sizes, *attributes, *leave_out;
  Formula formula;
};

// y and grad_x of a function of each element.
Formula elementwise(const std::function<Values(const Values&)>& f,
                    const std::function<Values(const Values&)>& derivative) {
  return [=](const Named& in) {
    return Named{{"y", f(in.at("x"))}, {"grad_x", in.at("grad_y") * derivative(in.at("x"))}};
  };
}

Named layer_norm(const Named& in) {
  const Values &x = in.at("x"), &w = in.at("weight"), &g = in.at("grad_y");
  const Values centred = x - last(xt::mean(x, {-1}));
  const Values rstd = 1. / xt::sqrt(xt::mean(centred * centred, {-1}) + 1e-5);
  const Values normal = centred * last(rstd), gw = g * w;
  const Values grad =
      last(rstd) * (gw - last(xt::mean(gw, {-1})) - normal * last(xt::mean(gw * normal, {-1})));
  return {{"y", normal * w + in.at("bias")},
          {"rstd", rstd},
          {"grad_x", grad},
          {"grad_weight", sum_over(g * normal, 0)},
          {"grad_bias", sum_over(g, 0)}};
}

Named rms_norm(const Named& in) {
  const Values &x = in.at("x"), &w = in.at("weight"), &g = in.at("grad_y");
  const Values rstd = last(1. / xt::sqrt(xt::mean(x * x, {-1}) + 1e-5));
  const Values normal = x * rstd, gw = g * w;
  return {{"y", normal * w},
          {"rstd", rstd},
          {"grad_x", rstd * (gw - normal * last(xt::mean(gw * normal, {-1})))},
          {"grad_weight", sum_over(g * normal, 0)}};
}

Named group_norm(const Named& in) {  // N, C, D = 2, 6, 5 in 2 groups
  const Values grouped = xt::reshape_view(in.at("x"), {2, 2, 15});
  const Values centred = grouped - last(xt::mean(grouped, {-1}));
  const Values rstd = 1. / xt::sqrt(xt::mean(centred * centred, {-1}) + 1e-5);
  const Values normal = xt::reshape_view(centred * last(rstd), {2, 6, 5});
  const Values w = last(in.at("weight")), b = last(in.at("bias"));
  const Values gw = xt::reshape_view(in.at("grad_y") * w, {2, 2, 15}), n = centred * last(rstd);
  const Values grad = last(rstd) * (gw - last(xt::mean(gw, {-1})) - n * last(xt::mean(gw * n, {-1})));
  return {{"y", normal * w + b},
          {"rstd", rstd},
          {"grad_x", xt::reshape_view(grad, {2, 6, 5})},
          {"grad_bias", xt::sum(in.at("grad_y"), {0, 2})},
          {"grad_weight", xt::sum(in.at("grad_y") * normal, {0, 2})}};
}

Named cross_entropy(const Named& in) {  // the mean over the tokens whose target is one of 17 classes
  const Values &logits = in.at("logits"), &target = in.at("target");
  const Values hot = xt::equal(last(target), xt::arange<double>(17)) * 1.;
  return {{"loss", -xt::sum(hot * log_softmax(logits)) / xt::sum(hot)},
          {"grad_logits", (softmax(logits) * last(sum_over(hot)) - hot) / xt::sum(hot) * in.at("grad_y")}};
}

Named nll_loss(const Named& in) {
  const Values hot = xt::equal(last(in.at("target")), xt::arange<double>(17)) * 1.;
  return {{"loss", -xt::sum(hot * in.at("log_probs")) / xt::sum(hot)},
          {"grad_log_probs", -hot / xt::sum(hot) * in.at("grad_y")}};
}

// gate and up are the halves of x.
Named gated(const Named& in, const std::function<Values(const Values&)>& f,
            const std::function<Values(const Values&)>& derivative) {
  const Values gate = xt::view(in.at("x"), xt::all(), xt::range(0, 5)),
               up = xt::view(in.at("x"), xt::all(), xt::range(5, 10));
  const Values& g = in.at("grad_y");
  const Values of_gate = g * up * derivative(gate), of_up = g * f(gate);
  return {{"y", f(gate) * up}, {"grad_x", xt::concatenate(xt::xtuple(of_gate, of_up), 1)}};
}

Values silu(const Values& x) {
  return x * sigmoid(x);
}
Values silu_derivative(const Values& x) {
  return sigmoid(x) * (1. + x * (1. - sigmoid(x)));
}
Values gelu(const Values& x) {
  return x * normal_cdf(x);
}
Values gelu_derivative(const Values& x) {
  return normal_cdf(x) + x * normal_pdf(x);
}

const Opinion opinions[] = {
    {"add", "A=3x4,B=4", "alpha=3", "",
     [](const Named& in) {
       return Named{{"y", in.at("a") + 3. * in.at("b")},
                    {"grad_a", in.at("grad_y")},
                    {"grad_b", 3. * sum_over(in.at("grad_y"), 0)}};
     }},
    {"sub", "A=3x4,B=3x4", "", "",
     [](const Named& in) {
       return Named{{"y", in.at("a") - in.at("b")}, {"grad_b", -in.at("grad_y")}};
     }},
    {"mul", "A=3x4,B=4", "", "",
     [](const Named& in) {
       return Named{{"y", in.at("a") * in.at("b")},
                    {"grad_a", in.at("grad_y") * in.at("b")},
                    {"grad_b", sum_over(in.at("grad_y") * in.at("a"), 0)}};
     }},
    {"div", "A=3x4,B=3x4", "", "",
     [](const Named& in) {
       const Values &a = in.at("a"), &b = in.at("b"), &g = in.at("grad_y");
       return Named{{"y", a / b}, {"grad_a", g / b}, {"grad_b", -g * a / (b * b)}};
     }},
    {"maximum", "A=5x7,B=5x7", "", "",
     [](const Named& in) {
       return Named{{"y", xt::maximum(in.at("a"), in.at("b"))}};
     }},
    {"where", "C=3x4,A=3x4,B=3x4", "", "",
     [](const Named& in) {
       return Named{{"y", xt::where(xt::not_equal(in.at("condition"), 0.), in.at("a"), in.at("b"))}};
     }},
    {"clip", "X=4x6", "min=-1,max=0.5", "min,max",
     [](const Named& in) {
       return Named{{"y", xt::clip(in.at("x"), -1., 0.5)}};
     }},
    {"exp", "N=40", "", "",
     elementwise([](const Values& x) -> Values { return xt::exp(x); },
                 [](const Values& x) -> Values { return xt::exp(x); })},
    {"tanh", "N=40", "", "",
     elementwise([](const Values& x) -> Values { return xt::tanh(x); },
                 [](const Values& x) -> Values { return 1. / xt::square(xt::cosh(x)); })},
    {"sigmoid", "N=40", "", "",
     elementwise(sigmoid, [](const Values& x) -> Values { return sigmoid(x) * sigmoid(-x); })},
    {"silu", "N=40", "", "", elementwise(silu, silu_derivative)},
    {"gelu", "N=40", "", "", elementwise(gelu, gelu_derivative)},
    {"gelu", "N=40", "approximate=\"sigmoid\"", "",
     elementwise([](const Values& x) -> Values { return x * sigmoid(1.702 * x); },
                 [](const Values& x) -> Values {
                   return sigmoid(1.702 * x) * (1. + 1.702 * x * sigmoid(-1.702 * x));
                 })},
    {"softplus", "N=40", "", "",
     elementwise([](const Values& x) -> Values { return xt::log1p(xt::exp(x)); }, sigmoid)},
    {"relu", "N=40", "", "",
     elementwise([](const Values& x) -> Values { return xt::maximum(x, 0.); },
                 [](const Values& x) -> Values { return (x > 0.) * 1.; })},
    {"swiglu", "N=4,W=10", "", "gate,up,probs",
     [](const Named& in) { return gated(in, silu, silu_derivative); }},
    {"geglu", "N=4,W=10", "activate_left=true", "gate,up,probs",
     [](const Named& in) { return gated(in, gelu, gelu_derivative); }},
    {"softmax", "A=4,C=15,B=", "", "",
     [](const Named& in) {
       const Values y = softmax(in.at("x"));
       const Values& g = in.at("grad_y");
       return Named{{"y", y}, {"grad_x", y * (g - last(sum_over(g * y)))}};
     }},
    {"log_softmax", "A=4,C=15,B=", "", "",
     [](const Named& in) {
       const Values& g = in.at("grad_y");
       return Named{{"y", log_softmax(in.at("x"))}, {"grad_x", g - softmax(in.at("x")) * last(sum_over(g))}};
     }},
    {"logsumexp", "S=4x15", "dims=[1]", "",
     [](const Named& in) {
       const Values peak = xt::amax(in.at("x"), {1});
       return Named{{"y", peak + xt::log(sum_over(xt::exp(in.at("x") - last(peak))))},
                    {"grad_x", last(in.at("grad_y")) * softmax(in.at("x"))}};
     }},
    {"layer_norm", "N=6,C=33", "", "", layer_norm},
    {"rms_norm", "N=6,C=33", "", "", rms_norm},
    {"group_norm", "N=2,C=6,D=5", "num_groups=2", "", group_norm},
    {"l2_norm", "S=5x11", "dim=[1]", "",
     [](const Named& in) {
       const Values y = xt::sqrt(sum_over(in.at("x") * in.at("x")));
       return Named{{"y", y}, {"grad_x", last(in.at("grad_y") / y) * in.at("x")}};
     }},
    {"cross_entropy", "N=9,V=17,D=", "", "weight,target_probs", cross_entropy},
    {"nll_loss", "N=9,V=17,D=", "", "weight", nll_loss},
    {"reduce_sum", "S=5x11", "dims=[1]", "",
     [](const Named& in) {
       return Named{{"y", sum_over(in.at("x"))},
                    {"grad_x", xt::zeros_like(in.at("x")) + last(in.at("grad_y"))}};
     }},
    {"reduce_mean", "S=5x11", "dims=[0]", "",
     [](const Named& in) {
       return Named{{"y", xt::mean(in.at("x"), {0})},
                    {"grad_x", xt::zeros_like(in.at("x")) + in.at("grad_y") / 5.}};
     }},
    {"reduce_max", "S=5x11", "dim=1", "",
     [](const Named& in) {
       return Named{{"y", xt::amax(in.at("x"), {1})}};
     }},
    {"reduce_prod", "S=5x4", "dim=1", "",
     [](const Named& in) {
       return Named{{"y", xt::prod(in.at("x"), {1})}};
     }},
    {"cumsum", "A=3,C=11,B=", "", "",
     [](const Named& in) {
       const Values backwards = xt::flip(in.at("grad_y"), 1), sums = xt::cumsum(backwards, 1);
       return Named{{"y", xt::cumsum(in.at("x"), 1)}, {"grad_x", xt::flip(sums, 1)}};
     }},
    {"cumprod", "A=3,C=5,B=", "", "",
     [](const Named& in) {
       return Named{{"y", xt::cumprod(in.at("x"), 1)}};
     }},
    {"transpose", "X=3x5x4", "perm=[2,0,1]", "",
     [](const Named& in) {
       return Named{{"y", xt::transpose(in.at("x"), {2, 0, 1})}};
     }},
    {"concat", "x_0=2x3x2,x_1=2x5x2", "dim=1", "",
     [](const Named& in) {
       return Named{{"y", xt::concatenate(xt::xtuple(in.at("x_0"), in.at("x_1")), 1)},
                    {"grad_x_1", xt::view(in.at("grad_y"), xt::all(), xt::range(3, 8))}};
     }},
    {"split", "X=7x2,grad_y_0=3x2,grad_y_1=3x2,grad_y_2=1x2", "split_size=3", "",
     [](const Named& in) {
       const Values& x = in.at("x");
       const auto& [g0, g1, g2] = std::tie(in.at("grad_y_0"), in.at("grad_y_1"), in.at("grad_y_2"));
       return Named{{"y_0", xt::view(x, xt::range(0, 3))},
                    {"y_1", xt::view(x, xt::range(3, 6))},
                    {"y_2", xt::view(x, xt::range(6, 7))},
                    {"grad_x", xt::concatenate(xt::xtuple(g0, g1, g2), 0)}};
     }},
    {"slice", "X=7x5", "starts=[1],ends=[6],steps=[2]", "",
     [](const Named& in) {
       Values grad = xt::zeros_like(in.at("x"));
       xt::view(grad, xt::range(1, 6, 2)) = in.at("grad_y");
       return Named{{"y", xt::view(in.at("x"), xt::range(1, 6, 2))}, {"grad_x", grad}};
     }},
    {"pad", "X=3x5", "pad=[2,1,1,0],value=-1.5", "",
     [](const Named& in) {
       Values y = -1.5 * xt::ones<double>({4, 8});
       xt::view(y, xt::range(1, 4), xt::range(2, 7)) = in.at("x");
       return Named{{"y", y}, {"grad_x", xt::view(in.at("grad_y"), xt::range(1, 4), xt::range(2, 7))}};
     }},
    {"expand", "X=3x1", "shape=[2,3,4]", "",
     [](const Named& in) {
       return Named{{"y", xt::broadcast(in.at("x"), {2, 3, 4})},
                    {"grad_x", last(xt::sum(in.at("grad_y"), {0, 2}))}};
     }},
    {"gather", "X=4x3,I=9x3", "", "",
     [](const Named& in) {  // [I, X, columns]: whether the row of x is the one that index chooses
       const Values rows = last(xt::arange<double>(4));
       const Values hot = xt::equal(xt::view(in.at("index"), xt::all(), xt::newaxis()), rows) * 1.;
       return Named{
           {"y", xt::sum(hot * in.at("x"), {1})},
           {"grad_x", xt::sum(hot * xt::view(in.at("grad_y"), xt::all(), xt::newaxis(), xt::all()), {0})}};
     }},
    {"index_select", "A=,C=5,B=3,N=9", "", "",
     [](const Named& in) {
       const Values hot = xt::equal(last(in.at("index")), xt::arange<double>(5)) * 1.;
       return Named{{"y", product(hot, in.at("x"))}, {"grad_x", product(transposed(hot), in.at("grad_y"))}};
     }},
    {"tile", "X=2x3", "repeats=[2,3]", "",
     [](const Named& in) {
       const Values& x = in.at("x");
       const Values rows = xt::concatenate(xt::xtuple(x, x, x), 1);
       return Named{{"y", xt::concatenate(xt::xtuple(rows, rows), 0)}};
     }},
    {"matmul", "A=,M=7,K=11,B=,N=5", "", "",
     [](const Named& in) {
       const Values &a = in.at("a"), &b = in.at("b"), &g = in.at("grad_y");
       return Named{{"y", product(a, b)},
                    {"grad_a", product(g, transposed(b))},
                    {"grad_b", product(transposed(a), g)}};
     }},
    {"linear", "N=6,K=7,M=5", "", "",
     [](const Named& in) {
       const Values &x = in.at("x"), &w = in.at("w"), &g = in.at("grad_y");
       return Named{{"y", product(x, transposed(w)) + in.at("b")},
                    {"grad_x", product(g, w)},
                    {"grad_w", product(transposed(g), x)},
                    {"grad_b", sum_over(g, 0)}};
     }},
    {"embedding", "V=7,C=5,N=6", "", "",
     [](const Named& in) {
       const Values hot = xt::equal(last(in.at("index")), xt::arange<double>(7)) * 1.;
       return Named{{"y", product(hot, in.at("weight"))},
                    {"grad_weight", product(transposed(hot), in.at("grad_y"))}};
     }},
};

class SecondOpinion : public testing::TestWithParam<Opinion> {};

TEST_P(SecondOpinion, AgreesWithinTheBoundsOfFloat64) {
  const Opinion& opinion = GetParam();
  const Operator& op = find_operator(opinion.op);
  const CallShape call = parse_call({opinion.sizes, opinion.attributes, opinion.leave_out});
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float64, seed);
    const auto golden = compute_golden(op, inputs, call.attributes, Level::fp64);
    const auto bounds = compute_bound(op, inputs, call.attributes, {0x1p-53, 0x1p-1074});
    Named arrays;
    for (const NamedTensor& input : inputs) {
      const Tensor wide = Tensor::from_values(DType::float64, input.tensor.shape(), input.tensor.values());
      arrays[input.name] = as_xtensor<double>(wide);
    }
    for (const auto& [output, values] : opinion.formula(arrays)) {
      const Tensor& expected = output_named(golden, output);
      const Tensor& bound = output_named(bounds, output);
      const Tensor second(values);
      ASSERT_EQ(second.shape(), expected.shape()) << output;
      for (std::int64_t i = 0; i < second.size(); ++i) {
        ASSERT_LE(std::abs(second.value(i) - expected.value(i)), 2 * bound.value(i))
            << output << " [" << i << "]: " << second.value(i) << " against " << expected.value(i);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, SecondOpinion, testing::ValuesIn(opinions), [](const auto& tested) {
  std::string name(tested.param.op);
  std::ranges::copy_if(std::string_view(tested.param.attributes), std::back_inserter(name),
                       [](unsigned char c) { return std::isalnum(c) != 0; });
  return name;
});

}  // namespace
}  // namespace assay::second_opinion_test
