#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/golden/error.h"

/// Settings as text, "tp=2,pp=2". Each key is declared once: how it is read and how it is written.
namespace assay::align {

template <class Settings>
struct SettingsKey {
  std::string_view name;
  /// Sets it; returns what was expected instead, "" if that was fine.
  std::function<std::string(Settings&, std::string_view value)> read;
  std::function<std::string(const Settings&)> write;
};

/// Splits at each mark; "" has no pieces.
std::vector<std::string_view> split(std::string_view text, char mark);
/// "ranks, ring, tree"
std::string listed(const std::vector<std::string_view>& names);

/// Sets the value; returns what was expected instead, "" if that was fine.
std::string read_integer(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& value);
std::string read_real(std::string_view text, double low, double high, double& value);
std::string read_choice(std::string_view text, const std::vector<std::string_view>& names,
                        std::size_t& value);
/// As few digits as read_real needs to give the same.
std::string written(double);

template <class S>
SettingsKey<S> integer_key(std::string_view name, std::int64_t S::*field, std::int64_t low,
                           std::int64_t high) {
  return {name, [=](S& s, std::string_view text) { return read_integer(text, low, high, s.*field); },
          [=](const S& s) { return std::to_string(s.*field); }};
}

template <class S>
SettingsKey<S> real_key(std::string_view name, double S::*field, double low, double high) {
  return {name, [=](S& s, std::string_view text) { return read_real(text, low, high, s.*field); },
          [=](const S& s) { return written(s.*field); }};
}

template <class S>
SettingsKey<S> flag_key(std::string_view name, bool S::*field) {
  return {name,
          [=](S& s, std::string_view text) {
            std::int64_t value = s.*field ? 1 : 0;
            const std::string expected = read_integer(text, 0, 1, value);
            s.*field = value == 1;
            return expected;
          },
          [=](const S& s) { return s.*field ? "1" : "0"; }};
}

/// @param names  of the enumerators, in their order
template <class S, class E>
SettingsKey<S> choice_key(std::string_view name, E S::*field, const std::vector<std::string_view>& names) {
  return {name,
          [=](S& s, std::string_view text) {
            auto value = static_cast<std::size_t>(s.*field);
            const std::string expected = read_choice(text, names, value);
            s.*field = static_cast<E>(value);
            return expected;
          },
          [=](const S& s) { return std::string(names[static_cast<std::size_t>(s.*field)]); }};
}

/// Changes what the pieces KEY=VALUE name.
/// @param option  that errors name: "--parallel"
/// @throws Error  for an unknown key, for one that is there twice, and for a value that it cannot have, with
///                those it can
template <class S>
void read_settings(std::string_view option, const std::vector<SettingsKey<S>>& keys,
                   const std::vector<std::string_view>& pieces, S& settings) {
  std::set<std::string_view> given;
  for (const std::string_view piece : pieces) {
    const std::size_t at = piece.find('=');
    if (at == std::string_view::npos) throw Error("{}: '{}' has no value; expected KEY=VALUE", option, piece);
    const std::string_view name = piece.substr(0, at), value = piece.substr(at + 1);
    std::vector<std::string_view> names;
    const SettingsKey<S>* found = nullptr;
    for (const SettingsKey<S>& key : keys) {
      names.push_back(key.name);
      if (key.name == name) found = &key;
    }
    if (found == nullptr) throw Error("{}: there is no key '{}'; expected {}", option, name, listed(names));
    if (!given.insert(name).second) throw Error("{}: {} is given twice", option, name);
    const std::string expected = found->read(settings, value);
    if (!expected.empty()) throw Error("{}: {} is '{}'; expected {}", option, name, value, expected);
  }
}

/// KEY=VALUE of what is not as in `defaults`.
template <class S>
std::vector<std::string> written_settings(const std::vector<SettingsKey<S>>& keys, const S& settings,
                                          const S& defaults) {
  std::vector<std::string> all;
  for (const SettingsKey<S>& key : keys) {
    const std::string value = key.write(settings);
    if (value != key.write(defaults)) all.push_back(std::string(key.name) + "=" + value);
  }
  return all;
}

}  // namespace assay::align
