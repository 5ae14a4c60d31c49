#include "assay/compare/calls/attributes_in_json.h"

#include <fmt/format.h>

#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"

namespace assay {

AttributeValue attribute_value(const Json& json, const std::string& where) {
  if (json.is_array()) {
    std::vector<double> list;
    for (const Json& item : json.array(where)) {
      const AttributeValue value = attribute_value(item, where);
      const double* number = std::get_if<double>(&value);
      if (number == nullptr) throw Error("{}: holds {}; expected a list of numbers", where, item.kind());
      list.push_back(*number);
    }
    return list;
  }
  if (json.is_string()) return json.string(where);
  return parse_attribute(json.text());
}

namespace {

void read_with_prefix(const Json& object, const std::string& prefix, const std::string& where,
                      Attributes& into) {
  for (const auto& [key, value] : object.object(where)) {
    const std::string name = prefix + key, here = fmt::format("{}: attribute '{}'", where, name);
    if (value.is_object()) {
      read_with_prefix(value, name + ".", here, into);
    } else {
      into.set(name, attribute_value(value, here));
    }
  }
}

}  // namespace

void read_attributes(const Json& object, const std::string& where, Attributes& into) {
  read_with_prefix(object, "", where, into);
}

}  // namespace assay
