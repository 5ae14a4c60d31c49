#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "assay/config/source.h"

namespace assay::config {

/// What a difference of a key does, the worst first.
enum class Effect : std::uint8_t {
  numbers,  ///< another function, or other roundings
  unknown,  ///< no row of the table says it; or what a file or folder holds, of which only the name is known
  order,    ///< sums in another order, or cut otherwise: rounding alone
  nothing
};

/// How a framework's value becomes the key's.
struct Reading {
  enum class Kind : std::uint8_t {
    as_is,
    flag,     ///< yes or no, however it is spelled
    inverse,  ///< yes or no, the other way round
    dtype,
    word,     ///< yes: the argument; no: nothing is stated
    map,      ///< words of "adam=adamw,sgd=sgd", in small letters; others stay as they are
    implied,  ///< the same; others say nothing
    times,    ///< multiplied by the paths of the argument, "a,b"
    over,     ///< divided by the path of the argument
    power,    ///< 2 to it
    dense     ///< how many layers of "([0]*3+[1]*58)" come before the first with experts
  };
  Kind kind = Kind::as_is;
  std::string_view argument = {};
};

inline constexpr Reading as_is, flag = {Reading::Kind::flag}, inverse = {Reading::Kind::inverse},
                                dtype = {Reading::Kind::dtype}, power = {Reading::Kind::power},
                                dense = {Reading::Kind::dense};
constexpr Reading word(std::string_view word) {
  return {Reading::Kind::word, word};
}
constexpr Reading map(std::string_view words) {
  return {Reading::Kind::map, words};
}
constexpr Reading implied(std::string_view words) {
  return {Reading::Kind::implied, words};
}
constexpr Reading times(std::string_view paths) {
  return {Reading::Kind::times, paths};
}
constexpr Reading over(std::string_view path) {
  return {Reading::Kind::over, path};
}

/// A key in a framework.
struct Name {
  Framework framework;
  std::string_view path;  ///< below model.model_config in MindFormers; without dashes of Megatron-LM
  Reading reading = {};
  /// What holds where it is not stated: a value of the key, or "=num_attention_heads" for that key's.
  /// Empty: it depends on the model, or was not looked up.
  std::string_view otherwise = {};
  /// A path without whose yes, or number that is not 0, it means nothing; with "!" before it, with which.
  std::string_view needs = {};
};

/// One idea in all frameworks. Of several names in one framework the first that is stated counts.
struct Key {
  std::string_view name;  ///< Hugging Face's word, where it has one, or Megatron-LM's
  Effect effect;
  std::string_view does;  ///< what a difference does to the numbers
  std::vector<Name> names;
};

/// All, in the order of a training step: model, router, optimizer, precision, determinism, parallel, data.
const std::vector<Key>& keys();

/// Keys of a framework that change no number whatever they are: where to save, what to print. '*' for any.
struct WithoutEffect {
  Framework framework;
  std::string_view pattern;
};
bool is_without_effect(Framework, std::string_view path);

}  // namespace assay::config
