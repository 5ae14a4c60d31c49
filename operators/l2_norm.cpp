#include "assay/operators/reduce.h"

namespace assay {
namespace {

struct L2Norm {
  static constexpr std::string_view name = "l2_norm";
  static constexpr std::string_view math = "y = sqrt(sum of x^2 over dim)";
  static constexpr std::string_view source = "torch.linalg.vector_norm";
  static constexpr std::string_view aliases[] = {"torch.linalg.vector_norm"};
  static constexpr Attribute attributes[] = {{"dim", "null", "the dimensions of the norm; null or []: all"},
                                             {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Arg args[] = {
      // Squares neither overflow nor underflow.
      {.name = "x", .shape = "S*", .role = Role::input, .domain = {-0x1p63, 0x1p63, 0x1p-63}},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "reduced"},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x11", "dim=1"}, {"S=2x3x4x2", "dim=[-1,1],keepdim=true"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dim");
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      y(r) = sqrt(sum<T>(groups.size(), [&](auto i) { return x(groups(r, i)) * x(groups(r, i)); }));
    }
  }

  // g x / y; 0 where y is, as in torch.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"], g = t["grad_y"], grad_x = t["grad_x"];
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      for (std::int64_t i = 0; i < groups.size(); ++i) {
        const std::int64_t p = groups(r, i);
        grad_x(p) = y(r) == T(0) ? T(0) : g(r) * (x(p) / y(r));
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator l2_norm = describe<L2Norm>();
}

}  // namespace assay
