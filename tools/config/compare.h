#pragma once

#include <string>
#include <vector>

#include "assay/config/key.h"
#include "assay/config/side.h"

namespace assay::config {

/// A value and where it stands: "train.sh:12", "default of Megatron-LM".
struct Stated {
  std::string value, place;
};

/// A key that differs.
struct Row {
  std::string key;
  Effect effect = Effect::unknown;
  Stated a, b;
  std::string does;       ///< to the numbers
  bool accepted = false;  ///< the user says that it may
};

/// A key that one side states, and of which the other says nothing.
struct Single {
  std::string key;
  Stated stated;
};

struct Comparison {
  std::string a, b;            ///< paths
  std::string kind_a, kind_b;  ///< Side::text()
  std::vector<Row> rows;       ///< what changes most first, then in the order of keys()
  std::size_t equal = 0;
  std::vector<Single> only_a, only_b;
  std::vector<std::string> passed_over;  ///< files that were not read

  std::size_t count(Effect, bool accepted = false) const;
  /// A key differs that changes the numbers, or of which nobody here knows, and that was not accepted.
  bool differs() const;
};

/// @param accepted  keys that may differ; '*' stands for any characters
/// @throws Error    where nothing is in both, or an accepted key does not differ
Comparison compare(const Side& a, const Side& b, const std::vector<std::string>& accepted = {});

/// One key a line; the last line counts.
/// @param all  what one side alone states, all of it
std::string to_text(const Comparison&, bool all = false);
std::string to_json(const Comparison&);
/// "2 change the numbers, 0 are not known, ..".
std::string counts_text(const Comparison&);
/// Of a row: "1e-05 (train.sh:12) | 1e-06 (config.json: rms_norm_eps)  each norm's output is scaled, ..".
std::string line_of(const Row&);

}  // namespace assay::config
