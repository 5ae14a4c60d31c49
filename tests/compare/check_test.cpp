#include "assay/compare/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../dumps/scratch.h"
#include "assay/compare/cases/case.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const fs::path all_cases = fs::path(ASSAY_TEST_DATA) / "cases";

CheckOptions options(std::vector<std::string> policies = {"derived"}) {
  CheckOptions o;
  for (const std::string& p : policies) o.policies.push_back(load_policy(p));
  return o;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const fs::path& folder : find_cases(all_cases))
    names.push_back(fs::relative(folder, all_cases).string());
  return names;
}

// The 8-byte length, the header and the bytes: https://github.com/huggingface/safetensors.
void write_safetensors(const fs::path& file, const std::vector<NamedTensor>& tensors) {
  json header;
  std::string data;
  for (const auto& [tensor_name, t] : tensors) {
    const auto* bytes = reinterpret_cast<const char*>(t.bytes().data());
    const std::size_t begin = data.size();
    if (!t.bytes().empty()) data.append(bytes, t.bytes().size());
    header[tensor_name] = {{"dtype", t.dtype() == DType::float64 ? "F64" : "F32"},
                           {"shape", t.shape()},
                           {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << data;
}

class EveryCase : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, EveryCase, testing::ValuesIn(case_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST_P(EveryCase, PassesAsTheFrameworkComputedIt) {
  const Report report = check({all_cases / GetParam()}, options({"derived", "telechat3", "torch"}));
  EXPECT_EQ(report.exit_status(), 0) << to_string(report.findings.front().id)
                                     << report.findings.front().reason;
  for (const Finding& f : report.findings) {
    EXPECT_FALSE(f.rule.empty());
    EXPECT_EQ(f.others.size(), 2u);
    EXPECT_EQ(f.others[0].verdict, Verdict::passed) << f.name;
    EXPECT_TRUE(f.count) << f.name;
  }
}

// What a kernel in `dtype` might return: golden values, and per element ten times the error that it may have.
struct Kernel {
  std::vector<NamedTensor> golden;
  std::vector<std::vector<double>> values, step;

  Kernel(const Case& c, DType dtype) : golden(compute_golden(*c.op, c.inputs, c.attributes, Level::fp64)) {
    const ErrorModel device{unit_roundoff(dtype), min_subnormal(dtype)};
    const auto bounds = compute_bound(*c.op, c.inputs, c.attributes, device);
    for (std::size_t t = 0; t < golden.size(); ++t) {
      values.push_back(golden[t].tensor.values());
      step.push_back(bounds[t].tensor.values());
      // The golden value's own bound, in float64, comes on top.
      const double twice = 1 + std::min(1.0, unit_roundoff(DType::float64) / unit_roundoff(dtype));
      for (double& s : step.back()) s *= 10 * twice;
      for (double& v : values.back()) v = round_to(dtype, v);
    }
  }

  // One element away from its golden value, by more than ten times the allowed error where rounding asks for
  // it.
  double moved(std::size_t t, std::size_t i, DType dtype) const {
    const double v = values[t][i];
    if (!std::isfinite(v)) return 0;
    const double away = round_to(dtype, v < 0 ? v - step[t][i] : v + step[t][i]);
    if (away != v) return away;
    return dtype == DType::float64
               ? std::nextafter(v, v < 0 ? -INFINITY : INFINITY)
               : static_cast<double>(std::nextafterf(static_cast<float>(v), v < 0 ? -INFINITY : INFINITY));
  }
};

void expect_every_element_to_matter(const fs::path& folder, DType dtype) {
  const Case c = load_case(folder);
  const Kernel kernel(c, dtype);
  const Scratch scratch;
  std::size_t longest = 0;
  for (const auto& values : kernel.values) longest = std::max(longest, values.size());
  CheckOptions o = options();
  o.actual = scratch.path();
  for (std::size_t i = 0; i < longest; ++i) {
    // The i-th element of every output at once: each output has a finding of its own.
    std::vector<double> moved;
    for (std::size_t t = 0; t < kernel.golden.size(); ++t) {
      std::vector<double> values = kernel.values[t];
      if (i < values.size()) values[i] = kernel.moved(t, i, dtype);
      moved.push_back(i < values.size() ? values[i] : 0);
      if (i > values.size()) continue;  // all of it golden, since one time ago
      write_npy(scratch.path() / (kernel.golden[t].name + ".npy"),
                Tensor::from_values(dtype, kernel.golden[t].tensor.shape(), values));
    }
    const Report report = check({folder}, o);
    ASSERT_EQ(report.exit_status(), 1) << i;
    for (const Finding& f : report.findings) {
      const auto output = std::ranges::find(kernel.golden, f.id.arg, &NamedTensor::name);
      ASSERT_NE(output, kernel.golden.end()) << f.name;
      const auto t = static_cast<std::size_t>(output - kernel.golden.begin());
      if (!is_float(output->tensor.dtype())) continue;
      if (i >= kernel.values[t].size()) {
        ASSERT_EQ(f.verdict, Verdict::passed) << f.name << ": " << f.reason;
        continue;
      }
      ASSERT_TRUE(f.metrics) << f.name << ": " << f.reason;
      ASSERT_EQ(f.verdict, Verdict::failed) << f.name << " [" << i << "]: " << f.rule;
      ASSERT_EQ(worst_element(*f.metrics), static_cast<std::int64_t>(i)) << f.name;
      ASSERT_EQ(f.actual_value, moved[t]) << f.name << " [" << i << "]";
      const double golden = kernel.golden[t].tensor.values()[i];
      ASSERT_TRUE(f.reference_value == golden || f.reference_value == round_to(dtype, golden) ||
                  std::isnan(golden))
          << f.name << " [" << i << "]";
      ASSERT_FALSE(f.rule.empty());
      ASSERT_FALSE(f.reason.empty());
      ASSERT_GT(f.ratio, 1);
    }
  }
}

TEST_P(EveryCase, FailsForAnyElementInFloat64) {
  expect_every_element_to_matter(all_cases / GetParam(), DType::float64);
}
TEST_P(EveryCase, FailsForAnyElementInFloat32) {
  expect_every_element_to_matter(all_cases / GetParam(), DType::float32);
}

TEST_P(EveryCase, PassesWithAllElementsAsFarOffAsTheyMayBe) {
  const Case c = load_case(all_cases / GetParam());
  const Kernel kernel(c, DType::float32);
  const Scratch scratch;
  for (std::size_t t = 0; t < kernel.golden.size(); ++t) {
    if (!is_float(kernel.golden[t].tensor.dtype())) {
      write_npy(scratch.path() / (kernel.golden[t].name + ".npy"), kernel.golden[t].tensor);
      continue;
    }
    std::vector<double> values = kernel.golden[t].tensor.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double allowed = std::isfinite(kernel.step[t][i]) ? 0.1 * kernel.step[t][i] : 0;
      const double sign = (i % 2 == 0) == (values[i] > 0) ? 1 : -1;
      const double off = round_to(DType::float32, values[i] + sign * 0.45 * allowed);
      // Where a unit in the last place is as much as is allowed, nothing but the nearest float32 will do.
      const bool nearest = allowed == 0 || std::abs(off - values[i]) > 0.9 * allowed;
      values[i] = nearest ? round_to(DType::float32, values[i]) : off;
    }
    write_npy(scratch.path() / (kernel.golden[t].name + ".npy"),
              Tensor::from_values(DType::float32, kernel.golden[t].tensor.shape(), values));
  }
  CheckOptions o = options();
  o.actual = scratch.path();
  for (const Finding& f : check({all_cases / GetParam()}, o).findings) {
    EXPECT_EQ(f.verdict, Verdict::passed) << f.name << ": " << f.reason;
  }
}

// ---- one small case: y = x w^T, gradients included, copied where it may be changed

class Check : public testing::Test {
 protected:
  Check() {
    fs::copy(all_cases / "matmul" / "trans_both", folder_);
    const Case c = load_case(folder_);
    golden_ = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
    std::ifstream file(folder_ / "case.json");
    json_ = json::parse(file);
  }
  void save() const { std::ofstream(folder_ / "case.json") << json_; }

  // The only finding of a case that is trouble as a whole.
  std::string trouble(const CheckOptions& o = options()) const {
    save();
    const Report report = check({folder_}, o);
    EXPECT_EQ(report.exit_status(), 2);
    EXPECT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings.front().verdict, Verdict::unreadable);
    const std::string why = report.findings.front().reason;
    EXPECT_THAT(why, Not(HasSubstr("\n")));
    return why;
  }
  static Verdict verdict(const Report& r, std::size_t i = 0) { return r.findings.at(i).verdict; }

  Scratch scratch_;
  fs::path folder_ = scratch_.path() / "case";
  fs::path actual_ = scratch_.path() / "actual";
  std::vector<NamedTensor> golden_;
  json json_;
};

TEST_F(Check, FindingsAreNamedAfterCaseAndOutput) {
  const Report report = check({folder_}, options());
  ASSERT_EQ(report.findings.size(), 3u);
  EXPECT_EQ(report.findings[0].name, "matmul/trans_both " + json_["outputs"][0]["name"].get<std::string>());
  EXPECT_EQ(report.verb, "check");
  EXPECT_EQ(report.reference, "golden, level fp64");
}

TEST_F(Check, ActualOutputsMayBeCalledLikeOutputsOrTheirFiles) {
  CheckOptions o = options();
  o.actual = actual_;
  for (const bool by_file : {false, true}) {
    for (const bool safetensors : {false, true}) {
      fs::remove_all(actual_);
      fs::create_directories(actual_);
      std::vector<NamedTensor> tensors;
      for (const json& output : json_["outputs"]) {
        const auto golden = std::ranges::find(golden_, output["name"].get<std::string>(), &NamedTensor::name);
        const std::string stem = fs::path(output["file"].get<std::string>()).stem();
        tensors.push_back({by_file ? stem : golden->name, golden->tensor});
      }
      if (safetensors) {
        write_safetensors(actual_ / "outputs.safetensors", tensors);
      } else {
        for (const auto& [name, t] : tensors) write_npy(actual_ / (name + ".npy"), t);
      }
      const Report report = check({folder_}, o);
      EXPECT_EQ(report.exit_status(), 0) << by_file << safetensors << report.findings[0].reason;
      EXPECT_EQ(report.actual, actual_.string());
      if (!safetensors) continue;
      o.actual = actual_ / "outputs.safetensors";
      EXPECT_EQ(check({folder_}, o).exit_status(), 0) << "the file itself";
      o.actual = actual_;
    }
  }
}

TEST_F(Check, AnOutputThatIsNotThereIsTroubleAndTheOthersGoOn) {
  fs::create_directories(actual_);
  for (std::size_t i = 1; i < golden_.size(); ++i)
    write_npy(actual_ / (golden_[i].name + ".npy"), golden_[i].tensor);
  CheckOptions o = options();
  o.actual = actual_;
  const Report report = check({folder_}, o);
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_EQ(report.count(Verdict::passed), 2);
  EXPECT_EQ(report.count(Verdict::unreadable), 1);
  EXPECT_THAT(report.findings[0].reason, HasSubstr("holds neither '" + golden_[0].name +
                                                   "' nor 'output_0'; expected the output under one of"));
}

TEST_F(Check, ActualFoldersOfSeveralCasesLieBelow) {
  CheckOptions o = options();
  o.actual = actual_;
  for (const char* below : {"matmul/trans_both", "case"}) {
    fs::remove_all(actual_);
    fs::create_directories(actual_ / below);
    for (const auto& [name, t] : golden_) write_npy(actual_ / below / (name + ".npy"), t);
    const Report both = check({folder_, folder_}, o);
    EXPECT_EQ(both.exit_status(), 0) << below;
    // The command to repeat names one case and the same folder.
    EXPECT_EQ(check({folder_}, o).exit_status(), 0) << below;
  }
  fs::remove_all(actual_);
  fs::create_directories(actual_);
  EXPECT_THAT(check({folder_, folder_}, o).findings[0].reason,
              HasSubstr("has no folder 'matmul/trans_both'"));
}

TEST_F(Check, NarrowOutputsMayBeOffByTheirStore) {
  fs::create_directories(actual_);
  CheckOptions o = options();
  o.actual = actual_ / "outputs.npz";
  const auto& [name, golden] = golden_[0];
  const Tensor narrow = Tensor::from_values(DType::float16, golden.shape(), golden.values());
  o.actual = actual_;
  o.only = "*" + name;
  write_npy(actual_ / (name + ".npy"), narrow);
  const Report stored = check({folder_}, o);
  EXPECT_EQ(stored.exit_status(), 0) << stored.findings[0].reason;
  EXPECT_THAT(stored.findings[0].rule, HasSubstr("in float32 arithmetic, stored as float16"));
  // Two float16 units off are too much.
  std::vector<double> values = narrow.values();
  values[5] *= 1 + 4 * unit_roundoff(DType::float16);
  write_npy(actual_ / (name + ".npy"), Tensor::from_values(DType::float16, golden.shape(), values));
  const Report off = check({folder_}, o);
  EXPECT_EQ(off.exit_status(), 1);
  EXPECT_EQ(worst_element(*off.findings[0].metrics), 5);
}

TEST_F(Check, ZerosNeverPass) {
  fs::create_directories(actual_);
  for (const auto& [name, t] : golden_)
    write_npy(actual_ / (name + ".npy"), Tensor(DType::float32, t.shape()));
  for (const char* policy : {"derived", "telechat3", "torch", "bitwise"}) {
    CheckOptions o = options({policy});
    o.actual = actual_;
    const Report report = check({folder_}, o);
    EXPECT_EQ(report.count(Verdict::passed), 0) << policy;
    EXPECT_EQ(report.exit_status(), 1) << policy;
  }
}

TEST_F(Check, OnlyTakesAGlobOverNames) {
  CheckOptions o = options();
  o.only = "*" + golden_[1].name;
  const Report report = check({folder_}, o);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].id.arg, golden_[1].name);
  o.only = "nothing";
  EXPECT_EQ(check({folder_}, o).exit_status(), 2);
}

TEST_F(Check, CopiesArePromisedBitForBit) {
  const fs::path embedding = scratch_.path() / "embedding";
  fs::copy(all_cases / "embedding" / "padding_idx", embedding);
  const Case c = load_case(embedding);
  const CaseOutput& y = *std::ranges::find(c.outputs, "y", &CaseOutput::name);
  std::vector<double> values = c.read(y).values();
  values[3] = std::nextafter(values[3], INFINITY);
  write_npy(embedding / y.file, Tensor::from_values(DType::float64, y.shape, values));
  const Report report = check({embedding}, options({"telechat3"}));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.first_failure()->rule, "embedding copies: every bit equal");
  EXPECT_EQ(worst_element(*report.first_failure()->metrics), 3);
}

// A layout of token ids, and bits under another dtype.
TEST_F(Check, IntegersAreMovedAndBitsViewed) {
  const auto write_case = [&](const char* op, const char* attributes, const Tensor& x, const Tensor& y) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_npy(folder_ / "x.npy", x);
    write_npy(folder_ / "y.npy", y);
    const auto entry = [](const char* tensor, const Tensor& t) {
      return json{{"name", tensor},
                  {"file", std::string(tensor) + ".npy"},
                  {"dtype", name(t.dtype())},
                  {"shape", t.shape()}};
    };
    json_ = {{"op", op},
             {"case", "small"},
             {"attributes", json::parse(attributes)},
             {"inputs", json::array({entry("x", x)})},
             {"outputs", json::array({entry("y", y)})}};
    save();
    return verdict(check({folder_}, options()));
  };
  const std::vector<double> ids = {1, 2, 3, -4}, swapped = {1, 3, 2, -4}, floats = {1, 2},
                            bits = {0x3f800000, 0x40000000};
  const auto tensor = [](DType dtype, Shape shape, const std::vector<double>& v) {
    return Tensor::from_values(dtype, std::move(shape), v);
  };
  const Tensor x = tensor(DType::int32, {2, 2}, ids);
  EXPECT_EQ(write_case("transpose", "{}", x, tensor(DType::int32, {2, 2}, swapped)), Verdict::passed);
  EXPECT_EQ(write_case("transpose", "{}", x, tensor(DType::int32, {2, 2}, ids)), Verdict::failed);
  EXPECT_EQ(write_case("transpose", "{}", x, tensor(DType::uint32, {2, 2}, swapped)),
            Verdict::not_comparable);
  const Tensor f = tensor(DType::float32, {2}, floats);
  EXPECT_EQ(write_case("bitcast", "{}", f, tensor(DType::int32, {2}, bits)), Verdict::passed);
  EXPECT_EQ(write_case("bitcast", "{}", f, tensor(DType::int32, {2}, floats)), Verdict::failed);
  EXPECT_EQ(write_case("bitcast", "{}", tensor(DType::int32, {2}, bits), f), Verdict::passed);
}

TEST_F(Check, RepeatNamesCaseOutputAndOptions) {
  CheckOptions o = options();
  o.actual = folder_;
  o.repeat = " --level report";
  const Report report = check({folder_}, o);
  EXPECT_EQ(report.findings[0].repeat, "assay check " + folder_.string() + " --actual " + folder_.string() +
                                           " --level report --only 'matmul/trans_both " + golden_[0].name +
                                           "'");
}

TEST_F(Check, TroubleInOneCaseDoesNotStopTheOthers) {
  const fs::path good = scratch_.path() / "good";
  fs::copy(folder_, good);
  fs::remove(folder_ / "input_0.npy");
  const Report report = check({folder_, good}, options());
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_EQ(report.count(Verdict::unreadable), 1);
  EXPECT_EQ(report.count(Verdict::passed), 3);
}

TEST_F(Check, UnknownOperatorsAndAttributes) {
  json_["op"] = "matmull";
  EXPECT_THAT(trouble(), HasSubstr("matmull"));
  json_["op"] = "matmul";
  json_["attributes"]["transpose_c"] = true;
  EXPECT_THAT(trouble(), HasSubstr("transpose_c"));
  json_["attributes"].erase("transpose_c");
  json_["attributes"]["transpose_a"] = "maybe";
  EXPECT_THAT(trouble(), HasSubstr("transpose_a"));
}

TEST_F(Check, DamagedCases) {
  std::ofstream(folder_ / "case.json") << "{";
  Report report = check({folder_}, options());
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_THAT(report.findings[0].reason, HasSubstr("case.json"));
  const json whole = json_;
  for (const char* key : {"op", "inputs", "outputs"}) {
    json_ = whole;
    json_.erase(key);
    EXPECT_THAT(trouble(), HasSubstr(key));
  }
  for (const char* key : {"name", "file", "dtype", "shape"}) {
    json_ = whole;
    json_["outputs"][0].erase(key);
    EXPECT_THAT(trouble(), HasSubstr(key));
  }
  json_ = whole;
  json_["outputs"] = json::array();
  EXPECT_THAT(trouble(), HasSubstr("lists no outputs; expected at least one"));
}

TEST_F(Check, InputsThatAreNotWhatIsDeclared) {
  const json whole = json_;
  json_["inputs"][0]["dtype"] = "float32";
  EXPECT_THAT(trouble(),
              AllOf(HasSubstr("input_0.npy"), HasSubstr("float64"), HasSubstr("expected float32")));
  json_ = whole;
  json_["inputs"][0]["shape"] = {1, 2};
  EXPECT_THAT(trouble(), AllOf(HasSubstr("input_0.npy"), HasSubstr("expected [1, 2]")));
  json_ = whole;
  json_["inputs"][0]["file"] = "input_9.npy";
  EXPECT_THAT(trouble(), HasSubstr("input_9.npy"));
  json_ = whole;
  json_["inputs"][0]["dtype"] = "float31";
  EXPECT_THAT(trouble(), HasSubstr("float31"));
  json_ = whole;
  json_["inputs"].erase(1);
  trouble();
}

TEST_F(Check, FilesOutsideTheFolderAreRefused) {
  const json whole = json_;
  for (const char* list : {"inputs", "outputs"}) {
    for (const std::string file : {"../case/input_0.npy", "/etc/passwd", "..", ""}) {
      json_ = whole;
      json_[list][0]["file"] = file;
      EXPECT_THAT(trouble(), HasSubstr("'" + file + "'")) << list;
    }
  }
}

TEST_F(Check, OutputsThatAreNotWhatIsDeclared) {
  const json whole = json_;
  const auto first = [&] {
    save();
    const Report report = check({folder_}, options());
    EXPECT_EQ(report.exit_status(), 2);
    EXPECT_EQ(report.findings[0].verdict, Verdict::unreadable);
    EXPECT_EQ(report.count(Verdict::passed), 2) << "the others are judged";
    return report.findings[0].reason;
  };
  json_["outputs"][0]["dtype"] = "float32";
  EXPECT_THAT(first(), AllOf(HasSubstr("output_0.npy"), HasSubstr("expected float32 as case.json declares")));
  json_ = whole;
  json_["outputs"][0]["shape"] = {1, 2};
  EXPECT_THAT(first(), AllOf(HasSubstr("output_0.npy"), HasSubstr("expected [1, 2] as case.json declares")));
  json_ = whole;
  json_["outputs"][0]["name"] = "z";
  EXPECT_THAT(first(), HasSubstr("makes no output 'z'"));
  json_ = whole;
  fs::remove(folder_ / "output_0.npy");
  EXPECT_THAT(first(), HasSubstr("output_0.npy"));
}

TEST_F(Check, AShapeThatIsNotTheOperatorsIsAFinding) {
  const auto& [name, golden] = golden_[0];
  fs::create_directories(actual_);
  write_npy(actual_ / (name + ".npy"), golden.reshaped({golden.size()}));
  CheckOptions o = options();
  o.actual = actual_;
  o.only = "*" + name;
  const Report report = check({folder_}, o);
  EXPECT_EQ(report.findings[0].verdict, Verdict::not_comparable);
  EXPECT_EQ(report.exit_status(), 2) << "nothing was compared";
}

TEST(FindCases, TakesACaseOrAFolderOfCases) {
  EXPECT_EQ(find_cases(all_cases / "matmul" / "trans_both").size(), 1u);
  const auto cases = find_cases(all_cases / "matmul");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_LT(cases[0], cases[1]);
  EXPECT_THROW(find_cases(fs::path(ASSAY_TEST_DATA) / "metrics"), Error);
  EXPECT_THROW(find_cases("/nowhere"), Error);
}

}  // namespace
}  // namespace assay
