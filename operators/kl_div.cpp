#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

// input holds logarithms of probabilities, as torch has it; target too with log_target.
struct KlDiv : PairLoss {
  static constexpr std::string_view name = "kl_div";
  static constexpr std::string_view math =
      "loss = mean target (log(target) - input); log_target: exp(target) (target - input)";
  static constexpr std::string_view source = "torch.nn.functional.kl_div; Kullback and Leibler 1951 eq. 2.4";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.kl_div"};
  static constexpr Attribute attributes[] = {
      {"reduction", "\"mean\"", "mean, batchmean (the sum over the first extent), sum or none"},
      {"log_target", "false", "target holds logarithms, too"}};
  static constexpr auto args =
      args_with({.name = "input", .shape = "S*", .role = Role::input, .low = -8, .high = 0},
                {.name = "target", .shape = "S*", .role = Role::input, .low = 0.01, .high = 1});
  static constexpr Example examples[] = {{"S=24"},
                                         {"S=3x5", "reduction=\"batchmean\""},
                                         {"S=6", "reduction=\"sum\",log_target=true"},
                                         {"S=2x3x4", "reduction=\"none\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& input = shape_of_input(inputs, "input");
    d.set("batch", input.empty() ? 1 : input[0]);
    if (a.text("reduction") == "batchmean")
      d.set("summed", element_count(input));
    else
      bind_pairs(name, d, inputs, a);
  }

  // The mean over the batch is a sum that is divided.
  template <class T>
  struct Reduced {
    Reduced(const Dims& d, const Attributes& a) : attributes(a) {
      if (a.text("reduction") != "batchmean") return;
      attributes.set("reduction", std::string("sum"));
      over = number<T>(d.at("batch"));
      is_divided = true;
    }
    Attributes attributes;
    T over = T(1);
    bool is_divided = false;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Reduced<T> reduced(d, a);
    const bool log_target = a.flag("log_target");
    map_losses(t, d, reduced.attributes, [&](const T& x, const T& y) {
      if (log_target) return exp(y) * (y - x);
      if (y == T(0)) return y * x;  // the limit of y log y is 0
      // torch computes y log y - y x.
      return without_cancellation<T>([&] { return y * (log(y) - x); },
                                     [&] { return stored(y * log(y)) - stored(y * x); });
    });
    if (reduced.is_divided) t["loss"].data()[0] /= reduced.over;
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Reduced<T> reduced(d, a);
    const bool log_target = a.flag("log_target");
    const auto share = [&](const T& g) { return reduced.is_divided ? g / reduced.over : g; };
    map_gradients<T>(
        t, d, reduced.attributes,
        [&](const T&, const T& y, const T& g) { return -(share(g) * (log_target ? exp(y) : y)); },
        [&](const T& x, const T& y, const T& g) {
          if (!log_target) return share(g) * (log(y) - x + T(1));
          return share(g) * (exp(y) * (y - x + T(1)));
        });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator kl_div = describe<KlDiv>();
}

}  // namespace assay
