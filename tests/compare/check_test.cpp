#include <algorithm>
#include <cmath>

#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"
#include "check_case.h"

namespace assay::check_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

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

TEST_F(Check, FindingsAreNamedAfterCaseAndOutput) {
  const Report report = check({folder_}, check_options());
  ASSERT_EQ(report.findings.size(), 3u);
  EXPECT_EQ(report.findings[0].name, "matmul/trans_both " + json_["outputs"][0]["name"].get<std::string>());
  EXPECT_EQ(report.verb, "check");
  EXPECT_EQ(report.reference, "golden, level fp64");
}

TEST_F(Check, ActualOutputsMayBeCalledLikeOutputsOrTheirFiles) {
  CheckOptions o = check_options();
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
  CheckOptions o = check_options();
  o.actual = actual_;
  const Report report = check({folder_}, o);
  EXPECT_EQ(report.exit_status(), 2);
  EXPECT_EQ(report.count(Verdict::passed), 2);
  EXPECT_EQ(report.count(Verdict::unreadable), 1);
  EXPECT_THAT(report.findings[0].reason, HasSubstr("holds neither '" + golden_[0].name +
                                                   "' nor 'output_0'; expected the output under one of"));
}

TEST_F(Check, ActualFoldersOfSeveralCasesLieBelow) {
  CheckOptions o = check_options();
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
  CheckOptions o = check_options();
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
    CheckOptions o = check_options({policy});
    o.actual = actual_;
    const Report report = check({folder_}, o);
    EXPECT_EQ(report.count(Verdict::passed), 0) << policy;
    EXPECT_EQ(report.exit_status(), 1) << policy;
  }
}

TEST_F(Check, OnlyTakesAGlobOverNames) {
  CheckOptions o = check_options();
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
  const Report report = check({embedding}, check_options({"telechat3"}));
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
    return check({folder_}, check_options()).findings.at(0).verdict;
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
  CheckOptions o = check_options();
  o.actual = folder_;
  o.repeat = " --level report";
  const Report report = check({folder_}, o);
  EXPECT_EQ(report.findings[0].repeat, "assay check " + folder_.string() + " --actual " + folder_.string() +
                                           " --level report --only 'matmul/trans_both " + golden_[0].name +
                                           "'");
}

TEST_F(Check, AShapeThatIsNotTheOperatorsIsAFinding) {
  const auto& [name, golden] = golden_[0];
  fs::create_directories(actual_);
  write_npy(actual_ / (name + ".npy"), golden.reshaped({golden.size()}));
  CheckOptions o = check_options();
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
}  // namespace assay::check_test
