#pragma once

#include <string>
#include <vector>

#include "assay/align/ladder/walk.h"

namespace assay::align {

/// What the reports of an alignment say beside its result.
struct LadderHead {
  std::string command;             ///< as it was given
  std::string subject, reference;  ///< Provider::text
  std::string model, target, precision;
};

/// The stages and what they cost, and runs nothing.
std::string plan_text(const LadderPlan&, const LadderHead&);

/// One object as align.schema.json describes it; NaN and infinities as the strings "nan", "inf", "-inf".
std::string to_json(const LadderResult&, const LadderHead&);
/// A test suite for each stage, with a test case for each of its phases and one for the configuration; and
/// one for the keys of configuration files.
std::string to_junit(const LadderResult&, const LadderHead&);
/// Verdict, divergences and the table of stages (GitHub flavour); no more than 60 kB.
std::string to_markdown(const LadderResult&, const LadderHead&);
/// GitHub's workflow commands: an error for the first divergence, a notice with the counts.
std::string to_github_annotations(const LadderResult&);
/// One page that needs nothing else, offline and without scripts.
std::string to_html(const LadderResult&, const LadderHead&);

/// One line for a stage.
std::string rung_line(const RungResult&);
/// The divergences with their evidence, and the last line that counts and names the files written.
std::string ladder_text(const LadderResult&, const std::vector<std::string>& written);

}  // namespace assay::align
