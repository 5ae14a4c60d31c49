#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "assay/golden/error.h"
#include "assay/operators/engine/contract.h"

namespace assay {
namespace {

struct Einsum {
  static constexpr std::string_view name = "einsum";
  static constexpr std::string_view math =
      "y = product of x_0, x_1, .., summed over the letters that y has not";
  static constexpr std::string_view source = "torch.einsum";
  static constexpr std::string_view aliases[] = {"torch.einsum", "Einsum"};
  static constexpr Attribute attributes[] = {
      {"equation", "null",
       "\"bij,bjk->bik\": a letter per dimension, ... for any; without -> y has those that occur once"}};
  // A product of four is finite.
  static constexpr Domain domain = {.low = -0x1p31, .high = 0x1p31};
  static constexpr Arg args[] = {
      {.name = "x_#", .shape = "X*", .role = Role::input, .domain = domain},
      {.name = "grad_y", .shape = "Y*", .role = Role::grad_output, .domain = domain},
      {.name = "y", .shape = "Y*", .role = Role::output, .terms = "terms"},
      {.name = "grad_x_#", .shape = "X*", .role = Role::grad_input, .terms = "terms_#"},
  };
  static constexpr Example examples[] = {{"x_0=2x3x5,x_1=2x5x4", "equation=\"bij,bjk->bik\""},
                                         {"x_0=3x3x2,x_1=2", "equation=\"iij,j->i\""},
                                         {"x_0=2x1x4x3,x_1=5x3x2", "equation=\"...ab,...bc\""},
                                         {"x_0=3,x_1=3x4,x_2=4", "equation=\"i,ij,j->\""},
                                         {"x_0=2x3x4", "equation=\"a...c->...\""}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  struct Equation {
    Shape extents;  // of every index: letters, and dimensions behind an ellipsis
    std::vector<Indexing> inputs;
    Indexing output;
    Shape y;
  };

  // The labels of one operand: its letters, and for "..." 0, 1, 2, .. counted from the right.
  static std::vector<char> labels_of(std::string_view text, std::size_t ellipsis_rank) {
    std::vector<char> labels;
    bool seen = false;
    while (!text.empty()) {
      if (text.starts_with("...") && !seen) {
        for (std::size_t i = ellipsis_rank; i-- > 0;) labels.push_back(static_cast<char>(i));
        seen = true;
        text.remove_prefix(3);
        continue;
      }
      if (std::isalpha(static_cast<unsigned char>(text.front())) == 0) {
        throw Error("einsum: '{}' in the equation; expected letters and one ... per operand", text.front());
      }
      labels.push_back(text.front());
      text.remove_prefix(1);
    }
    return labels;
  }
  static std::size_t letters_of(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return c != '.'; }));
  }

  static std::vector<std::string> operands_of(std::string_view text) {
    std::vector<std::string> operands(1);
    for (const char c : text) {
      if (c == ',')
        operands.emplace_back();
      else
        operands.back() += c;
    }
    return operands;
  }

  // As torch has it: the dimensions of the ellipsis, then the letters that occur once, in ASCII order.
  static std::vector<char> implicit_output(const std::map<char, std::int64_t>& extents,
                                           const std::vector<std::vector<char>>& operands) {
    std::vector<char> ellipsis, letters;
    for (const auto& entry : extents) {
      const char label = entry.first;
      std::ptrdiff_t occurrences = 0;
      for (const auto& labels : operands) occurrences += std::ranges::count(labels, label);
      if (std::isalpha(static_cast<unsigned char>(label)) == 0)
        ellipsis.insert(ellipsis.begin(), label);
      else if (occurrences == 1)
        letters.push_back(label);
    }
    ellipsis.insert(ellipsis.end(), letters.begin(), letters.end());
    return ellipsis;
  }

  // Strides by index, of a tensor of this shape whose dimensions have these labels. A letter that is there
  // twice walks the diagonal.
  static Indexing indexing_of(const std::map<char, std::int64_t>& extents, const std::vector<char>& labels,
                              const Shape& shape) {
    const Shape stride = strides_of(shape);
    Indexing at{Shape(extents.size(), 0), std::vector<bool>(extents.size(), false)};
    std::size_t i = 0;
    for (const auto& entry : extents) {
      for (std::size_t d = 0; d < labels.size(); ++d) {
        if (labels[d] != entry.first || shape[d] != entry.second) continue;
        at.stride[i] += stride[d];
        at.has[i] = true;
      }
      ++i;
    }
    return at;
  }

  static Equation parse(const std::vector<Shape>& shapes, const Attributes& a) {
    std::string text;
    for (const char c : a.text("equation")) {
      if (c != ' ') text += c;
    }
    const auto arrow = text.find("->");
    const std::vector<std::string> operands = operands_of(std::string_view(text).substr(0, arrow));
    if (operands.size() != shapes.size()) {
      throw Error("einsum: \"{}\" is of {} operands; {} are given", text, operands.size(), shapes.size());
    }
    std::map<char, std::int64_t> extents;
    std::vector<std::vector<char>> labels;
    std::size_t ellipsis_rank = 0;
    for (std::size_t o = 0; o < operands.size(); ++o) {
      const std::size_t letters = letters_of(operands[o]), rank = shapes[o].size();
      const bool open = letters != operands[o].size();
      // Labels 0 to 63 are left of the letters.
      if (open ? rank < letters || rank - letters > 64 : rank != letters) {
        throw Error("einsum: x_{} has shape {}; \"{}\" names {} dimensions", o, to_string(shapes[o]),
                    operands[o], letters);
      }
      labels.push_back(labels_of(operands[o], rank - letters));
      ellipsis_rank = std::max(ellipsis_rank, rank - letters);
      std::map<char, std::int64_t> own;
      for (std::size_t d = 0; d < rank; ++d) {
        const char label = labels[o][d];
        const std::int64_t extent = shapes[o][d];
        if (own.try_emplace(label, extent).first->second != extent) {
          throw Error("einsum: x_{} has shape {}; the two dimensions {} differ", o, to_string(shapes[o]),
                      label);
        }
        std::int64_t& all = extents.try_emplace(label, extent).first->second;
        if (all == 1) all = extent;
        if (extent != 1 && extent != all) {
          throw Error("einsum: x_{} has shape {}; its dimension {} is {} elsewhere", o, to_string(shapes[o]),
                      d, all);
        }
      }
    }
    const std::vector<char> result = arrow == std::string::npos
                                         ? implicit_output(extents, labels)
                                         : labels_of(std::string_view(text).substr(arrow + 2), ellipsis_rank);
    Equation e;
    for (const char label : result) {
      if (!extents.contains(label) || std::ranges::count(result, label) > 1)
        throw Error("einsum: y has the letter {}; expected letters of the operands, each once", label);
      e.y.push_back(extents.at(label));
    }
    for (const auto& entry : extents) e.extents.push_back(entry.second);
    e.output = indexing_of(extents, result, e.y);
    for (std::size_t o = 0; o < labels.size(); ++o)
      e.inputs.push_back(indexing_of(extents, labels[o], shapes[o]));
    return e;
  }

  // How many products one element sums that has these indices.
  static std::int64_t terms_of(const Equation& e, const Indexing& at) {
    Shape summed;
    for (std::size_t i = 0; i < e.extents.size(); ++i) {
      if (!at.has[i]) summed.push_back(e.extents[i]);
    }
    return element_count(summed);
  }

  static std::string member(std::string_view list, std::size_t o) {
    return std::string(list) + std::to_string(o);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    std::vector<Shape> shapes;
    while (const InputShape* x = find_input(inputs, member("x_", shapes.size()))) shapes.push_back(x->shape);
    const Equation e = parse(shapes, a);
    d.set("Y", e.y);
    d.set("terms", terms_of(e, e.output));
    for (std::size_t o = 0; o < shapes.size(); ++o) d.set(member("terms_", o), terms_of(e, e.inputs[o]));
  }

  template <class T>
  static Equation equation_of(Tensors<T>& t, const Attributes& a) {
    std::vector<Shape> shapes;
    while (t.has(member("x_", shapes.size()))) shapes.push_back(t.shape(member("x_", shapes.size())));
    return parse(shapes, a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const Equation e = equation_of(t, a);
    std::vector<Factor<T>> factors;
    for (std::size_t o = 0; o < e.inputs.size(); ++o)
      factors.push_back({t.slot(member("x_", o)).values.data(), e.inputs[o]});
    contract<T>(e.extents, factors, e.output, t.slot("y").values.data());
  }

  // The gradient of a factor is the contraction of grad_y with the other ones.
  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const Equation e = equation_of(t, a);
    for (std::size_t o = 0; o < e.inputs.size(); ++o) {
      std::vector<Factor<T>> factors = {{t.slot("grad_y").values.data(), e.output}};
      for (std::size_t other = 0; other < e.inputs.size(); ++other) {
        if (other != o) factors.push_back({t.slot(member("x_", other)).values.data(), e.inputs[other]});
      }
      const auto& x = t.slot(member("x_", o));
      auto& grad = t.slots()[member("grad_x_", o)];
      grad.shape = x.shape;
      grad.values.assign(x.values.size(), T(0));
      contract<T>(e.extents, factors, e.inputs[o], grad.values.data());
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator einsum = describe<Einsum>();
}

}  // namespace assay
