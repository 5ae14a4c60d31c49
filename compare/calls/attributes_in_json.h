#pragma once

#include <string>

#include "assay/dumps/io/json.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// Throws Error for a value that no attribute can have.
AttributeValue attribute_value(const Json&, const std::string& where);
/// Adds the members of an object as attributes; a nested object is flattened: "yarn.factor".
void read_attributes(const Json& object, const std::string& where, Attributes& into);

}  // namespace assay
