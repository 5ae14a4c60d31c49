#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/tensor.h"

/// Rows of tokens as experts get them. A row is named by its place t K + k in the routing index [tokens, K]:
/// token t, its choice k; -1 is padding.
namespace assay {

/// The places with an expert (index not negative) in the order of key(place), of equals the lower place
/// first; then padding up to `rows`, or without what exceeds them.
template <class F>
std::vector<std::int64_t> routed_rows(const std::vector<std::int64_t>& index, std::int64_t rows, F key) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] >= 0) places.push_back(static_cast<std::int64_t>(i));
  }
  std::stable_sort(places.begin(), places.end(),
                   [&](std::int64_t i, std::int64_t j) { return key(i) < key(j); });
  places.resize(static_cast<std::size_t>(rows), -1);
  return places;
}

/// For every place of `places` many the rows that it went to.
inline std::vector<std::vector<std::int64_t>> rows_by_place(const std::vector<std::int64_t>& rows,
                                                            std::int64_t places) {
  std::vector<std::vector<std::int64_t>> found(static_cast<std::size_t>(places));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] >= 0) found[static_cast<std::size_t>(rows[r])].push_back(static_cast<std::int64_t>(r));
  }
  return found;
}

/// The same by token, rows ascending.
inline std::vector<std::vector<std::int64_t>> rows_by_token(const std::vector<std::int64_t>& rows,
                                                            std::int64_t tokens, std::int64_t K) {
  std::vector<std::vector<std::int64_t>> found(static_cast<std::size_t>(tokens));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] >= 0) found[static_cast<std::size_t>(rows[r] / K)].push_back(static_cast<std::int64_t>(r));
  }
  return found;
}

/// to[r] = the token of row r, of C channels; padding rows stay as they are.
template <class T>
void tokens_to_rows(const T* tokens, const std::vector<std::int64_t>& rows, std::int64_t K, std::int64_t C,
                    T* to) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0) continue;
    const T* token = tokens + rows[r] / K * C;
    std::copy(token, token + C, to + static_cast<std::int64_t>(r) * C);
  }
}

/// to[t] = the sum of the token's rows, each times its probability if there are any.
template <class T>
void rows_to_tokens(const T* from, const std::vector<std::int64_t>& rows, const T* probs, std::int64_t tokens,
                    std::int64_t K, std::int64_t C, T* to) {
  const auto of_token = rows_by_token(rows, tokens, K);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::vector<std::int64_t>& own = of_token[static_cast<std::size_t>(t)];
    for (std::int64_t c = 0; c < C; ++c) {
      to[t * C + c] = sum_in_memory<T>(static_cast<std::int64_t>(own.size()), [&](auto i) {
        const std::int64_t r = own[static_cast<std::size_t>(i)];
        const T& value = from[r * C + c];
        return probs == nullptr ? value : value * probs[rows[static_cast<std::size_t>(r)]];
      });
    }
  }
}

/// The gradients of rows_to_tokens: of the rows, and of the probabilities where there are any.
template <class T>
void rows_to_tokens_backward(const T* from, const std::vector<std::int64_t>& rows, const T* probs, const T* g,
                             std::int64_t tokens, std::int64_t K, std::int64_t C, T* grad_from,
                             T* grad_probs) {
  tokens_to_rows(g, rows, K, C, grad_from);
  if (probs == nullptr) return;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0) continue;
    for (std::int64_t c = 0; c < C; ++c) grad_from[static_cast<std::int64_t>(r) * C + c] *= probs[rows[r]];
  }
  const auto of_place = rows_by_place(rows, tokens * K);
  for (std::int64_t place = 0; place < tokens * K; ++place) {
    const std::vector<std::int64_t>& own = of_place[static_cast<std::size_t>(place)];
    grad_probs[place] = sum<T>(static_cast<std::int64_t>(own.size()) * C, [&](auto i) {
      return from[own[static_cast<std::size_t>(i / C)] * C + i % C] * g[place / K * C + i % C];
    });
  }
}

/// For an operator's `steps_apart`: what experts store between belongs to a token, and there to an expert.
/// @param output  "y", gradients of tokens [.., C] or of parameters [E, ..]
inline std::vector<std::int64_t> apart_by_token_or_expert(std::string_view output, const Shape& shape) {
  const std::int64_t count = element_count(shape);
  const bool of_tokens = output == "y" || output == "grad_x" || output == "grad_weights";
  std::vector<std::int64_t> apart;
  if (count == 0 || shape.empty()) return apart;
  const std::int64_t size = of_tokens ? shape.back() : count / shape.front();
  for (std::int64_t i = 0; i < count; ++i) apart.push_back(i / size);
  return apart;
}

}  // namespace assay
