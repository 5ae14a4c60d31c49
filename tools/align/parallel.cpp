#include "assay/align/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

// Splits at each `mark`; "" has no pieces.
std::vector<std::string_view> pieces(std::string_view text, char mark) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t end = text.find(mark);
    all.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return all;
}

std::int64_t number(std::string_view key, std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw Error("--parallel: {} is '{}'; expected a number from {} to {}", key, text, low, high);
  return value;
}

// A key is declared once: how it is read, and how it is written ("": it has its default).
struct Key {
  std::string_view name;
  std::function<void(Parallel&, std::string_view)> read;
  std::function<std::string(const Parallel&)> write;
};

// More ranks than any replay on a machine can have.
constexpr std::int64_t most_ranks = 4096;

Key count(std::string_view name, std::int64_t Parallel::*field, std::int64_t low, std::int64_t high) {
  return {
      name, [=](Parallel& p, std::string_view text) { p.*field = number(name, text, low, high); },
      [=](const Parallel& p) { return p.*field == Parallel().*field ? "" : fmt::format("{}", p.*field); }};
}

Key flag(std::string_view name, bool Parallel::*field) {
  return {name, [=](Parallel& p, std::string_view text) { p.*field = number(name, text, 0, 1) == 1; },
          [=](const Parallel& p) { return p.*field ? "1" : ""; }};
}

template <class E>
Key choice(std::string_view name, E Parallel::*field, std::vector<std::string_view> names) {
  return {name,
          [=](Parallel& p, std::string_view text) {
            for (std::size_t k = 0; k < names.size(); ++k) {
              if (names[k] == text) {
                p.*field = static_cast<E>(k);
                return;
              }
            }
            throw Error("--parallel: {} is '{}'; expected {}", name, text, fmt::join(names, ", "));
          },
          [=](const Parallel& p) {
            return p.*field == Parallel().*field ? ""
                                                 : std::string(names[static_cast<std::size_t>(p.*field)]);
          }};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      count("tp", &Parallel::tp, 1, most_ranks),
      flag("sp", &Parallel::sp),
      count("cp", &Parallel::cp, 1, most_ranks),
      choice("context", &Parallel::context, {"ring", "ulysses"}),
      count("dp", &Parallel::dp, 1, most_ranks),
      count("zero", &Parallel::zero, 0, 3),
      count("pp", &Parallel::pp, 1, most_ranks),
      count("vpp", &Parallel::vpp, 1, most_ranks),
      choice("schedule", &Parallel::schedule, {"1f1b", "interleaved", "zero-bubble", "dualpipe"}),
      {"stages",
       [](Parallel& p, std::string_view text) {
         p.stages.clear();
         for (const std::string_view piece : pieces(text, '+'))
           p.stages.push_back(number("stages", piece, 0, most_ranks));
       },
       [](const Parallel& p) { return fmt::format("{}", fmt::join(p.stages, "+")); }},
      count("ep", &Parallel::ep, 1, most_ranks),
      choice("dispatch", &Parallel::dispatch, {"alltoall", "allgather", "hierarchical"}),
      count("node", &Parallel::node, 1, most_ranks),
      count("etp", &Parallel::etp, 1, most_ranks),
      choice("recompute", &Parallel::recompute, {"none", "full", "mla", "permute", "activation"}),
      flag("swap", &Parallel::swap),
      choice("reduce", &Parallel::reduce, {"ranks", "ring", "tree"}),
  };
  return all;
}

const Key& key_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : keys()) {
    if (key.name == name) return key;
    names.push_back(key.name);
  }
  throw Error("--parallel: there is no key '{}'; expected {}", name, fmt::join(names, ", "));
}

}  // namespace

Parallel parse_parallel(std::string_view text) {
  Parallel parallel;
  for (const std::string_view piece : pieces(text, ',')) {
    const std::size_t at = piece.find('=');
    if (at == std::string_view::npos)
      throw Error("--parallel: '{}' has no value; expected KEY=VALUE, as in tp=2,pp=2", piece);
    key_named(piece.substr(0, at)).read(parallel, piece.substr(at + 1));
  }
  return parallel;
}

std::string to_string(const Parallel& parallel) {
  std::vector<std::string> all;
  for (const Key& key : keys()) {
    const std::string value = key.write(parallel);
    if (!value.empty()) all.push_back(fmt::format("{}={}", key.name, value));
  }
  return fmt::format("{}", fmt::join(all, ","));
}

}  // namespace assay::align
