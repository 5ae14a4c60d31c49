#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"

// Every case of tests/data/cases and torch_cases: outputs of PyTorch in float64, and the accumulation counts
// that belong to them.
namespace assay::cases_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A C-order array of little-endian 8-byte elements, NumPy format 1.0.
std::vector<std::byte> read_npy(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  if (all.size() < 10 || all.substr(1, 5) != "NUMPY") throw Error("{}: no .npy file", path.string());
  const std::size_t header = static_cast<unsigned char>(all[8]) + 256u * static_cast<unsigned char>(all[9]);
  if (all.substr(10, header).find("'fortran_order': False") == std::string::npos) {
    throw Error("{}: expected C order", path.string());
  }
  const auto* data = reinterpret_cast<const std::byte*>(all.data());
  return {data + 10 + header, data + all.size()};
}

NamedTensor read_tensor(const fs::path& folder, const json& entry) {
  const Tensor base(*parse_dtype(entry["dtype"].get<std::string>()), entry["shape"].get<Shape>(),
                    read_npy(folder / entry["file"].get<std::string>()));
  if (!entry.contains("view")) return {entry["name"], base};
  const json& view = entry["view"];
  return {entry["name"], gather_view(base, view["shape"].get<Shape>(), view["strides"].get<Shape>(),
                                     view["offset"].get<std::int64_t>())};
}

// {"yarn": {"factor": 40}} is the attribute "yarn.factor".
void read_attributes(const json& given, const std::string& prefix, Attributes& attributes) {
  for (const auto& [name, value] : given.items()) {
    if (value.is_object()) {
      read_attributes(value, prefix + name + ".", attributes);
    } else {
      attributes.set(prefix + name, parse_attribute(value.dump()));
    }
  }
}

std::vector<fs::path> case_folders() {
  std::vector<fs::path> folders;
  for (const char* root : {ASSAY_TEST_DATA "/cases", ASSAY_TEST_DATA "/torch_cases"}) {
    for (const auto& file : fs::recursive_directory_iterator(root)) {
      if (file.path().filename() == "case.json") folders.push_back(file.path().parent_path());
    }
  }
  std::ranges::sort(folders);
  return folders;
}

std::string title(const fs::path& folder) {
  return folder.parent_path().filename().string() + "_" + folder.filename().string();
}

class Case : public testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    std::ifstream file(GetParam() / "case.json");
    text = json::parse(file);
    op = known_operator(text["op"].get<std::string>());
    ASSERT_NE(op, nullptr) << text["op"];
    read_attributes(text["attributes"], "", attributes);
    for (const json& entry : text["inputs"]) inputs.push_back(read_tensor(GetParam(), entry));
  }
  json text;
  const Operator* op = nullptr;
  Attributes attributes;
  std::vector<NamedTensor> inputs;
};

// We computed in float64, the case in the arithmetic of its output: float64, or float32 for all narrower
// ones. Apart by at most both bounds, and in float64 by little in any case.
TEST_P(Case, EveryOutputIsPyTorchs) {
  constexpr ErrorModel float64_model{0x1p-53, 0x1p-1074}, float32_model{0x1p-24, 0x1p-149};
  const auto golden = compute_golden(*op, inputs, attributes, Level::fp64);
  const auto own_bounds = compute_bound(*op, inputs, attributes, float64_model);
  const auto float32_bounds = compute_bound(*op, inputs, attributes, float32_model);
  EXPECT_EQ(golden.size(), text["outputs"].size());
  for (const json& entry : text["outputs"]) {
    NamedTensor expected = read_tensor(GetParam(), entry);
    if (output_arg(*op, expected.name).raw) expected.tensor = bits_of(expected.tensor);
    const auto found = std::ranges::find(golden, expected.name, &NamedTensor::name);
    ASSERT_NE(found, golden.end()) << expected.name;
    const auto output = found - golden.begin();
    EXPECT_EQ(found->tensor.shape(), expected.tensor.shape()) << expected.name;
    const bool narrow = is_float(expected.tensor.dtype()) && expected.tensor.dtype() != DType::float64;
    const Tensor& own = own_bounds[static_cast<std::size_t>(output)].tensor;
    const Tensor& other = narrow ? float32_bounds[static_cast<std::size_t>(output)].tensor : own;
    const std::vector<double> values = found->tensor.values(), references = expected.tensor.values();
    double scale = 0;
    for (const double r : references) scale = std::isinf(r) ? scale : std::max(scale, std::abs(r));
    ASSERT_EQ(values.size(), references.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == references[i] || (std::isnan(values[i]) && std::isnan(references[i]))) continue;
      const double error = std::abs(values[i] - references[i]);
      const auto at = static_cast<std::int64_t>(i);
      EXPECT_LE(error, own.value(at) + other.value(at)) << expected.name << " at " << i;
      if (narrow) continue;
      EXPECT_LE(error, 1e-13 * scale) << expected.name << " at " << i;
    }
  }
}

TEST_P(Case, AccumulationCountsAreKnown) {
  std::vector<InputShape> shapes;
  for (const NamedTensor& input : inputs) shapes.push_back({input.name, input.tensor.shape(), &input.tensor});
  if (!text.contains("accumulation_count")) GTEST_SKIP() << "the case lists none";
  for (const auto& [output, count] : text["accumulation_count"].items()) {
    EXPECT_EQ(accumulation_count(*op, output, shapes, attributes), count.get<std::int64_t>()) << output;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Case, testing::ValuesIn(case_folders()),
                         [](const auto& info) { return title(info.param); });

}  // namespace
}  // namespace assay::cases_test
