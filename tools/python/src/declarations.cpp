#include "declarations.h"

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "assay/compare/calls/call_names.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

AttributeValue attribute_of(nb::handle value, const std::string& name) {
  if (value.is_none()) return {};
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::vector<double> list;
    for (const nb::handle item : value) list.push_back(nb::cast<double>(nb::float_(item)));
    return list;
  }
  if (PyNumber_Check(value.ptr()) == 0)
    throw Error("attribute '{}': is {}; expected a number, bool, str, None or a list of numbers", name,
                nb::cast<std::string>(nb::repr(value)));
  return nb::cast<double>(nb::float_(value));
}

nb::object value_of(const AttributeValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return nb::bool_(*flag);
  if (const double* number = std::get_if<double>(&value)) {
    const bool is_whole = *number == std::floor(*number) && std::abs(*number) < 0x1p53;
    return is_whole ? nb::object(nb::int_(static_cast<std::int64_t>(*number))) : nb::float_(*number);
  }
  if (const std::string* text = std::get_if<std::string>(&value)) return nb::str(text->c_str());
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    nb::list items;
    for (const double v : *list) items.append(value_of(v));
    return items;
  }
  return nb::none();
}

}  // namespace

Attributes attributes_of(nb::dict given) {
  Attributes attributes;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    attributes.set(name, attribute_of(value, name));
  }
  return attributes;
}

nb::dict description(const Operator& op) {
  nb::dict d;
  d["name"] = nb::str(op.name.data(), op.name.size());
  d["math"] = nb::str(op.math.data(), op.math.size());
  d["source"] = nb::str(op.source.data(), op.source.size());
  d["has_backward"] = op.has_backward;
  nb::list aliases, attributes, args;
  for (const std::string_view alias : op.aliases) aliases.append(nb::str(alias.data(), alias.size()));
  for (const Attribute& a : op.attributes) {
    nb::dict item;
    item["name"] = nb::str(a.name.data(), a.name.size());
    item["default"] = value_of(parse_attribute(a.initial));
    item["meaning"] = nb::str(a.meaning.data(), a.meaning.size());
    attributes.append(item);
  }
  for (const Arg& arg : op.args) {
    nb::dict item;
    const std::string_view role = assay::name(arg.role);
    item["name"] = nb::str(arg.name.data(), arg.name.size());
    item["shape"] = nb::str(arg.shape.data(), arg.shape.size());
    item["role"] = nb::str(role.data(), role.size());
    item["optional"] = arg.optional;
    args.append(item);
  }
  d["aliases"] = aliases;
  d["attributes"] = attributes;
  d["args"] = args;
  return d;
}

std::string operator_of_class(const std::string& name) {
  const Operator* op = recorded_operator(name);
  return op == nullptr ? "" : std::string(op->name);
}

}  // namespace assay::python
