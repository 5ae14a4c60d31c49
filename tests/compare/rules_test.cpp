#include "assay/compare/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../dumps/scratch.h"
#include "assay/golden/error.h"

namespace assay::rules_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Rules rules(std::string_view toml) {
  const Scratch scratch;
  return Rules::load(scratch.write("rules.toml", toml));
}

TEST(Glob, StarIsAnyRunAndQuestionMarkIsOne) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("***", "abc"));
  EXPECT_TRUE(glob_match("*.experts.*.fc2.output", "layers.1.experts.17.fc2.output"));
  EXPECT_FALSE(glob_match("*.experts.*.fc2.output", "layers.1.experts.17.fc2.output.y"));
  EXPECT_FALSE(glob_match("*.experts.*.fc2", "experts.fc2"));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_FALSE(glob_match("?", ""));
  EXPECT_TRUE(glob_match("*ab", "aab"));
  EXPECT_TRUE(glob_match("a*b*c", "a1b2b3c"));
  EXPECT_FALSE(glob_match("a*b*c", "a1b2b3"));
  EXPECT_FALSE(glob_match("abc", "ab"));
  EXPECT_TRUE(glob_match("a*?", "a*")) << "a star in the text is a character";
  EXPECT_FALSE(glob_match("a.c", "abc")) << "no regular expression";
}

// Every pattern of up to 4 and text of up to 5 letters over {a, b}, against a definition by recursion.
bool by_definition(std::string_view p, std::string_view t) {
  if (p.empty()) return t.empty();
  if (p[0] == '*') return by_definition(p.substr(1), t) || (!t.empty() && by_definition(p, t.substr(1)));
  return !t.empty() && (p[0] == '?' || p[0] == t[0]) && by_definition(p.substr(1), t.substr(1));
}

std::vector<std::string> words(std::string_view letters, std::size_t longest) {
  std::vector<std::string> list = {""};
  for (std::size_t begin = 0, length = 0; length < longest; ++length) {
    const std::size_t end = list.size();
    for (; begin < end; ++begin) {
      for (const char c : letters) list.push_back(list[begin] + c);
    }
  }
  return list;
}

TEST(Glob, AgreesWithItsDefinition) {
  for (const std::string& p : words("ab*?", 4)) {
    for (const std::string& t : words("ab", 5))
      EXPECT_EQ(glob_match(p, t), by_definition(p, t)) << p << ' ' << t;
  }
}

TEST(Glob, TakesNoExponentialTime) {
  const std::string text(20'000, 'a');
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*b", text));
}

std::string renamed(const Rules& rules, const std::string& module) {
  Identity id;
  id.module = module;
  return rules.renamed(id).module;
}

TEST(Rename, IsARegularExpressionAndAppliesInOrder) {
  const Rules r = rules(R"(
[[rename]]
from = '^module\.module\.(.*)$'
to   = '$1'
[[rename]]
from = 'self_attention'
to   = 'attn'
)");
  EXPECT_EQ(renamed(r, "module.module.layers.0.self_attention.qkv"), "layers.0.attn.qkv");
  EXPECT_EQ(renamed(r, "other"), "other");
  EXPECT_THAT(r.unused(), IsEmpty());
}

TEST(Rename, MayRemove) {
  EXPECT_EQ(renamed(rules("[[rename]]\nfrom='^model\\.'\nto=''"), "model.x"), "x");
}

// An engine that tries one way after the other takes 2^n steps for the first, and a stack frame a character.
TEST(Rename, TakesLinearTimeAndNoStack) {
  const std::string name = "m." + std::string(1'000'000, 'x');
  EXPECT_EQ(renamed(rules("[[rename]]\nfrom='^m\\.(x+x+)+y$'\nto=''"), name), name);
  EXPECT_EQ(renamed(rules("[[rename]]\nfrom='^m\\.(.*)$'\nto='$1'"), name), name.substr(2));
}

TEST(Rename, ReplacesAsECMAScriptDoes) {
  const auto replaced = [](const std::string& from, const std::string& to, const char* name) {
    return renamed(rules("[[rename]]\nfrom='" + from + "'\nto='" + to + "'"), name);
  };
  EXPECT_EQ(replaced("(\\d)(\\d)", "$2$1", "a12.b34"), "a21.b43");
  EXPECT_EQ(replaced("b+", "<$&$0>", "abba"), "a<bbbb>a");
  EXPECT_EQ(replaced("b", "$$1\\1$", "abc"), "a$1\\1$c");
  EXPECT_EQ(replaced("a.z", "-", "a\xffz"), "-") << "any byte";
}

TEST(Rules, TheFirstThatMatchesAnyPathHolds) {
  const Rules r = rules(R"(
[[count]]
match = 'a.*'
count = 5
[[count]]
match = '*.output'
count = 0
[[tolerance]]
match = '*.router.*'
policy = 'bitwise'
[[ignore]]
match = '*.rng_state'
reason = 'not numeric'
)");
  const auto count = r.count_of({"b.output.y", "b.output", "b"});
  ASSERT_TRUE(count);
  EXPECT_EQ(count->count, 0);
  EXPECT_EQ(count->source, "rules.toml, [[count]] 2");
  EXPECT_EQ(r.count_of({"a.output.y", "a.output", "a"})->count, 5);
  EXPECT_EQ(r.count_of({"b"}), std::nullopt);
  ASSERT_NE(r.policy_of({"l.router.x"}), nullptr);
  EXPECT_EQ(r.policy_of({"l.router.x"})->name, "bitwise");
  EXPECT_EQ(r.policy_of({"router.x"}), nullptr);
  EXPECT_EQ(r.ignored({"g.rng_state"}), "rules.toml, [[ignore]] 1: not numeric");
  EXPECT_EQ(r.ignored({"g"}), std::nullopt);
}

TEST(Rules, UnusedOnesAreNamed) {
  const Rules r = rules(R"(
[[rename]]
from = '^x$'
to   = 'y'
[[count]]
match = 'a'
count = 5
[[count]]
match = 'tpyo'
count = 5
[[ignore]]
match = 'c'
reason = 'r'
)");
  EXPECT_EQ(renamed(r, "z"), "z");
  EXPECT_TRUE(r.count_of({"a"}));
  EXPECT_THAT(r.unused(), ElementsAre("rules.toml, [[rename]] 1 ('^x$')", "rules.toml, [[count]] 2 ('tpyo')",
                                      "rules.toml, [[ignore]] 1 ('c')"));
}

TEST(Rules, NoneAreFine) {
  EXPECT_THAT(rules("").unused(), IsEmpty());
  EXPECT_EQ(renamed(Rules(), "x"), "x");
}

struct Broken {
  const char* name;
  const char* toml;
  const char* says;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}
class BrokenRules : public testing::TestWithParam<Broken> {};

TEST_P(BrokenRules, AreOneClearError) {
  try {
    rules(GetParam().toml);
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("rules.toml"));
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
    EXPECT_THAT(e.what(), Not(HasSubstr("\n")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenRules,
    testing::Values(
        Broken{"no_toml", "[[count]\n", "rules.toml:1"},
        Broken{"unknown_kind", "[[ingore]]\nmatch='x'", "'ingore' is no kind of rule"},
        Broken{"table_for_list", "[ignore]\nmatch='x'\nreason='y'", "expected [[rename]]"},
        Broken{"value_for_list", "ignore = 3", "'ignore' is no kind of rule"},
        Broken{"no_match", "[[ignore]]\nreason='y'", "[[ignore]] 1: 'match' is missing"},
        Broken{"no_reason", "[[ignore]]\nmatch='x'", "'reason' is missing"},
        Broken{"empty_reason", "[[ignore]]\nmatch='x'\nreason=''", "'reason' is missing"},
        Broken{"no_from", "[[rename]]\nto='x'", "'from' is missing"},
        Broken{"no_to", "[[rename]]\nfrom='x'", "'to' is missing"},
        Broken{"to_is_no_text", "[[rename]]\nfrom='x'\nto=5", "'to' is missing"},
        Broken{"regex", "[[rename]]\nfrom='('\nto='x'", "no regular expression in the syntax of RE2"},
        Broken{"no_count", "[[count]]\nmatch='x'", "'count' is missing"},
        Broken{"negative_count", "[[count]]\nmatch='x'\ncount=-1", "expected an integer >= 0"},
        Broken{"fraction", "[[count]]\nmatch='x'\ncount=1.5", "expected an integer >= 0"},
        Broken{"second_of_two", "[[count]]\nmatch='x'\ncount=1\n[[count]]\nmatch='x'", "[[count]] 2"},
        Broken{"no_policy", "[[tolerance]]\nmatch='x'", "'policy' is missing"},
        Broken{"unknown_policy", "[[tolerance]]\nmatch='x'\npolicy='bitwsie'",
               "there is no tolerance policy 'bitwsie'"},
        Broken{"unknown_key", "[[ignore]]\nmatch='x'\nreason='y'\nmtach='z'", "'mtach'"},
        Broken{"nameless", "[[ignore]]\nmatch='x'\nreason='y'\n[[\n", ":4: a table without a name"},
        Broken{"layout", "[[layout]]\nmatch='x'", "[[layout]]"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Renames, BrokenRules,
                         testing::Values(Broken{"lookahead", "[[rename]]\nfrom='a(?!b)'\nto=''", "(?!"},
                                         Broken{"group", "[[rename]]\nfrom='(a)b'\nto='$2'",
                                                "expected $0 to $1"}),
                         [](const auto& test) { return test.param.name; });

TEST(Rules, AFileThatIsNotThereIsOneClearError) {
  EXPECT_THROW(Rules::load("/nowhere/rules.toml"), Error);
}

}  // namespace
}  // namespace assay::rules_test
