#include "check_case.h"

// Cases that are not what case.json declares.
namespace assay::check_errors_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST_F(Check, TroubleInOneCaseDoesNotStopTheOthers) {
  const fs::path good = scratch_.path() / "good";
  fs::copy(folder_, good);
  fs::remove(folder_ / "input_0.npy");
  const Report report = check({folder_, good}, check_options());
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
  Report report = check({folder_}, check_options());
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
    const Report report = check({folder_}, check_options());
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

}  // namespace
}  // namespace assay::check_errors_test
