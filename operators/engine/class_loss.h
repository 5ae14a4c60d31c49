#pragma once

#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/recorded.h"

/// What the losses over classes share (torch.nn.functional.cross_entropy, nll_loss): V classes stand behind
/// the batch N* (none for one token alone) and before D* (pixels, say).
namespace assay {

struct ClassLoss {
  static constexpr Attribute ignore_index = {"ignore_index", "-100",
                                             "targets of this value count for nothing"};
  static constexpr Attribute reduction = {"reduction", "\"mean\"",
                                          "mean (over the weight of the targets), sum or none"};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "N*,D*" : arg.shape;
  }

  /// Megatron-LM and most models have the classes last.
  static void infer(Recorded& call) {
    const auto logits = std::ranges::find_if(
        call.inputs, [](const NamedTensor& t) { return t.name == "logits" || t.name == "log_probs"; });
    const auto target = std::ranges::find(call.inputs, "target", &NamedTensor::name);
    if (logits == call.inputs.end() || target == call.inputs.end()) return;
    const Shape& shape = logits->tensor.shape();
    if (shape.size() < 3 || target->tensor.shape() != Shape(shape.begin(), shape.end() - 1)) return;
    const std::int64_t tokens = target->tensor.size();
    logits->tensor = logits->tensor.reshaped({tokens, shape.back()});
    target->tensor = target->tensor.reshaped({tokens});
    for (NamedTensor& t : call.inputs) {
      if (t.name == "grad_y" && t.tensor.size() == tokens) t.tensor = t.tensor.reshaped({tokens});
    }
  }

  /// Sets N, V, D, and "summed": the tokens behind one loss, 1 for reduction none.
  /// @param x  the input that has the classes
  static void bind_classes(std::string_view op, std::string_view x, Dims& d, InputShapes inputs,
                           const Attributes& a) {
    const Shape& shape = shape_of_input(inputs, x);
    const auto v = shape.begin() + (shape.size() > 1 ? 1 : 0);
    d.set("N", Shape(shape.begin(), v));
    d.set("V", *v);
    d.set("D", Shape(v + 1, shape.end()));
    const std::string& how = a.text("reduction");
    if (how != "mean" && how != "sum" && how != "none") {
      throw Error("{}: reduction is \"{}\"; expected mean, sum or none", op, how);
    }
    d.set("summed", how == "none" ? 1 : d.at("N") * d.at("D"));
  }

  /// Class indices and the weight of the classes.
  template <class T>
  struct Targets {
    Targets(Tensors<T>& t, const Attributes& a)
        : index(t.optional_index("target")),
          weight(t.optional("weight")),
          ignores(a.has("ignore_index")),
          ignored(ignores ? a.integer("ignore_index") : 0) {}
    bool counts(std::int64_t v) const { return !ignores || v != ignored; }
    T weighted(const T& x, std::int64_t v) const { return weight ? x * weight(v) : x; }
    View<const std::int64_t> index;
    View<T> weight;
    bool ignores;
    std::int64_t ignored;
  };

  /// What the sum of all losses is divided by for reduction mean: the weight of the targets that count.
  template <class T>
  static T total_weight(const Targets<T>& targets, const Dims& d) {
    const std::int64_t tokens = d.at("N") * d.at("D");
    const std::int64_t* index = targets.index.data();
    if (targets.weight) {
      return sum<T>(tokens,
                    [&](auto i) { return targets.counts(index[i]) ? targets.weight(index[i]) : T(0); });
    }
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < tokens; ++i) count += targets.counts(index[i]) ? 1 : 0;
    return number<T>(count);
  }

  /// loss, of the losses of all tokens.
  template <class T>
  static void reduce(Tensors<T>& t, const Attributes& a, std::vector<T> losses, const T& divisor) {
    std::vector<T>& loss = t.slot("loss").values;
    if (a.text("reduction") == "none") {
      loss = std::move(losses);
      return;
    }
    const auto n = static_cast<std::int64_t>(losses.size());
    loss[0] = sum<T>(n, [&](auto i) { return losses[static_cast<std::size_t>(i)]; });
    if (a.text("reduction") == "mean") loss[0] /= divisor;
  }

  /// The gradient of token i's loss; 1 where grad_y is not given.
  template <class T>
  static T upstream(Tensors<T>& t, const Attributes& a, std::int64_t i, const T& divisor) {
    const auto g = t.optional("grad_y");
    const T one = g ? g.data()[a.text("reduction") == "none" ? i : 0] : T(1);
    return a.text("reduction") == "mean" ? one / divisor : one;
  }
};

}  // namespace assay
