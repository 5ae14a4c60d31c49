#include "assay/golden/error.h"
#include "assay/operators/engine/margin.h"
#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct TripletMarginLoss : RowLoss {
  static constexpr std::string_view name = "triplet_margin_loss";
  static constexpr std::string_view math =
      "loss = mean max(|a - p| - |a - n| + margin, 0), |x| = (sum |x + eps|^p)^(1/p)";
  static constexpr std::string_view source =
      "torch.nn.functional.triplet_margin_loss; swap: Balntas et al. 2016";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.triplet_margin_loss"};
  static constexpr Attribute attributes[] = {{"margin", "1", "by how much negatives are farther away"},
                                             {"p", "2", "of the norm: 1 or 2"},
                                             {"eps", "1e-6", "added to each difference"},
                                             {"swap", "false", "the nearer of |a - n| and |p - n| counts"},
                                             reduction};
  // Squares must not overflow.
  static constexpr Domain squares = {.low = -0x1p61, .high = 0x1p61};
  static constexpr Arg args[] = {
      {.name = "anchor", .shape = "N*,C", .role = Role::input, .domain = squares},
      {.name = "positive", .shape = "N*,C", .role = Role::input, .domain = squares},
      {.name = "negative", .shape = "N*,C", .role = Role::input, .domain = squares},
      {.name = "grad_y", .shape = "", .role = Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "C summed"},
      {.name = "grad_anchor", .shape = "N*,C", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_positive", .shape = "N*,C", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_negative", .shape = "N*,C", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {{"N=6,C=9"},
                                         {"N=5,C=4", "reduction=\"sum\",margin=3,swap=true"},
                                         {"N=4,C=3", "reduction=\"none\",p=1,margin=5"},
                                         {"N=,C=5", "margin=9"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "N*" : arg.shape;
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "anchor");
    bind_reduction(name, d, a, element_count(Shape(x.begin(), x.end() - 1)));
    if (a.real("p") != 1 && a.real("p") != 2)
      throw Error("triplet_margin_loss: p is {}; expected 1 or 2", a.real("p"));
  }

  // |a - b| of one row, and what its gradient is of a; that of b is the opposite.
  template <class T>
  struct Distance {
    const T *a, *b;
    std::int64_t C;
    T eps;
    bool is_euclidean;

    T difference(std::int64_t c) const { return a[c] - b[c] + eps; }
    T operator()() const {
      if (!is_euclidean) return sum<T>(C, [&](auto c) { return abs(difference(c)); });
      return sqrt(sum<T>(C, [&](auto c) {
        const T x = difference(c);
        return x * x;
      }));
    }
    T slope(std::int64_t c, const T& distance) const {
      const T x = difference(c);
      if (!is_euclidean) return sign(x);
      return distance == T(0) ? T(0) : x / stored(distance);
    }
  };

  template <class T>
  struct Row {
    Row(Tensors<T>& t, const Dims& d, const Attributes& attr, std::int64_t n) {
      const std::int64_t C = d.at("C");
      const T *a = t["anchor"].data() + n * C, *p = t["positive"].data() + n * C,
              *q = t["negative"].data() + n * C;
      const T eps = constant<T>(attr.real("eps"));
      const bool is_euclidean = attr.real("p") == 2;
      near = {a, p, C, eps, is_euclidean};
      far = {a, q, C, eps, is_euclidean};
      swapped = {p, q, C, eps, is_euclidean};
      to_positive = near();
      to_negative = far();
      if (attr.flag("swap")) {
        between = swapped();
        // 1: the negative is nearer to the positive; half each where it is as near, as torch.min has it
        share = stepped<T>(to_negative - between, [](double v) { return v > 0 ? 1. : v == 0 ? .5 : 0.; });
      }
      excess = to_positive - (attr.flag("swap") ? minimum<T>(to_negative, between) : to_negative) +
               constant<T>(attr.real("margin"));
    }
    Distance<T> near, far, swapped;
    T to_positive, to_negative, between = T(0), share = T(0), excess;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    forward_of<T>(t, a, d.at("N"),
                  [&](std::int64_t n) { return maximum<T>(Row<T>(t, d, a, n).excess, T(0)); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto of_a = t["grad_anchor"], of_p = t["grad_positive"], of_n = t["grad_negative"];
    const bool swap = attr.flag("swap");
    backward_of<T>(t, attr, d.at("N"), [&](std::int64_t n, const T& g) {
      const Row<T> row(t, d, attr, n);
      const T counted = gated<T>(row.excess, g);
      for (std::int64_t c = 0; c < d.at("C"); ++c) {
        const T near = counted * row.near.slope(c, row.to_positive),
                far = counted * row.far.slope(c, row.to_negative);
        if (!swap) {
          of_a(n, c) = near - far;
          of_p(n, c) = -near;
          of_n(n, c) = far;
          continue;
        }
        const T direct = (T(1) - row.share) * far,
                crossed = row.share * (counted * row.swapped.slope(c, row.between));
        of_a(n, c) = near - direct;
        of_p(n, c) = -near - crossed;
        of_n(n, c) = direct + crossed;
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator triplet_margin_loss = describe<TripletMarginLoss>();
}

}  // namespace assay
