#include <algorithm>

#include "assay/operators/engine/embedded_rows.h"

namespace assay {
namespace {

struct Embedding {
  static constexpr std::string_view name = "embedding";
  static constexpr std::string_view math =
      "y_n = weight[index_n + offset]; grad_weight_v = sum of the grad_y_n with index_n + offset = v";
  static constexpr std::string_view source =
      "torch.nn.functional.embedding; offset: Hugging Face transformers modeling_opt.py";
  static constexpr std::string_view aliases[] = {
      "torch.nn.functional.embedding", "torch.nn.Embedding",     "Embedding",
      "embedding_dense_backward",      "VocabParallelEmbedding", "OPTLearnedPositionalEmbedding"};
  static constexpr Attribute attributes[] = {
      padding_attribute,
      {"scale_grad_by_freq", "false", "divide a row's gradient by how often it was hit"},
      {"offset", "0", "rows before that of index 0"}};
  static constexpr Arg args[] = {
      {"weight", "V,C", Role::param},
      {.name = "index", .shape = "N*", .role = Role::index, .indexes = "V"},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_weight", .shape = "V,C", .role = Role::grad_input, .terms = "hits"},
  };
  static constexpr Example examples[] = {{"V=7,C=5,N=6"}, {"V=4,C=3,N=2x9"}};
  static constexpr RecordedAs recorded_as[] = {{"index", "position_ids"}};
  static constexpr Seen seen[] = {{"offset", "2", "OPT, whose padding once had the first rows"}};
  static constexpr Seen mistaken[] = {{"offset", "1", "positions that are one row off"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true, makes_shares = true;

  // The most that one row is hit.
  static std::int64_t most_hits(std::vector<std::int64_t> indices) {
    std::ranges::sort(indices);
    std::int64_t most = 0, run = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      run = i > 0 && indices[i] == indices[i - 1] ? run + 1 : 1;
      most = std::max(most, run);
    }
    return most;
  }

  // "hits": the most that one row is hit; all indices where only their shape is known.
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const InputShape& index = *find_input(inputs, "index");
    const Shape& weight = shape_of_input(inputs, "weight");
    d.set("hits",
          index.indices == nullptr ? element_count(index.shape) : most_hits(index.indices->indices()));
    padding_row(name, weight[0], a);
    const std::int64_t offset = a.integer("offset");
    if (index.indices == nullptr || offset == 0) return;
    for (const std::int64_t i : index.indices->indices()) {
      if (i + offset < 0 || i + offset >= weight[0])
        throw Error("embedding: index {} with an offset of {} is no row of {}", i, offset, weight[0]);
    }
  }

  // The row that each index takes.
  template <class T>
  static std::vector<std::int64_t> rows_of(Tensors<T>& t, const Attributes& a) {
    std::vector<std::int64_t> rows = t.slot("index").indices;
    for (std::int64_t& row : rows) row += a.integer("offset");
    return rows;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto w = t["weight"], y = t["y"];
    const std::vector<std::int64_t> rows = rows_of(t, a);
    const std::int64_t N = d.at("N"), C = d.at("C");
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < C; ++c) y(n, c) = w(rows[static_cast<std::size_t>(n)], c);
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_y"], grad_w = t["grad_weight"];
    const std::int64_t V = d.at("V"), C = d.at("C");
    const auto tokens = tokens_of_rows(rows_of(t, a), V, padding_row(name, V, a));
    const bool by_frequency = a.flag("scale_grad_by_freq");
    for (std::int64_t v = 0; v < V; ++v) {
      const auto& hit = tokens[static_cast<std::size_t>(v)];
      const auto count = static_cast<std::int64_t>(hit.size());
      const T frequency = number<T>(count);
      for (std::int64_t c = 0; c < C; ++c) {
        grad_w(v, c) =
            sum_in_memory<T>(count, [&](auto i) { return g(hit[static_cast<std::size_t>(i)], c); });
        if (by_frequency && count > 0) grad_w(v, c) /= frequency;
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator embedding = describe<Embedding>();
}

}  // namespace assay
