#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

struct Embedding {
  static constexpr std::string_view name = "embedding";
  static constexpr std::string_view math =
      "y_n = weight[index_n]; grad_weight_v = sum of the grad_y_n with index_n = v";
  static constexpr std::string_view source = "torch.nn.functional.embedding";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.embedding", "torch.nn.Embedding",
                                                 "Embedding", "embedding_dense_backward",
                                                 "VocabParallelEmbedding"};
  static constexpr Attribute attributes[] = {
      {"padding_idx", "null", "the row whose gradient stays 0; -1 is the last"},
      {"scale_grad_by_freq", "false", "divide a row's gradient by how often it was hit"}};
  static constexpr Arg args[] = {
      {"weight", "V,C", Role::param},
      {.name = "index", .shape = "N*", .role = Role::index, .indexes = "V"},
      {"grad_y", "N*,C", Role::grad_output},
      {"y", "N*,C", Role::output},
      {"grad_weight", "V,C", Role::grad_input},
  };
  static constexpr Example examples[] = {
      {"V=7,C=5,N=6"}, {"V=4,C=3,N=2x9", "padding_idx=-2"}, {"V=3,C=2,N=11", "scale_grad_by_freq=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  // The row without gradient, or V if there is none.
  static std::int64_t padding(std::int64_t rows, const Attributes& a) {
    if (!a.has("padding_idx")) return rows;
    const std::int64_t row = a.integer("padding_idx");
    if (row < -rows || row >= rows) throw Error("embedding: padding_idx {} is no row of {}", row, rows);
    return row < 0 ? row + rows : row;
  }
  static std::vector<std::int64_t> hits(const std::vector<std::int64_t>& indices, std::int64_t rows,
                                        std::int64_t padding) {
    std::vector<std::int64_t> count(static_cast<std::size_t>(rows));
    for (const std::int64_t i : indices) {
      if (i >= 0 && i < rows && i != padding) ++count[static_cast<std::size_t>(i)];
    }
    return count;
  }

  // "hits": the most that one row gets; all indices where only their shape is known.
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const InputShape& index = *find_input(inputs, "index");
    const Shape& weight = shape_of_input(inputs, "weight");
    d.set("hits", element_count(index.shape));
    if (weight.empty()) return;
    const std::int64_t row = padding(weight[0], a);
    if (index.indices == nullptr || is_float(index.indices->dtype())) return;
    const auto count = hits(index.indices->indices(), weight[0], row);
    d.set("hits", count.empty() ? 0 : std::ranges::max(count));
  }
  static std::int64_t terms(std::string_view output, const Dims& d, const Attributes&) {
    return output == "grad_weight" ? d.at("hits") : 0;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto w = t["weight"], y = t["y"];
    const auto index = t.index("index");
    for (std::int64_t n = 0; n < d.at("N"); ++n) {
      for (std::int64_t c = 0; c < d.at("C"); ++c) y(n, c) = w(index(n), c);
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_y"], grad_w = t["grad_weight"];
    const std::int64_t V = d.at("V"), C = d.at("C"), skipped = padding(V, a);
    const std::vector<std::int64_t>& index = t.slot("index").indices;
    std::vector<std::vector<std::int64_t>> tokens(static_cast<std::size_t>(V));
    for (std::size_t n = 0; n < index.size(); ++n) {
      if (index[n] != skipped)
        tokens[static_cast<std::size_t>(index[n])].push_back(static_cast<std::int64_t>(n));
    }
    for (std::int64_t v = 0; v < V; ++v) {
      const auto& hit = tokens[static_cast<std::size_t>(v)];
      const auto count = static_cast<std::int64_t>(hit.size());
      for (std::int64_t c = 0; c < C; ++c) {
        grad_w(v, c) = sum<T>(count, [&](auto i) { return g(hit[static_cast<std::size_t>(i)], c); });
        if (a.flag("scale_grad_by_freq") && count > 0) grad_w(v, c) /= number<T>(count);
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator embedding = describe<Embedding>();
}

}  // namespace assay
