#include "assay/align/step/initial.h"

#include <algorithm>
#include <cmath>

namespace assay::align {
namespace {

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t state = 0xcbf29ce484222325;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return state;
}

// What is drawn for a micro-batch.
std::string stream(const std::string& of, std::int64_t number) {
  return number == 0 ? of : of + " of micro-batch " + std::to_string(number);
}

std::string of_seed(const std::string& name, std::int64_t seed) {
  return seed == 0 ? name : name + " of seed " + std::to_string(seed);
}

// At which token of each sequence its targets begin to count.
std::vector<std::int64_t> prompts(const Batch& batch, std::int64_t number, std::int64_t seed) {
  std::vector<std::int64_t> ends;
  for (const double x : drawn(of_seed(stream("prompts", number), seed), batch.sequences))
    ends.push_back(
        static_cast<std::int64_t>(std::abs(x) * batch.prompt * static_cast<double>(batch.length + 1)));
  return ends;
}

}  // namespace

std::vector<double> drawn(const std::string& name, std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  std::uint64_t state = fnv1a(name);
  for (double& x : out) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    x = static_cast<double>(z >> 11) * 0x1p-52 - 1;
  }
  return out;
}

Tensor initial_parameter(const std::string& name, const Shape& shape, std::int64_t seed) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  std::vector<double> values = drawn(of_seed(name, seed), size);
  const bool norm = name.find("norm") != std::string::npos, bias = name.ends_with("bias"),
             embedding = name.starts_with("model.embed_tokens");
  const double scale = norm        ? 0.1
                       : bias      ? 0.05
                       : embedding ? 1
                                   : std::sqrt(3 / static_cast<double>(shape.back()));
  for (double& x : values) x = (norm ? 1 : 0) + scale * x;
  return {shape, std::span<const double>(values)};
}

Sequences initial_sequences(const Batch& batch, std::int64_t vocabulary, std::int64_t number,
                            std::int64_t seed) {
  // one more of each sequence than there are tokens: the last target
  std::vector<std::int64_t> all;
  for (const double x : drawn(of_seed(stream("tokens", number), seed), batch.tokens() + batch.sequences))
    all.push_back(static_cast<std::int64_t>(std::abs(x) * static_cast<double>(vocabulary)) % vocabulary);
  const auto count = static_cast<std::size_t>(batch.tokens());
  Sequences result = {std::vector<std::int64_t>(count), std::vector<std::int64_t>(count)};
  const std::vector<std::int64_t> ends = prompts(batch, number, seed);
  for (std::int64_t l = 0; l < batch.length; ++l) {
    for (std::int64_t s = 0; s < batch.sequences; ++s) {
      const auto row = static_cast<std::size_t>(batch.row(l, s)),
                 at = static_cast<std::size_t>(l * batch.sequences + s),
                 next = at + static_cast<std::size_t>(batch.sequences);
      result.tokens[row] = all[at];
      // the target of token l is token l + 1
      result.targets[row] = l + 1 <= ends[static_cast<std::size_t>(s)] ? no_target : all[next];
    }
  }
  return result;
}

Tensor indices_of(const std::string& name, const Sequences& sequences, const Batch& batch) {
  constexpr std::string_view valid = "valid_";
  if (name.starts_with(valid)) {
    const std::vector<std::int64_t> targets =
        indices_of(name.substr(valid.size()), sequences, batch).indices();
    return Tensor::from_indices(
        {}, std::vector{static_cast<std::int64_t>(targets.size()) - std::ranges::count(targets, no_target)});
  }
  const bool targets = name.starts_with("targets");
  const std::size_t depth_at = name.find('_');
  const std::int64_t depth = depth_at == std::string::npos ? 0 : std::stoll(name.substr(depth_at + 1));
  const std::vector<std::int64_t>& all = targets ? sequences.targets : sequences.tokens;
  std::vector<std::int64_t> rolled(all.size(), targets ? no_target : 0);
  for (std::int64_t l = depth; l < batch.length; ++l) {
    for (std::int64_t s = 0; s < batch.sequences; ++s)
      rolled[static_cast<std::size_t>(batch.row(l - depth, s))] =
          all[static_cast<std::size_t>(batch.row(l, s))];
  }
  return Tensor::from_indices({batch.tokens()}, rolled);
}

}  // namespace assay::align
