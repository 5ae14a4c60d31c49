#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/operator.h"

/// What operators share that work element by element on inputs broadcast to y, NumPy's rule.
namespace assay {

/// An input that is broadcast: its name, and the letter of its shape "A*".
struct Operand {
  std::string_view name, letter;
};

/// Sets the shape Y* that the operands broadcast to, each one's own, and "copies_A": to how many elements of
/// y an element of A* is copied. Operands that are not given are passed over.
inline void bind_broadcast(Dims& d, InputShapes inputs, std::initializer_list<Operand> operands) {
  Shape y;
  for (const Operand& o : operands) {
    if (const InputShape* input = find_input(inputs, o.name)) y = broadcast(y, input->shape);
  }
  d.set("Y", y);
  for (const Operand& o : operands) {
    const InputShape* input = find_input(inputs, o.name);
    if (input == nullptr) continue;
    d.set(o.letter, input->shape);
    const std::int64_t size = element_count(input->shape);
    d.set("copies_" + std::string(o.letter), size == 0 ? 0 : element_count(y) / size);
  }
}

inline bool is_broadcast(const Dims& d, Operand o) {
  return d.extents(o.letter) != d.extents("Y");
}

/// An operand as y sees it: its element for element i of y.
template <class T>
class Broadcast {
 public:
  Broadcast(Tensors<T>& t, const Dims& d, Operand o) : data_(t[o.name].data()) {
    if (is_broadcast(d, o)) at_ = broadcast_positions(d.extents(o.letter), d.extents("Y"));
  }
  const T& operator()(std::int64_t i) const {
    return data_[at_.empty() ? i : at_[static_cast<std::size_t>(i)]];
  }

 private:
  const T* data_;
  std::vector<std::int64_t> at_;  ///< none: the operand has the shape of y
};

/// What is given back to an operand for one element of y.
enum class Slope : std::uint8_t {
  moved,     ///< a value as it is
  computed,  ///< and stored before several are added up: frameworks multiply first, then sum to the shape
};

/// The gradient of an operand: every element collects slope(i) from the elements i of y it was copied to.
template <Slope kind = Slope::moved, class T, class F>
void collect_gradient(Tensors<T>& t, const Dims& d, Operand o, F slope) {
  std::vector<T>& grad = t.slot("grad_" + std::string(o.name)).values;
  if (!is_broadcast(d, o)) {
    for (std::size_t p = 0; p < grad.size(); ++p)
      grad[p] = sum<T>(1, [&](auto) { return slope(static_cast<std::int64_t>(p)); });
    return;
  }
  const Copies copies(broadcast_positions(d.extents(o.letter), d.extents("Y")),
                      static_cast<std::int64_t>(grad.size()));
  for (std::size_t p = 0; p < grad.size(); ++p) {
    const auto to = copies.of(static_cast<std::int64_t>(p));
    grad[p] = sum<T>(static_cast<std::int64_t>(to.size()), [&](auto k) {
      const T term = slope(to[static_cast<std::size_t>(k)]);
      return kind == Slope::computed ? stored(term) : term;
    });
  }
}

}  // namespace assay
