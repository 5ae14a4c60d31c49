#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace assay {

/// Why a result outside its end-to-end rule is right nevertheless: Verdict::exempt.
struct Exemption {
  enum class Kind : std::uint8_t {
    amplified_rounding,
    equivalent_attribute,
    order_of_blocks,
    noise_of_reruns,
    legal_tie,
    part_of_whole,
    scale_by_convention,
    nothing,
  };
  Kind kind = Kind::amplified_rounding;
  /// What decides, and its limit: error / allowed on the result's own inputs and 1, or a relative L2 and the
  /// one that is allowed.
  double measured = 0, allowed = 1;
  std::string source;  ///< "rms_norm (eps = 1e-6) on its own recorded inputs: error/allowed 0.42"
};

/// A kind of exemption: its name in data, that in sentences, and why it is no fault.
struct ExemptionRow {
  Exemption::Kind kind;
  std::string_view key, name, meaning;
};
std::span<const ExemptionRow> exemption_rows();
const ExemptionRow& row_for(Exemption::Kind);
std::string_view name(Exemption::Kind);
/// "amplified rounding: rms_norm (eps = 1e-6) on its own recorded inputs: error/allowed 0.42"
std::string sentence(const Exemption&);

}  // namespace assay
