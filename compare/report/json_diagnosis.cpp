#include "assay/compare/report/json_diagnosis.h"

#include "assay/compare/report/json_number.h"

namespace assay {
namespace {

using Object = nlohmann::ordered_json;

Object json_value(double v) {
  return json_number(v);
}
Object json_value(std::int64_t v) {
  return v;
}
Object json_value(bool v) {
  return v;
}
Object json_value(DType d) {
  return name(d);
}
Object json_value(Rounding r) {
  constexpr std::string_view names[] = {"nearest_even", "nearest_away", "toward_zero"};
  return names[static_cast<std::size_t>(r)];
}
Object json_value(const std::string& text) {
  return text;
}

template <class T>
void add(Object& j, std::string_view key, const std::optional<T>& v) {
  if (v) j[std::string(key)] = json_value(*v);
}
void add(Object& j, std::string_view key, const std::string& text) {
  if (!text.empty()) j[std::string(key)] = text;
}
template <class T>
void add(Object& j, std::string_view key, const std::vector<T>& values) {
  if (values.empty()) return;
  Object list = Object::array();
  for (const T& v : values) list.push_back(json_value(v));
  j[std::string(key)] = std::move(list);
}

}  // namespace

nlohmann::ordered_json json_diagnosis(const Diagnosis& d) {
  Object parameters = Object::object();
  for_each_parameter([&](std::string_view key, const auto& v) { add(parameters, key, v); }, d.parameters);
  return {{"cause", name(d.cause)},
          {"text", sentence(d)},
          {"error_over_allowed", json_number(d.residual)},
          {"parameters", std::move(parameters)}};
}

}  // namespace assay
