#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/align/settings/parallel.h"
#include "assay/align/settings/settings_keys.h"

namespace assay::align {

/// A key of --parallel. The parser, the ladder's switches, the conditions of faults, the placeholders of
/// commands and the help read this row; a strategy more is a row more.
struct Strategy {
  SettingsKey<Parallel> setting;
  std::string_view values;  ///< "N", "0|1", "ring|ulysses": for the help
  std::string_view help;
  /// The part of a strategy that is switched on and off together with this key, by the key that names it:
  /// "cp" of context. Empty: the key holds in every rung.
  std::string_view part;
  /// Whether a value other than the default switches the part on; else the key only says how.
  bool switches = true;
  /// What parts are parts of: "tp" of sp; on the key that names the part. Dimensions are alone in one rung,
  /// and paired with others in the next.
  std::string_view dimension = "";
  /// Parts of which one must be on with this one; empty: it stands alone.
  std::vector<std::string_view> needs = {};
  bool is_refused_alone = true;  ///< without any that it needs; else it changes nothing there
  /// What a strategy lacks that has this key's default, for faults that need another value; a key that only
  /// says how must have the same value. Empty: faults show with any value.
  std::string_view lacking = "";
  /// Its placeholder in commands: {tp}, or {recompute}, 1 if it has not its default.
  enum class Placeholder : std::uint8_t { none, value, is_on } placeholder = Placeholder::none;

  std::string_view key() const { return setting.name; }
  std::string value(const Parallel& p) const { return setting.write(p); }
  bool is_default(const Parallel& p) const { return value(p) == value(Parallel()); }
  /// Gives it the value that it has in another strategy.
  void copy(Parallel& to, const Parallel& from) const { setting.read(to, value(from)); }
};

/// All, in the order in which they are written.
const std::vector<Strategy>& strategies();

/// Whether the part is on.
bool is_on(std::string_view part, const Parallel&);

/// What the strategy lacks that another one has and a single device has not: "tp > 1", "its context".
std::vector<std::string_view> lacking(const Parallel& shown, const Parallel&);

/// @throws Error  if a part is on without one that it needs: "sp needs tp > 1"
void check_needs(const Parallel&);

/// A line for each key, "tp=N: tensor parallel", each behind a line break: for the help.
std::string strategies_text();

}  // namespace assay::align
