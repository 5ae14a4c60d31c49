#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/dumps/io/pattern.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/record/glob.h"

namespace assay {

/// What the user says of tensors that dumps do not say themselves (design 3.5): a TOML file of [[rename]],
/// [[operator]], [[count]], [[tolerance]], [[ignore]], [[mesh]], [[renumber]] and [[layout]] tables. `match`
/// is a glob over the tensor's path, "module.slot" or "module.slot.arg": "*.experts.*.fc2.output". The first
/// matching rule of a kind holds.
class Rules {
 public:
  /// Throws Error that names the file, the line and what was expected.
  static Rules load(const std::string& file);

  /// The actual side's module name as the reference calls it.
  std::string renamed(const std::string& module) const;

  /// The operator that makes the tensor, if a rule says so: its name in OPERATORS.md, or an alias.
  std::optional<std::string> operator_of(const std::vector<std::string>& paths) const;
  bool has_operators() const { return !operators_.empty(); }

  struct Count {
    std::int64_t count;
    std::string source;  ///< "rules.toml, [[count]] 2"
  };
  std::optional<Count> count_of(const std::vector<std::string>& paths) const;
  /// The policy for this tensor if a rule gives one, else nullptr.
  const Policy* policy_of(const std::vector<std::string>& paths) const;
  /// Why the tensor is left out, if a rule says so.
  std::optional<std::string> ignored(const std::vector<std::string>& paths) const;

  /// To be applied to both sides before they are compared (apply_layout).
  const LayoutRules& layout() const { return layout_; }

  /// Rules that no tensor has matched, for the report: a typing error hides here.
  std::vector<std::string> unused() const;

 private:
  struct Entry {
    std::string pattern, text;
    std::int64_t number = 0;
    std::string source;
    std::optional<Pattern> from;  ///< of [[rename]]
    Policy policy;                ///< of [[tolerance]]
    mutable bool used = false;
  };
  static const Entry* first(const std::vector<Entry>&, const std::vector<std::string>& paths);
  std::vector<Entry> renames_, operators_, counts_, tolerances_, ignores_;
  LayoutRules layout_;
};

}  // namespace assay
