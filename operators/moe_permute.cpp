#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/moe_rows.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// N* tokens of C channels, each for K of E experts; P rows.
struct MoePermute {
  static constexpr std::string_view name = "moe_permute";
  static constexpr std::string_view math =
      "permuted_r = x[sorted_index_r / K], sorted_index: the places of index (token K + choice) by expert, "
      "then place";
  static constexpr std::string_view source = "Megatron-LM moe_utils permute; torch_npu npu_moe_token_permute";
  static constexpr std::string_view aliases[] = {"npu_moe_token_permute", "MoeTokenPermute"};
  static constexpr Attribute attributes[] = {
      {"num_experts", "null", "E"},
      {"top_k", "null", "K, the last extent of index; null: not checked"},
      {"dropped", "-1", "the index of a choice that no expert gets"},
      {"num_out_tokens", "null", "P: what is beyond is cut off, missing rows are 0; null: all N K"}};
  static constexpr Arg args[] = {
      {"x", "N*,C", Role::input},
      {.name = "index", .shape = "N*,K", .role = Role::index, .indexes = "E", .except = "dropped"},
      {"grad_permuted", "P,C", Role::grad_output},
      {.name = "permuted", .shape = "P,C", .role = Role::output, .exact = Exact::bits},
      {.name = "sorted_index", .shape = "P", .role = Role::output_index},
      {.name = "tokens_per_expert", .shape = "E", .role = Role::output_index},
      {.name = "grad_x", .shape = "N*,C", .role = Role::grad_input, .terms = "K"},
  };
  static constexpr Example examples[] = {{"N=5,C=3,K=2", "num_experts=4"},
                                         {"N=2x3,C=2,K=3", "num_experts=5,num_out_tokens=13,top_k=3"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true;
  static constexpr RecordedAs recorded_as[] = {{"index", "index", made_around}};
  static constexpr Rows rows = Rows::routed;
  static constexpr SameAxis same_axis[] = {{"P", "N"}};

  // Experts behind the last one chosen get nothing.
  static void infer(Recorded& call) {
    const Tensor* index = call.index("index");
    if (call.output == "tokens_per_expert" && !call.result.shape().empty())
      call.attributes.set("num_experts", static_cast<double>(call.result.shape().back()));
    else if (index != nullptr && index->size() > 0)
      call.attributes.set("num_experts", 1 + static_cast<double>(std::ranges::max(index->indices())));
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& index = shape_of_input(inputs, "index");
    if (!a.has("num_experts") || a.integer("num_experts") < 0) {
      throw Error("moe_permute: attribute 'num_experts' is missing or below 0");
    }
    if (a.integer("dropped") >= 0)
      throw Error("moe_permute: dropped is {}; expected below 0", a.integer("dropped"));
    if (a.has("top_k") && a.integer("top_k") != index.back()) {
      throw Error("moe_permute: top_k is {}, but index has shape {}", a.integer("top_k"), to_string(index));
    }
    d.set("E", a.integer("num_experts"));
    d.set("K", index.back());
    const std::int64_t rows = a.has("num_out_tokens") ? a.integer("num_out_tokens") : element_count(index);
    if (rows < 0 || rows > element_count(index)) {
      throw Error("moe_permute: num_out_tokens is {}; expected 0 to the {} places of index", rows,
                  element_count(index));
    }
    d.set("P", rows);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::vector<std::int64_t>& index = t.slot("index").indices;
    const auto expert = [&](std::int64_t place) { return index[static_cast<std::size_t>(place)]; };
    std::vector<std::int64_t>& rows = t.slot("sorted_index").indices;
    rows = routed_rows(index, d.at("P"), expert);
    for (const std::int64_t place : rows) {
      if (place >= 0) ++t.output_index("tokens_per_expert")(expert(place));
    }
    tokens_to_rows(t["x"].data(), rows, d.at("K"), d.at("C"), t["permuted"].data());
  }

  // grad_x: the sum of the gradients of a token's rows
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const T* const no_probs = nullptr;
    rows_to_tokens<T>(t["grad_permuted"].data(), t.slot("sorted_index").indices, no_probs, d.at("N"),
                      d.at("K"), d.at("C"), t["grad_x"].data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_permute = describe<MoePermute>();
}

}  // namespace assay
