#include "assay/align/machine.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay::align {

const Value& value_named(const std::vector<NamedValue>& values, std::string_view name) {
  const auto at = std::ranges::find(values, name, &NamedValue::name);
  if (at == values.end())
    throw Error("there is no output '{}'; this call's first is '{}'", name, values.front().name);
  return at->value;
}

}  // namespace assay::align
