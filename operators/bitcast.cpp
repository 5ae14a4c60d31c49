#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// Bits as they are stored: through float64, as values travel, a signalling NaN and a large int64 would
// change.
struct BitCast {
  static constexpr std::string_view name = "bitcast";
  static constexpr std::string_view math = "y = the bits of x, read as another dtype of equal width";
  static constexpr std::string_view source = "torch.Tensor.view(dtype)";
  static constexpr std::string_view aliases[] = {"BitCast", "Bitcast"};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*", .role = Role::index, .raw = true},
      {.name = "y", .shape = "N*", .role = Role::output_index, .raw = true},
  };
  static constexpr Example examples[] = {{"N=3x4"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes&) {
    t.slot("y").indices = t.slot("x").indices;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator bitcast = describe<BitCast>();
}

}  // namespace assay
