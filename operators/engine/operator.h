#pragma once

#include <array>
#include <cassert>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/tensor.h"
#include "assay/operators/engine/proof.h"
#include "assay/operators/engine/usage.h"

/// How an operator is declared: one struct, one file, one name in CMakeLists.txt. See rms_norm.cpp for the
/// pattern.
namespace assay {

/// index and output_index are int64, all others real numbers.
enum class Role : std::uint8_t { input, param, index, grad_output, output, grad_input, output_index };
std::string_view name(Role);

/// How exact an output is. `no`: it is rounded, and has terms. `value`: nothing is rounded; kernels agree but
/// for the sign of a zero (max, relu). `bits`: elements are moved or converted, bit for bit (transpose,
/// cast).
enum class Exact : std::uint8_t { no, value, bits };

/// The finite values for which a correct float32 kernel can be told from a wrong one: beyond low and high, or
/// not 0 and smaller than `least`, an intermediate result may overflow, underflow or be divided by next to
/// nothing. By default a product of two is finite.
struct Domain {
  double low = -0x1p63, high = 0x1p63;
  double least = 0;
  /// NaN and infinities are inside: what they lead to is judged by its pattern.
  bool contains(double v) const;
  /// The nearest value inside.
  double clip(double v) const;
};
/// Of an operator that only compares or moves values.
inline constexpr Domain everywhere = {-std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::infinity()};

/// An argument of an operator.
/// `shape` names the extents, comma-separated: a letter ("C"), a literal ("1"), or a letter with a star for
/// any number of extents taken as their product ("N*,C"). Equal letters are equal extents. "" is a scalar. A
/// '#' in `name` stands for 0, 1, 2, ..: a list of tensors ("grad_#"), each of its own shape.
struct Arg {
  std::string_view name;
  std::string_view shape;
  Role role;
  double low = -2, high = 2;  ///< the range that inputs are filled from, indices with no letter included
  bool optional = false;      ///< "grad_bias" is optional with "bias": there only where that is given
  std::string_view indexes =
      {};  ///< Role::index: the letter V whose extent the values stay below, 0 <= i < V
  std::string_view sums_to = {};  ///< Role::index: the letter T that the values, none negative, add up to
  std::string_view except = {};   ///< the attribute that holds one more legal index ("ignore_index")
  /// Role::index and output_index: not integers but the bits of elements of any dtype.
  bool raw = false;
  /// Role::index: a mask of keys, which may be of floats, too (visible_in).
  bool hides = false;
  /// Outputs: the accumulation count, the longest sum or product behind one element. A sum of products of
  /// letters, words that `bind` sets, and numbers: "K + bias", "N copies_A"; '#' is the member's number, also
  /// at the end of a word.
  std::string_view terms = {};
  Exact exact = Exact::no;  ///< value and bits have no terms
  Domain domain = {};       ///< of an input; indices have none
  /// Role::output_index: the output that says by how much the choice of a row was made. Where its error bound
  /// covers it, another choice is as right.
  std::string_view gap = {};
};

/// An attribute with its default, written as in case.json: "1e-5", "false", "\"mean\"", "[0.9, 0.999]";
/// "null": none.
struct Attribute {
  std::string_view name;
  std::string_view initial;
  std::string_view meaning;
};

/// Inputs for which every partial result is exact in float32 and the output needs no tolerance.
enum class ExactFill : std::uint8_t { none, small_integers, powers_of_two };

/// A call worth making: what `generate` offers, and what the tests try beside other sizes.
struct Example {
  std::string_view sizes;            ///< extents of the inputs by letter, of a list by member: "N=2x3,C=8"
  std::string_view attributes = {};  ///< what differs from the defaults: "transpose_a=true"
  std::string_view leave_out = {};   ///< optional inputs that are not given: "gate,up"
};

using AttributeValue = std::variant<std::monostate, bool, double, std::string, std::vector<double>>;

/// {"eps", 1e-5}, {"dim", -1}, {"reduction", "mean"}, {"betas", {0.9, 0.999}}
struct AttributeEntry {
  std::string name;
  AttributeValue value;
  AttributeEntry(std::string n, bool v) : name(std::move(n)), value(v) {}
  AttributeEntry(std::string n, const char* v) : name(std::move(n)), value(std::string(v)) {}
  AttributeEntry(std::string n, std::vector<double> v) : name(std::move(n)), value(std::move(v)) {}
  template <class N>
  requires std::is_arithmetic_v<N> AttributeEntry(std::string n, N v)
      : name(std::move(n)), value(static_cast<double>(v)) {}
};

/// Values of an operator's attributes; complete_attributes sets every one of them.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<AttributeEntry> entries) {
    for (const AttributeEntry& e : entries) set(e.name, e.value);
  }
  void set(std::string name, AttributeValue value) { values_[std::move(name)] = std::move(value); }
  bool has(std::string_view name) const;  ///< set to something else than null
  double real(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  std::vector<double> list(std::string_view name) const;            ///< a number is a list of one
  std::vector<std::int64_t> integers(std::string_view name) const;  ///< the same of integers
  const std::map<std::string, AttributeValue, std::less<>>& values() const { return values_; }

 private:
  const AttributeValue& at(std::string_view name) const;
  std::map<std::string, AttributeValue, std::less<>> values_;
};

/// Extents by letter. A starred letter has its product here and its extents in `extents`.
class Dims {
 public:
  std::int64_t at(std::string_view letter) const;  ///< 1 for a starred letter without extents
  bool has(std::string_view letter) const { return extents_.contains(letter); }
  const Shape& extents(std::string_view letter) const;
  void set(std::string_view letter, Shape extents) { extents_[std::string(letter)] = std::move(extents); }
  void set(std::string_view letter, std::int64_t extent) { set(letter, Shape{extent}); }

 private:
  std::map<std::string, Shape, std::less<>> extents_;
};

/// A tensor's elements by the letters of its declared shape: x(n, c) for "N*,C". Default: of a tensor that is
/// not there.
template <class T>
class View {
 public:
  static constexpr std::size_t most_letters = 6;

  View() = default;
  View(T* data, std::span<const std::int64_t> extents) : data_(data), letters_(extents.size()), there_(true) {
    assert(letters_ <= most_letters);
    for (std::size_t i = 0; i < letters_; ++i) extent_[i] = extents[i];
  }
  explicit operator bool() const { return there_; }
  template <std::integral... I>
  T& operator()(I... i) const {
    assert(there_ && sizeof...(i) == letters_);
    std::int64_t position = 0;
    [[maybe_unused]] std::size_t d = 0;
    ((position = position * extent_[d++] + static_cast<std::int64_t>(i)), ...);
    return data_[position];
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  std::size_t letters_ = 0;
  bool there_ = false;  // an empty tensor has no data either
  std::array<std::int64_t, most_letters> extent_{};
};

/// The tensors of one call, by name, in the scalar type of the level.
template <class T>
class Tensors {
 public:
  struct Slot {
    const Arg* arg = nullptr;
    Shape shape;
    std::vector<std::int64_t> extents;  ///< one per letter of arg->shape
    std::vector<T> values;
    std::vector<std::int64_t> indices;  ///< instead of values, where the role says so
  };
  View<T> operator[](std::string_view name) { return {slot(name).values.data(), slot(name).extents}; }
  View<T> optional(std::string_view name) { return has(name) ? (*this)[name] : View<T>(); }
  View<const std::int64_t> index(std::string_view name) {
    return {slot(name).indices.data(), slot(name).extents};
  }
  View<const std::int64_t> optional_index(std::string_view name) {
    return has(name) ? index(name) : View<const std::int64_t>();
  }
  View<std::int64_t> output_index(std::string_view name) {
    return {slot(name).indices.data(), slot(name).extents};
  }
  bool has(std::string_view name) const { return slots_.contains(name); }
  /// Whether the argument is there: of a list, its first member.
  bool has(const Arg& arg) const;
  std::int64_t size(std::string_view name) { return static_cast<std::int64_t>(slot(name).values.size()); }
  const Shape& shape(std::string_view name) { return slot(name).shape; }
  /// How many members the list "grad_#" has.
  std::int64_t count(std::string_view list) const;

  /// Whether this output is asked for: those that cost much and do not need each other may be left 0.
  bool wants(std::string_view name) const { return wanted_.empty() || wanted_ == name; }
  void want_only(std::string_view name) { wanted_ = name; }

  Slot& slot(std::string_view name);  ///< throws Error if there is none
  std::map<std::string, Slot, std::less<>>& slots() { return slots_; }
  const std::map<std::string, Slot, std::less<>>& slots() const { return slots_; }

 private:
  std::map<std::string, Slot, std::less<>> slots_;
  std::string wanted_;
};

/// What is known of a call's inputs before it is computed; index data is null where only shapes are known.
struct InputShape {
  std::string name;
  Shape shape;
  const Tensor* indices = nullptr;
};

using InputShapes = std::span<const InputShape>;
/// The input of that name, or nullptr.
const InputShape* find_input(InputShapes, std::string_view name);
/// Its shape. Throws Error if it is missing.
const Shape& shape_of_input(InputShapes, std::string_view name);

/// An operator's code on rows side by side: two anywhere, four with AVX2, eight with AVX-512. Null: there is
/// none.
struct LaneRuns {
  template <int N>
  using Run = void (*)(Tensors<BoundLanes<N>>&, const Dims&, const Attributes&);
  Run<2> two = nullptr;
  Run<4> four = nullptr;
  Run<8> eight = nullptr;
};

/// An operator as the rest of the project sees it: its declaration, how it is used, and its code at every
/// level.
struct Operator : Usage {
  std::string_view name, math, source;
  std::span<const std::string_view> aliases;
  std::span<const Arg> args;
  std::span<const Attribute> attributes;
  std::span<const Example> examples;
  ExactFill exact_fill;
  bool has_backward;
  /// The attribute that rounds the output, which has no derivative: gradients are those without it (null).
  std::string_view straight_through;

  /// Sets dims that letters alone cannot (extents chosen by an attribute, words of Arg::terms), before the
  /// shapes are fitted; every input that is not optional is there. May be null.
  void (*bind)(Dims&, InputShapes, const Attributes&);
  /// The declared shape of an argument where an attribute changes it; null: Arg::shape.
  std::string_view (*shape_of)(const Arg&, const Attributes&);

  void (*run_float)(Tensors<float>&, const Dims&, const Attributes&);
  void (*run_double)(Tensors<double>&, const Dims&, const Attributes&);
  void (*run_bound)(Tensors<Bound>&, const Dims&, const Attributes&);
  void (*run_truth)(Tensors<Truth>&, const Dims&, const Attributes&);
  /// With Op::sums_continue: an output may be one part of a longer sum, of which other ranks or micro-batches
  /// have the others. Null: none is.
  void (*run_unrounded)(Tensors<Unrounded>&, const Dims&, const Attributes&);
  /// With Op::is_only_sums: each Role::output is one sum of inputs or of products of two, so that the order
  /// of its additions decides all its bits.
  bool is_only_sums;
  /// With Op::lanes_along, the letter that numbers the rows of every tensor that has it, first in its shape.
  /// Results that have it depend on their rows alone, others are sums over them. No step of the code depends
  /// on a value. See lane_rows.h; null: none.
  LaneRuns run_lanes;
  std::string_view lanes_along;

  /// A faster way to certified values than compute_certified's own; null: none. Fills the outputs that it can
  /// from float32 inputs, correctly rounded, and gives the proof of each.
  void (*certify)(Tensors<float>&, const Dims&, const Attributes&, Proofs&);
};

/// Forward, then backward if the gradients of the outputs are among the tensors; one that is optional and not
/// given counts as 1 where it is the only one (a loss), as 0 beside one that must be given (attention's lse).
template <class Op, class T>
void run(Tensors<T>& t, const Dims& d, const Attributes& a) {
  Op::forward(t, d, a);
  if constexpr (requires { Op::template backward<T>(t, d, a); }) {
    for (const Arg& arg : Op::args) {
      if (arg.role == Role::grad_output && !arg.optional && !t.has(arg)) return;
    }
    Op::template backward<T>(t, d, a);
  }
}

#ifdef ASSAY_WIDE_LANES
template <class Op>
ASSAY_FOUR_LANES void run_four(Tensors<BoundLanes<4>>& t, const Dims& d, const Attributes& a) {
  run<Op>(t, d, a);
}
template <class Op>
ASSAY_EIGHT_LANES void run_eight(Tensors<BoundLanes<8>>& t, const Dims& d, const Attributes& a) {
  run<Op>(t, d, a);
}
#endif

/// How many letters the longest shape has.
constexpr std::size_t most_letters(std::span<const Arg> args) {
  std::size_t most = 0;
  for (const Arg& arg : args) {
    std::size_t letters = arg.shape.empty() ? 0 : 1;
    for (const char c : arg.shape) letters += c == ',' ? 1 : 0;
    most = letters > most ? letters : most;
  }
  return most;
}

/// The declaration of struct Op as data. What a struct leaves out has an empty default.
template <class Op>
constexpr Operator describe() {
  static_assert(most_letters(Op::args) <= View<double>::most_letters, "a View holds no more extents");
  Operator o{};
  static_cast<Usage&>(o) = usage_of<Op>();
  o.name = Op::name;
  o.math = Op::math;
  o.source = Op::source;
  o.args = Op::args;
  if constexpr (requires { Op::aliases; }) o.aliases = Op::aliases;
  if constexpr (requires { Op::attributes; }) o.attributes = Op::attributes;
  if constexpr (requires { Op::examples; }) o.examples = Op::examples;
  if constexpr (requires { Op::exact_fill; }) o.exact_fill = Op::exact_fill;
  if constexpr (requires { Op::straight_through; }) o.straight_through = Op::straight_through;
  if constexpr (requires { &Op::bind; }) o.bind = &Op::bind;
  if constexpr (requires { &Op::shape_of; }) o.shape_of = &Op::shape_of;
  o.has_backward = requires(Tensors<double> & t, const Dims& d, const Attributes& a) {
    Op::template backward<double>(t, d, a);
  };
  o.run_float = &run<Op, float>;
  o.run_double = &run<Op, double>;
  o.run_bound = &run<Op, Bound>;
  o.run_truth = &run<Op, Truth>;
  if constexpr (requires { Op::is_only_sums; }) o.is_only_sums = Op::is_only_sums;
  if constexpr (requires { Op::sums_continue; }) o.run_unrounded = &run<Op, Unrounded>;
  if constexpr (requires { Op::lanes_along; }) {
    o.run_lanes.two = &run<Op, BoundLanes<2>>;
#ifdef ASSAY_WIDE_LANES
    o.run_lanes.four = &run_four<Op>;
    o.run_lanes.eight = &run_eight<Op>;
#endif
    o.lanes_along = Op::lanes_along;
  }
  if constexpr (requires { &Op::certify; }) o.certify = &Op::certify;
  return o;
}

/// All operators, in the order of OPERATORS.md.
std::span<const Operator* const> operators();
/// By name or alias ("torch.nn.functional.rms_norm", "npu_rms_norm"). Throws Error that suggests the nearest
/// names.
const Operator& find_operator(std::string_view name);
/// The same, or nullptr: a recorded op may be one we do not have.
const Operator* known_operator(std::string_view name);

}  // namespace assay
