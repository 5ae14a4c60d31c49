#include "assay/dumps/torch/pickle.h"

#include <gtest/gtest.h>

#include "assay/golden/error.h"

namespace assay::pickle_test {
namespace {

using namespace std::string_view_literals;

Pickle parse(std::string_view text) {
  return Pickle(std::as_bytes(std::span(text)), "p");
}

// pickle.dumps({"a": [1, -2, None]}, protocol=2) and protocol=4, as Python writes them.
TEST(Pickle, ReadsContainers) {
  for (const std::string_view text : {"\x80\x02}q\x00X\x01\x00\x00\x00"
                                      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffNes."sv,
                                      "\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01"
                                      "a\x94]\x94(K\x01J\xfe\xff\xff\xffNes."sv}) {
    const Pickle pickle = parse(text);
    const auto& dict = pickle.at(pickle.root());
    ASSERT_EQ(dict.kind, Pickle::Kind::dict);
    ASSERT_EQ(dict.items.size(), 2U);
    EXPECT_EQ(pickle.at(dict.items[0]).text, "a");
    const auto& list = pickle.at(dict.items[1]);
    ASSERT_EQ(list.items.size(), 3U);
    EXPECT_EQ(pickle.at(list.items[1]).integer, -2);
  }
}

// cos.system("true"): stays a description of itself.
TEST(Pickle, CallsNothing) {
  const Pickle pickle = parse("cos\nsystem\n(X\x04\x00\x00\x00truetR."sv);
  const auto& call = pickle.at(pickle.root());
  ASSERT_EQ(call.kind, Pickle::Kind::call);
  EXPECT_TRUE(pickle.is_global(call.items[0], "os", "system"));
}

// Pickles of the old .pt form stand one behind the other.
TEST(Pickle, SaysWhereItEnds) {
  EXPECT_EQ(parse("\x80\x02K\x07."
                  "\x80\x02N."sv)
                .size(),
            5U);
}

// A dataclass C(a=1) at protocol 2, then with the state of an object that has slots.
TEST(Pickle, KeepsTheStateOfAnObject) {
  for (const std::string_view text : {"\x80\x02"
                                      "cm\nC\n)\x81}X\x01\x00\x00\x00"
                                      "aK\x01sb."sv,
                                      "\x80\x02"
                                      "cm\nC\n)\x81N}X\x01\x00\x00\x00"
                                      "aK\x01s\x86"
                                      "b."sv}) {
    const Pickle pickle = parse(text);
    EXPECT_EQ(pickle.global_name(pickle.root()), "m.C");
    const auto a = pickle.attribute(pickle.root(), "a");
    ASSERT_TRUE(a);
    EXPECT_EQ(pickle.at(*a).integer, 1);
    EXPECT_FALSE(pickle.attribute(pickle.root(), "b"));
    EXPECT_FALSE(pickle.attribute(*a, "a"));
  }
}

TEST(Pickle, DamageIsAnError) {
  for (const std::string_view text : {""sv,
                                      "."sv,
                                      "N"sv,
                                      "NN."sv,
                                      "h\x05."sv,
                                      "t."sv,
                                      "a."sv,
                                      "]a."sv,
                                      "(."sv,
                                      "\x80\x09N."sv,
                                      "X\xff\xff\xff\xff"
                                      "a."sv,
                                      "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                                      "a."sv,
                                      "cos\nsystem"sv,
                                      "NNs."sv,
                                      "}(Nu."sv,
                                      "}Nb"sv,
                                      "\x93."sv,
                                      "I5\n."sv,
                                      "(0."sv,
                                      "\x8b\xff\xff\xff\xff."sv}) {
    EXPECT_THROW(parse(text), Error) << testing::PrintToString(text);
  }
}

// A list that holds itself, and lists nested a million deep.
TEST(Pickle, CirclesAndDepthAreHarmless) {
  EXPECT_NO_THROW(
      parse("]q\x00h\x00"
            "a."sv));
  std::string deep(1'000'000, ']');
  deep += std::string(999'999, 'a') + ".";
  EXPECT_NO_THROW(parse(deep));
}

}  // namespace
}  // namespace assay::pickle_test
