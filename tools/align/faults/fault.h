#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/tape/fault_sites.h"
#include "assay/compare/result/diagnosis.h"

/// Faults that parallel training programs have had, each as the arithmetic that went wrong, to be planted in
/// a replay: what an alignment must find and name.
namespace assay::align {

/// What the numbers of a fault look like, and by what it can be told (docs/semantics.md F).
enum class FaultKind : std::uint8_t {
  scale,    ///< a factor: sizes of the strategy, or a known constant
  partial,  ///< ranks hold shares of a sum that should be whole
  zero,     ///< exactly zero, or missing
  weights,  ///< micro-batches or contributions count otherwise
  add,      ///< a known term is added
  perm,     ///< elements, layers or positions are somewhere else
  norm,     ///< the norm of the gradients, or the clipping by it
  call,     ///< an operator's call with another attribute, operand or dtype
  none      ///< no closed form
};
std::string_view name(FaultKind);

/// The least of a replay under which a fault shows.
struct FaultConditions {
  std::string_view parallel = "";
  std::string_view model = "telechat3-105b-tiny";
  std::string_view precision = "fp32";
  std::string_view optimizer = "adamw";
  std::string_view loss_average = "micro-batches";
  double prompt = 0;
  std::int64_t micro_batches = 4;
  std::int64_t sequences = 1;
};

/// What an alignment is expected to say.
struct FaultAnswer {
  std::string_view phase;      ///< "forward", "backward", "optimizer": where it shows first
  std::string_view tensor;     ///< glob over the names of tensors: one that is wrong first
  std::string_view dimension;  ///< "tp": along which the strategy is wrong; empty: none
  /// One of these is the cause, with the parameters that are stated; empty: it has no closed form.
  std::vector<Diagnosis> causes = {};
};

struct Fault {
  std::string_view id;     ///< of the fault sheet: "F001"
  std::string_view area;   ///< "reduction", "loss scale", ..
  std::string_view title;  ///< what is done wrong
  std::string_view source;
  FaultKind kind = FaultKind::none;
  FaultConditions conditions = {};
  FaultAnswer answer = {};
  PlantFault plant = {};
};

/// Whether what was diagnosed is one of the expected causes, if there are any.
bool is_named(const FaultAnswer&, const Diagnosis&);

/// All, by their ids.
const std::vector<Fault>& fault_catalogue();
/// @throws Error  for an unknown id
const Fault& find_fault(std::string_view id);

/// Whether a replay under this strategy has what the fault goes wrong in: all that the catalogue's strategy
/// has and a single device has not.
bool shows(const Fault&, const Parallel&);
/// @throws Error  if not: what is missing, and with which strategy the fault shows
void check_fault(const Fault&, const Parallel&);

}  // namespace assay::align
