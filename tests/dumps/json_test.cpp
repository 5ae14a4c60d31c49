#include "assay/dumps/io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "assay/golden/error.h"

namespace assay::json_test {
namespace {

TEST(Json, KeepsTheOrderOfKeys) {
  const std::string text = R"({"b":1,"a":[true,null,"x\"\u00e9"],"c":{"d":2.5}})";
  EXPECT_EQ(parse_json(text, "t").object("t")[0].first, "b");
  EXPECT_EQ(parse_json(R"({"b":1,"a":[true,null,"\"y"],"c":{"d":2.5},"e":{},"f":[]})", "t").text(),
            R"({"b":1,"a":[true,null,"\"y"],"c":{"d":2.5},"e":{},"f":[]})");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "{", "{\"a\":1,}", "[1] 2", "{\"a\":1,\"a\":2}", "NaN", "\"\xff\"", "{'a':1}"}) {
    EXPECT_THROW(parse_json(text, "t"), Error) << text;
  }
  std::string many = "{\"k\":0";
  for (int i = 0; i < 100; ++i) many += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_NO_THROW(parse_json(many + "}", "t"));
  EXPECT_THROW(parse_json(many + ",\"k57\":0}", "t"), Error);
}

TEST(Json, DepthIsBounded) {
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "t"));
  EXPECT_THROW(parse_json(std::string(65, '[') + std::string(65, ']'), "t"), Error);
  EXPECT_THROW(parse_json(std::string(1'000'000, '['), "t"), Error);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THROW(parse_json(objects, "t"), Error);
}

TEST(Json, ReadsPythonNumbersOutsideStringsOnly) {
  const std::string text = R"({"a": NaN, "b": [Infinity, -Infinity, -1], "NaN \" Infinity": "-Infinity"})";
  EXPECT_THROW(parse_json(text, "t"), Error);
  const Json json = parse_json(text, "t", JsonNumbers::python);
  EXPECT_EQ(json.at("NaN \" Infinity", "t").string("t"), "-Infinity");
  EXPECT_EQ(json.at("b", "t").array("t")[2].integer("t"), -1);
  EXPECT_TRUE(std::isnan(json.at("a", "t").number().value()));
  EXPECT_EQ(json.at("b", "t").array("t")[0].number(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(json.at("b", "t").array("t")[1].number(), -std::numeric_limits<double>::infinity());
  for (const char* no : {"{NaN: 1}", "[NaNN]", "[-NaN]", "[Infinit]", "[+Infinity]", "nan"})
    EXPECT_THROW(parse_json(no, "t", JsonNumbers::python), Error) << no;
}

TEST(Json, NumbersAreAlsoBooleansAndNothingElse) {
  const Json json = parse_json(R"([true, 2, 2.5, null, "3", [], {}])", "t");
  const auto& items = json.array("t");
  EXPECT_EQ(items[0].number(), 1);
  EXPECT_EQ(items[1].number(), 2);
  EXPECT_EQ(items[2].number(), 2.5);
  for (std::size_t i = 3; i < items.size(); ++i) EXPECT_EQ(items[i].number(), std::nullopt);
}

TEST(Json, AccessorsNameThePlaceAndTheKind) {
  const Json json =
      parse_json(R"({"shape":[2,-1],"big":[4294967296,4294967296,4294967296],"x":"y","f":1.5})", "t");
  EXPECT_THROW(json.at("absent", "t"), Error);
  EXPECT_THROW(json.at("shape", "t").shape("t"), Error);
  EXPECT_THROW(json.at("big", "t").shape("t"), Error);
  EXPECT_THROW(json.at("f", "t").integer("t"), Error);
  try {
    json.at("x", "t").integer("file: line 3: x");
    FAIL();
  } catch (const Error& problem) {
    EXPECT_STREQ(problem.what(), "file: line 3: x is a string, expected an integer");
  }
}

}  // namespace
}  // namespace assay::json_test
