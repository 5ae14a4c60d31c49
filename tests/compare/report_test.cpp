#include "assay/compare/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "assay/compare/diff.h"
#include "memory_dump.h"

namespace assay {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// One of each: passed, failed, NaN, other shape, missing on both sides, ignored, unreadable.
Report sample() {
  MemoryDump a("actual"), r("reference");
  const auto add = [&](const char* module, Tensor actual, Tensor reference) {
    a.add(module, std::move(actual));
    r.add(module, std::move(reference));
  };
  add("good", float32({1, 2}), float32({1, 2}));
  add("bad, \"really\"", float32({1, 2, 3.5}), float32({1, 2, 3}));
  add("nan", float32({nan, 2}), float32({1, 2}));
  add("shape", float32({1, 2}), float32({1}));
  add("broken", float32({1}), float32({1}));
  a.damage("broken");
  r.add("gone", float32({1}));
  a.add("new", float32({1}));
  DiffOptions options;
  options.policies = {load_policy("telechat3"), load_policy("torch")};
  options.repeat = "assay diff actual reference";
  Report report = diff(a, r, options);
  report.findings.push_back({});
  report.findings.back().name = report.findings.back().id.module = "skipped";
  report.findings.back().verdict = Verdict::ignored;
  report.findings.back().reason = "rules.toml, [[ignore]] 1: not numeric";
  return report;
}

// Everything a file name or a tensor name may do to a terminal, a browser, a spreadsheet or a parser.
const std::string hostile[] = {
    "=cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(1)",
    "\tTab",
    "esc\x1b[31mred\x1b[0m",
    "bell\a\b\x7f",
    "two\nlines\r\n| x |",
    "nul" + std::string(1, '\0') + "byte",
    "<script>alert(1)</script>",
    "</testcase>&amp;&#x1b;]]>",
    "\"quoted\", 'comma'",
    "`code` **bold** [link](http://x) ~~gone~~ # !",
    "<!-- | --> $x^2$ @team",
    "bidi\xe2\x80\xae\xe2\x81\xa6hidden\xe2\x80\x8b",
    "alm\xd8\x9c c1\xc2\x9b"
    "31m shy\xc2\xad",
    "bad utf8 \xff\xfe \xc3( \xe2\x82 \xed\xa0\x80 \xf4\x90\x80\x80",
    "noncharacters \xef\xbf\xbe \xef\xbf\xbf tag \xf3\xa0\x81\x81",
    "plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9",
    std::string(5000, 'x'),
};

Report hostile_report() {
  MemoryDump a("a\x1b[2J<b>"), r("r|\xe2\x80\xae");
  for (const std::string& name : hostile) {
    a.add(name, float32({1, 2}));
    r.add(name, float32({1, 9}));
  }
  a.notes = {"note \x1b[5m <i>\n| |"};
  DiffOptions options;
  Policy named = load_policy("telechat3"), other = named;
  other.name = "policy\x1b[31m";
  options.policies = {named, other};
  options.repeat = "assay diff a r";
  Report report = diff(a, r, options);
  for (Finding& f : report.findings) f.notes.push_back("note of " + f.name);
  return report;
}

bool has_control_characters(std::string_view text, std::string_view allowed) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 || byte == 0x7f) && allowed.find(c) == std::string_view::npos) return true;
  }
  return false;
}
bool has_misleading_marks(std::string_view text) {
  for (const char* mark : {"\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\x8b", "\xd8\x9c", "\xc2\x9b", "\xc2\xad",
                           "\xef\xbf\xbe", "\xef\xbf\xbf", "\xf3\xa0\x81\x81", "\xff", "\xed\xa0\x80"}) {
    if (text.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

TEST(Printable, EscapesWhatMisleadsAndKeepsTheRest) {
  EXPECT_EQ(printable("plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9 \\x1b"),
            "plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9 \\x1b");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable(std::string_view("\0\n\t\x7f", 4)), "\\x00\\x0a\\x09\\x7f");
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");
  for (const std::string& name : hostile) {
    EXPECT_FALSE(has_control_characters(printable(name), "")) << name;
    EXPECT_FALSE(has_misleading_marks(printable(name))) << name;
  }
}

TEST(Printable, GroupsThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Printable, ValuesHaveTheFewestDigitsThatReadBack) {
  EXPECT_EQ(format_value(DType::float32, static_cast<double>(0.1f)), "0.1");
  EXPECT_EQ(format_value(DType::float64, 0.1), "0.1");
  EXPECT_EQ(format_value(DType::float64, static_cast<double>(0.1f)), "0.10000000149011612");
  EXPECT_EQ(format_value(DType::bfloat16, 0.10009765625), "0.100097656");
  EXPECT_EQ(format_value(DType::int64, -5), "-5");
  EXPECT_EQ(format_value(DType::float32, nan), "nan");
  EXPECT_EQ(format_value(DType::float32, -infinity), "-inf");
}

TEST(Printable, ShellWordsReadBack) {
  EXPECT_EQ(shell_quoted("plain_1.5/x=y"), "plain_1.5/x=y");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's $x"), "'it'\\''s $x'");
}

// ---- text

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Text, BeginsWithTheVerdictAndEndsWithTheCounts) {
  const auto lines = lines_of(to_text(sample(), {}));
  EXPECT_EQ(lines.front(),
            "TROUBLE  2 failed, 1 not comparable, 1 missing actual, 1 missing reference, 1 unreadable: "
            "actual against "
            "reference");
  EXPECT_EQ(lines.back(), "3 compared: 1 passed, 2 failed, 0 inherited; 4 not compared; 1 ignored by rule");
}

TEST(Text, ShowsTheFirstFailureInFull) {
  const std::string text = to_text(sample(), {});
  EXPECT_THAT(text, HasSubstr("first in execution order: bad, \"really\"\n"));
  EXPECT_THAT(text, HasSubstr("  tensor    float32 [3]\n"));
  EXPECT_THAT(text, HasSubstr("  worst     [2]  actual 3.5  reference 3\n"));
  EXPECT_THAT(text, HasSubstr("max abs 0.5 at [2]"));
  EXPECT_THAT(text, HasSubstr("  rule      telechat3 float32"));
  EXPECT_THAT(text, HasSubstr("  also      torch: failed, error/allowed"));
  EXPECT_THAT(text, HasSubstr("  repeat    assay diff actual reference --only 'bad, \"really\"'\n"));
  EXPECT_THAT(text, HasSubstr("ignored: 1 tensors by rules.toml, [[ignore]] 1: not numeric"));
}

TEST(Text, FitsItsWidth) {
  for (const int width : {80, 100}) {
    TextStyle style;
    style.width = width;
    for (const std::string& line : lines_of(to_text(sample(), style))) {
      if (line.starts_with("  repeat") || line.starts_with("TROUBLE")) continue;  // to be copied; paths
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
  }
}

TEST(Text, APassIsOneLineAndItsRules) {
  MemoryDump a("a");
  a.add("x", float32({1}));
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  const std::string text = to_text(diff(a, a, options), {});
  EXPECT_THAT(text, StartsWith("PASS  1 tensors of a agree with a\n"));
  EXPECT_THAT(text, Not(HasSubstr("first in execution order")));
  EXPECT_THAT(text, EndsWith("1 compared: 1 passed, 0 failed, 0 inherited; 0 not compared\n"));
}

TEST(Text, NothingComparedIsNoPass) {
  Report report;
  report.verb = "diff";
  EXPECT_THAT(to_text(report, {}), StartsWith("TROUBLE  nothing was compared"));
}

TEST(Text, LayersFoldIntoOneLine) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.clear();
  for (int layer = 0; layer < 40; ++layer) {
    report.findings.push_back(failed);
    report.findings.back().name = "layers." + std::to_string(layer) + ".norm";
  }
  const std::string text = to_text(report, {});
  EXPECT_THAT(text, HasSubstr("layers.*.norm"));
  EXPECT_LE(lines_of(text).size(), 24u);
  TextStyle all;
  all.all = true;
  EXPECT_THAT(to_text(report, all), HasSubstr("layers.39.norm"));
  EXPECT_THAT(to_text(report, all), Not(HasSubstr("layers.*.norm")));
}

TEST(Text, ManyLinesAreCutAndSaySo) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.clear();
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    report.findings.push_back(failed);
    report.findings.back().name = std::string("module_") + letter;
  }
  EXPECT_THAT(to_text(report, {}), HasSubstr("and 14 more lines: --all shows them"));
}

TEST(Text, HasEscapeCodesOnlyInColour) {
  EXPECT_THAT(to_text(sample(), {}), Not(HasSubstr("\x1b")));
  TextStyle style;
  style.color = true;
  EXPECT_THAT(to_text(sample(), style), HasSubstr("\x1b[1;31mTROUBLE\x1b[0m"));
  EXPECT_THAT(to_text(sample(), style), EndsWith("1 ignored by rule\n"));
}

TEST(Text, DisarmsHostileNames) {
  TextStyle all;
  all.all = true;
  const std::string text = to_text(hostile_report(), all);
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
}

// ---- JSON

TEST(JsonReport, HasTheCountsAndTheFindings) {
  const json j = json::parse(to_json(sample()));
  EXPECT_EQ(j["schema"], "report/1");
  EXPECT_EQ(j["verb"], "diff");
  EXPECT_EQ(j["exit_status"], 2);
  EXPECT_EQ(j["counts"]["passed"], 1);
  EXPECT_EQ(j["counts"]["failed"], 2);
  EXPECT_EQ(j["counts"]["compared"], 3);
  EXPECT_EQ(j["counts"]["not compared"], 4);
  EXPECT_EQ(j["counts"]["ignored"], 1);
  EXPECT_EQ(j["policies"], json({"telechat3", "torch"}));
  EXPECT_EQ(j["first_failure"], "bad, \"really\"");
  ASSERT_EQ(j["findings"].size(), 8u);
  const json& bad = j["findings"][1];
  EXPECT_EQ(bad["verdict"], "failed");
  EXPECT_EQ(bad["shape"], json({3}));
  EXPECT_EQ(bad["worst_index"], json({2}));
  EXPECT_EQ(bad["actual_value"], 3.5);
  EXPECT_EQ(bad["reference_value"], 3.0);
  EXPECT_EQ(bad["metrics"]["max_abs"], 0.5);
  EXPECT_EQ(bad["metrics"]["ulp_histogram_log2"]["0"], 2);
  EXPECT_EQ(bad["other_policies"][0]["policy"], "torch");
  const json& special = j["findings"][2];
  EXPECT_EQ(special["actual_value"], "nan");
  EXPECT_EQ(special["error_over_allowed"], "inf");
  EXPECT_EQ(special["required_tolerance"], "nan");
  EXPECT_EQ(special["worst_index"], json({0}));
  EXPECT_FALSE(j["findings"][3].contains("metrics"));
}

TEST(JsonReport, KeepsNamesAndPrintsNoControlCharacters) {
  const std::string text = to_json(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  const json j = json::parse(text);
  for (std::size_t i = 0; i < std::size(hostile); ++i) {
    if (hostile[i].starts_with("bad utf8")) continue;  // JSON has no way to say these bytes
    EXPECT_EQ(j["findings"][i]["name"], hostile[i]);
  }
}

// ---- CSV

// RFC 4180, with records that end in CR LF.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows = {{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        rows.back().back() += text[++i];
      } else if (text[i] == '"') {
        quoted = false;
      } else {
        rows.back().back() += text[i];
      }
    } else if (text[i] == '"' && rows.back().back().empty()) {
      quoted = true;
    } else if (text[i] == ',') {
      rows.back().emplace_back();
    } else if (text.compare(i, 2, "\r\n") == 0) {
      rows.push_back({""});
      ++i;
    } else {
      rows.back().back() += text[i];
    }
  }
  EXPECT_EQ(rows.back(), std::vector<std::string>{""}) << "ends with a line end";
  rows.pop_back();
  return rows;
}

std::string cell(const std::vector<std::vector<std::string>>& rows, std::size_t row,
                 std::string_view column) {
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    if (rows[0][i] == column) return rows.at(row).at(i);
  }
  return "no column " + std::string(column);
}

TEST(Csv, HasOneFullRowPerTensor) {
  const auto rows = parse_csv(to_csv(sample()));
  ASSERT_EQ(rows.size(), 9u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), 26u) << row.front();
  EXPECT_EQ(cell(rows, 2, "name"), "bad, \"really\"");
  EXPECT_EQ(cell(rows, 2, "verdict"), "failed");
  EXPECT_EQ(cell(rows, 2, "shape"), "[3]");
  EXPECT_EQ(cell(rows, 2, "max_abs"), "0.5");
  EXPECT_EQ(cell(rows, 2, "worst_index"), "[2]");
  EXPECT_EQ(cell(rows, 2, "actual_value"), "3.5");
  EXPECT_EQ(cell(rows, 2, "reference_value"), "3");
  EXPECT_EQ(cell(rows, 4, "verdict"), "not comparable");
  EXPECT_EQ(cell(rows, 4, "max_abs"), "");
  EXPECT_EQ(cell(rows, 4, "reason"), "shape [2] against [1]");
  EXPECT_EQ(cell(rows, 8, "reason"), "rules.toml, [[ignore]] 1: not numeric");
}

TEST(Csv, DisarmsFormulas) {
  const std::string text = to_csv(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\r\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  const auto rows = parse_csv(text);
  ASSERT_EQ(rows.size(), 1 + std::size(hostile));
  for (const auto& row : rows) {
    EXPECT_EQ(row.size(), 26u);
    for (const std::string& text_cell : {row[0], row[5], row[24], row[25]}) {
      EXPECT_THAT(text_cell, Not(testing::MatchesRegex("[=+@-].*"))) << text_cell;
    }
  }
  EXPECT_EQ(rows[1][0], "'=cmd|' /C calc'!A0");
}

// ---- JUnit (that it is well-formed, tests/assay asks Python's parser)

std::vector<std::string> attributes(const std::string& xml, const std::string& name) {
  std::vector<std::string> values;
  const std::string begin = " " + name + "=\"";
  for (std::size_t at = xml.find(begin); at != std::string::npos; at = xml.find(begin, at)) {
    at += begin.size();
    values.push_back(xml.substr(at, xml.find('"', at) - at));
  }
  return values;
}

std::size_t occurrences(const std::string& text, const std::string& of) {
  std::size_t count = 0;
  for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

TEST(Junit, CountsFailuresErrorsAndSkipped) {
  const std::string xml = to_junit(sample());
  EXPECT_THAT(xml, StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "));
  EXPECT_THAT(xml, HasSubstr("tests=\"8\" failures=\"5\" errors=\"1\" skipped=\"1\""));
  EXPECT_EQ(occurrences(xml, "<failure "), 5u);
  EXPECT_EQ(occurrences(xml, "<error "), 1u);
  EXPECT_EQ(occurrences(xml, "<skipped "), 1u);
  EXPECT_THAT(
      xml, HasSubstr("<failure type=\"failed\" message=\"bad, &quot;really&quot;: 1 of 3 elements outside"));
  EXPECT_THAT(xml, HasSubstr("repeat: assay diff actual reference --only 'bad, &quot;really&quot;'"));
}

TEST(Junit, TestCasesAreStepsPhasesAndModulesAndUnique) {
  Report report;
  report.verb = "diff";
  for (const std::int64_t step : {0, 1}) {
    for (const Phase phase : {Phase::none, Phase::forward, Phase::backward}) {
      for (const char* module : {"a", "b", "step 1", "\x1b", "\\x1b"}) {
        for (const char* slot : {"input", "output"}) {
          Finding f;
          f.id = {step, 0, phase, module, slot, "", 0};
          f.name = to_string(f.id);
          report.findings.push_back(f);
        }
      }
    }
  }
  const std::string xml = to_junit(report);
  const auto classes = attributes(xml, "classname"), names = attributes(xml, "name");
  ASSERT_EQ(classes.size(), 30u);
  ASSERT_EQ(names.size(), 31u) << "one is the suite's";
  std::set<std::string> unique;
  for (std::size_t i = 0; i < classes.size(); ++i) unique.insert(classes[i] + "\n" + names[i + 1]);
  EXPECT_EQ(unique.size(), 30u);
}

TEST(Junit, ListsAtMostFiftyFailuresOfAModule) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.assign(53, failed);
  const std::string xml = to_junit(report);
  EXPECT_EQ(occurrences(xml, "\nfailed: "), 49u);  // and one behind the tag
  EXPECT_THAT(xml, HasSubstr("and 3 more\n"));
}

TEST(Junit, EscapesMarkup) {
  const std::string xml = to_junit(hostile_report());
  EXPECT_FALSE(has_control_characters(xml, "\n"));
  EXPECT_FALSE(has_misleading_marks(xml));
  EXPECT_THAT(xml, Not(HasSubstr("<script>")));
  EXPECT_THAT(xml, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(xml, HasSubstr("&lt;/testcase&gt;&amp;amp;&amp;#x1b;]]&gt;"));
  EXPECT_EQ(occurrences(xml, "<testcase "), std::size(hostile));
}

// ---- Markdown

TEST(Markdown, HasVerdictCountsAndATable) {
  const std::string text = to_markdown(sample());
  EXPECT_THAT(text, StartsWith("## assay diff: TROUBLE\n"));
  EXPECT_THAT(text,
              HasSubstr("3 compared: 1 passed, 2 failed, 0 inherited; 4 not compared; 1 ignored by rule"));
  EXPECT_THAT(text, HasSubstr("First in execution order: **bad, \"really\"** (failed)"));
  EXPECT_EQ(occurrences(text, "\n| "), 2u + 6u);
}

TEST(Markdown, ShowsTheWorstTwenty) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.assign(30, failed);
  const std::string text = to_markdown(report);
  EXPECT_EQ(occurrences(text, "\n| "), 2u + 20u);
  EXPECT_THAT(text, HasSubstr("and 10 more"));
}

TEST(Markdown, APassHasNoTable) {
  Report report = sample();
  report.findings.resize(1);
  EXPECT_THAT(to_markdown(report), StartsWith("## assay diff: PASS\n"));
  EXPECT_THAT(to_markdown(report), Not(HasSubstr("| --- |")));
}

TEST(Markdown, EscapesMarkup) {
  const std::string text = to_markdown(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, Not(HasSubstr("<!--")));
  EXPECT_THAT(text, HasSubstr("\\`code\\` \\*\\*bold\\*\\* \\[link\\]\\(http"));
  EXPECT_THAT(text, Not(HasSubstr("@team"))) << "would notify somebody";
  EXPECT_THAT(text, HasSubstr("\\$x^2\\$"));
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with("| ")) continue;
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i)
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    EXPECT_EQ(bars, 6u) << line;
  }
}

// ---- all of them

TEST(Reports, CommandsToRepeatAreSafeToShow) {
  const Report report = hostile_report();
  for (const Finding& f : report.findings) {
    EXPECT_FALSE(has_control_characters(f.repeat, "")) << f.repeat;
    EXPECT_FALSE(has_misleading_marks(f.repeat)) << f.repeat;
  }
}

}  // namespace
}  // namespace assay
