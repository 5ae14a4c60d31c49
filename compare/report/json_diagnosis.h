#pragma once

#include <nlohmann/json.hpp>

#include "assay/compare/result/diagnosis.h"

namespace assay {

/// A cause as reports have it: its name, its sentence, and the numbers that it has.
nlohmann::ordered_json json_diagnosis(const Diagnosis&);

}  // namespace assay
