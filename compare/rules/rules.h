#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/dumps/io/pattern.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/record/dump.h"
#include "assay/dumps/record/glob.h"

namespace assay {

/// Statements of the user about tensors, where dumps lack them (docs/rules.md): a TOML file of [[rename]],
/// [[operator]], [[count]], [[tolerance]], [[ignore]], [[mesh]], [[renumber]] and [[layout]] tables. `match`
/// is a glob over the path of a tensor, "module.slot" or "module.slot.arg": "*.experts.*.fc2.output". The
/// first matching rule of a kind applies.
class Rules {
 public:
  /// Throws Error for a damaged file; the message names the file, the line and the expected text.
  static Rules load(const std::string& file);

  /// Returns the reference's identity of a tensor of the actual side: with another module, slot or argument.
  Identity renamed(Identity) const;

  /// Returns the operator that a rule names for the tensor: a name or an alias of OPERATORS.md.
  std::optional<std::string> operator_of(const std::vector<std::string>& paths) const;
  bool has_operators() const { return !operators_.empty(); }

  struct Count {
    std::int64_t count;
    std::string source;  ///< "rules.toml, [[count]] 2"
  };
  std::optional<Count> count_of(const std::vector<std::string>& paths) const;
  /// Returns the policy that a rule gives the tensor, or nullptr.
  const Policy* policy_of(const std::vector<std::string>& paths) const;
  /// Returns the reason of the rule that leaves the tensor out, if there is one.
  std::optional<std::string> ignored(const std::vector<std::string>& paths) const;

  /// The same rules for two dumps of one side, whose names meet.
  Rules without_renames() const;

  /// The layout rules. Both sides take them before they are compared (apply_layout).
  const LayoutRules& layout() const { return layout_; }

  /// Returns the rules that no tensor matched, for the report: they may hold a typing error.
  std::vector<std::string> unused() const;

 private:
  struct Entry {
    std::string pattern, text;
    std::int64_t number = 0;
    std::string source;
    std::optional<Pattern> from;  ///< of [[rename]]
    bool of_argument = false;     ///< of [[rename]]: of "slot.arg", not of the module
    Policy policy;                ///< of [[tolerance]]
    mutable bool used = false;
  };
  static const Entry* first(const std::vector<Entry>&, const std::vector<std::string>& paths);
  std::vector<Entry> renames_, operators_, counts_, tolerances_, ignores_;
  LayoutRules layout_;
};

}  // namespace assay
