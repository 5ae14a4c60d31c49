#include "assay/compare/calls/case_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "assay/dumps/io/whole_file.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// Whole numbers as such: "top_k": 2.
OrderedJson number(double v) {
  return v == std::floor(v) && std::abs(v) < 0x1p53 ? OrderedJson(static_cast<std::int64_t>(v))
                                                    : OrderedJson(v);
}

OrderedJson to_json(const AttributeValue& value) {
  return std::visit(
      [](const auto& v) -> OrderedJson {
        using V = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<V, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<V, double>) {
          return number(v);
        } else if constexpr (std::is_same_v<V, std::vector<double>>) {
          OrderedJson list = OrderedJson::array();
          for (const double item : v) list.push_back(number(item));
          return list;
        } else {
          return v;
        }
      },
      value);
}

OrderedJson to_json(const NamedTensor& t, const Arg& arg, const std::string& file) {
  return {{"name", t.name},
          {"file", file},
          {"dtype", name(t.tensor.dtype())},
          {"shape", t.tensor.shape()},
          {"role", name(arg.role == Role::output_index ? Role::index : arg.role)}};
}

void write_files(const NewCase& c, const fs::path& folder) {
  OrderedJson json = {{"op", c.op->name}, {"case", c.name}, {"attributes", OrderedJson::object()}};
  for (const auto& [key, value] : c.attributes.values()) json["attributes"][key] = to_json(value);
  json["inputs"] = json["outputs"] = OrderedJson::array();
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string file = fmt::format("input_{}.npy", i);
    write_npy(folder / file, c.inputs[i].tensor);
    json["inputs"].push_back(to_json(c.inputs[i], input_arg(*c.op, c.inputs[i].name), file));
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const std::string file = fmt::format("output_{}.npy", i);
    if (c.with_outputs) write_npy(folder / file, c.outputs[i].tensor);
    json["outputs"].push_back(to_json(c.outputs[i], output_arg(*c.op, c.outputs[i].name), file));
  }
  write_whole((folder / "case.json").string(), json.dump(1) + "\n");
}

}  // namespace

std::string attribute_text(const AttributeValue& value) {
  return to_json(value).dump();
}

void expect_new_folder(const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(folder, none) || (fs::is_directory(folder, none) && fs::is_empty(folder, none))) return;
  throw Error("{}: is there already and not empty; expected a new folder", folder.string());
}

void write_case(const NewCase& c, const fs::path& folder) {
  expect_new_folder(folder);
  try {
    fs::create_directories(folder);
    write_files(c, folder);
  } catch (...) {
    std::error_code none;
    fs::remove_all(folder, none);  // new or empty a moment ago: no half case stays
    throw;
  }
}

}  // namespace assay
