// Vocabularies, merges and special tokens of two folders.
#include "assay/config/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"
#include "given.h"

namespace assay::config::tokenizer_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(TokenizerFiles, IdsMergesAndSpecialTokensAreCompared) {
  const Comparison c = compare(open_side(sample("tokenizer")), open_side(sample("tokenizer_other")));
  ASSERT_NE(find_row(c, "tokenizer.ids"), nullptr);
  const Row& ids = *find_row(c, "tokenizer.ids");
  EXPECT_EQ(ids.a.value, "7 tokens");
  EXPECT_EQ(ids.does,
            "tokens with other ids: 2 ('a' 2 | 3, 'b' 3 | 2); only in A: 1 ('ab' 5); only in B: 1 ('bc' 5)");
  EXPECT_EQ(find_row(c, "tokenizer.normalizer")->effect, Effect::unknown);
  EXPECT_THAT(find_row(c, "tokenizer.merges")->does, HasSubstr("first at merge 0: 'a b' | 'b c'"));
  EXPECT_EQ(find_row(c, "tokenizer.pad_token")->a.value, "'<pad>' (0)");
  EXPECT_EQ(find_row(c, "tokenizer.pad_token")->b.value, "'<eos>' (1)");
  EXPECT_EQ(find_row(c, "tokenizer.eos_token"), nullptr);
  EXPECT_TRUE(c.differs());
}

TEST(TokenizerFiles, AFolderAgreesWithItself) {
  for (const char* name : {"tokenizer", "tokenizer_other"}) {
    const Comparison c = compare(open_side(sample(name)), open_side(sample(name)));
    EXPECT_THAT(c.rows, IsEmpty());
    EXPECT_GE(c.equal, 4U);
  }
}

TEST(TokenizerFiles, TheSameTokensInAnotherFileAgree) {
  const Scratch folder;
  folder.write("vocab.json", R"({"<pad>": 0, "<eos>": 1, "a": 2, "b": 3, "c": 4, "ab": 5, "abc": 6})");
  folder.write("merges.txt", "#version: 0.2\r\na b\r\nab c\r\n");
  const Comparison c = compare(open_side(sample("tokenizer")), open_side(folder.path()));
  EXPECT_EQ(find_row(c, "tokenizer.ids"), nullptr);
  EXPECT_EQ(find_row(c, "tokenizer.merges"), nullptr);
}

TEST(TokenizerFiles, OfSentencePieceTheBitsAreCompared) {
  const Scratch folder;
  folder.write("a/tokenizer.model", std::string("\0\1piece", 7));
  folder.write("b/tokenizer.model", std::string("\0\1piece", 7));
  folder.write("c/tokenizer.model", std::string("\0\2piece", 7));
  const auto differs = [&](const char* x, const char* y) {
    return compare(open_side(folder.path() / x), open_side(folder.path() / y)).differs();
  };
  EXPECT_FALSE(differs("a", "b"));
  EXPECT_TRUE(differs("a", "c"));
}

TEST(TokenizerFiles, WhatIsNoVocabularyIsRefused) {
  const Scratch folder;
  EXPECT_THAT([&] { open_side(folder.write("vocab.json", R"({"a": -1})")); },
              ThrowsMessage<Error>(HasSubstr("has the id -1; expected 0 or more")));
  EXPECT_THAT([&] { open_side(folder.write("vocab.json", R"({"a": "x"})")); },
              ThrowsMessage<Error>(HasSubstr("expected an integer")));
  EXPECT_THAT(
      [&] {
        open_side(
            folder.write("tokenizer.json",
                         R"({"model": {"vocab": {"a": 1}}, "added_tokens": [{"content": "a", "id": 2}]})"));
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("has the id 2, and 1"), HasSubstr("tokenizer.json"))));
}

}  // namespace
}  // namespace assay::config::tokenizer_test
