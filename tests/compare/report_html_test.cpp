#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "assay/compare/report/html/html.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "report_samples.h"

namespace assay::report_html_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::size_t most_bytes = 5'000'000;

DiffOptions options() {
  DiffOptions o;
  o.policies = {load_policy("telechat3")};
  o.repeat = "assay diff a r";
  o.error_maps = 50;
  return o;
}

Report report_of(const std::vector<std::pair<std::string, double>>& errors) {
  MemoryDump a("a"), r("r");
  for (const auto& [name, error] : errors) {
    a.add(name, float32({1, 2 + error, 4}));
    r.add(name, float32({1, 2, 4}));
  }
  return diff(a, r, options());
}

// The part that the program writes for each report: without style, script and data.
std::string static_part(const std::string& page) {
  const std::size_t body = page.find("<body>"), data = page.find("<script type=\"application/octet-stream\"");
  return page.substr(body, data - body);
}

TEST(Html, TheFirstScreenNeedsNoScript) {
  const std::string page =
      to_html(report_of({{"layers.0.x", 0}, {"layers.1.x", 0.5}, {"layers.2.x", 1}, {"layers.3.x", 0}}));
  EXPECT_THAT(page, StartsWith("<!doctype html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("{{"))) << "every place is filled";
  const std::string part = static_part(page);
  EXPECT_THAT(part, HasSubstr("<span class=\"word\">FAIL</span>"));
  EXPECT_THAT(part, HasSubstr("2 of 4 tensors did not pass. The first in execution order is"));
  EXPECT_THAT(part, HasSubstr("4 compared: 2 passed, 2 failed, 0 inherited; 0 not compared"));
  EXPECT_THAT(part, HasSubstr("<h3><code>layers.1.x</code></h3>"));
  EXPECT_THAT(part, HasSubstr("<code>[1]</code> actual <code>2.5</code>, reference <code>2</code>"));
  EXPECT_THAT(part, HasSubstr("1 outside, within all rows, column 1: all of the elements there."));
  EXPECT_THAT(part, HasSubstr("<pre>assay diff a r --only layers.1.x</pre>"));
  EXPECT_THAT(part, HasSubstr("class=\"histogram\""));
  EXPECT_THAT(part, HasSubstr("class=\"map\""));
  EXPECT_THAT(part, HasSubstr("id=\"heat0\""));
  EXPECT_EQ(occurrences(part, "<tr><td>"), 4u + 1u + 1u + 1u) << "tensors, worst elements, folds, rules";
}

TEST(Html, VerdictsAreSaidInWords) {
  EXPECT_THAT(to_html(report_of({{"x", 0}})),
              HasSubstr("1 of 1 tensors were compared, and every one is inside of its tolerance."));
  EXPECT_THAT(to_html(Report{}), HasSubstr("Nothing was compared."));
  MemoryDump a("a"), r("r");
  a.add("x", float32({1}));
  r.add("x", float32({1}));
  r.add("gone", float32({1}));
  const std::string page = static_part(to_html(diff(a, r, options())));
  EXPECT_THAT(page, HasSubstr(">FAIL<"));
  EXPECT_THAT(page, HasSubstr("What was not compared, and why"));
  EXPECT_THAT(page, HasSubstr("only in r"));
}

TEST(Html, NothingRunsButItsOwnScript) {
  const std::string page = to_html(report_of({{"x", 1}}));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_EQ(occurrences(page, "<script"), 2u) << "the data and the program";
  EXPECT_EQ(occurrences(page, "</script"), 2u);
  EXPECT_EQ(occurrences(page, "<style"), 1u);
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(static_part(page), Not(HasSubstr("style=")));
  EXPECT_THAT(page, Not(HasSubstr("http://www.w3.org/1999")));
  EXPECT_EQ(occurrences(page, "://"), 1u) << "the name of SVG, no address";
}

TEST(Html, EscapesNames) {
  const std::string names[] = {"</script><img src=x onerror=alert(1)>",
                               "<!--",
                               "]]>",
                               "\"><script>alert(1)</script>",
                               "' onmouseover='alert(1)",
                               "{{data}}",
                               "esc\x1b[31m",
                               "nul" + std::string(1, '\0'),
                               "two\nlines",
                               "bidi\xe2\x80\xae",
                               "bad utf8 \xff",
                               "&lt;b&gt;",
                               "layers.7.<u>.experts.3.</text>"};
  std::vector<std::pair<std::string, double>> errors;
  for (const std::string& name : names) errors.emplace_back(name, 1);
  Report report = report_of(errors);
  report.actual = "a</title><script>alert(2)</script>";
  report.notes = {"<img src=x>"};
  report.policies = {{"<u>policy</u>", ""}};
  for (Finding& f : report.findings) {
    f.notes = {f.name + "\n<i>"};
    f.reason = f.rule = f.count_source = f.row = f.name;
    f.others = {{f.name, Verdict::passed, 0}};
  }
  const std::string page = to_html(report), part = static_part(page);
  EXPECT_EQ(occurrences(page, "<script"), 2u);
  EXPECT_EQ(occurrences(page, "</title>"), 1u + occurrences(part, "</title>"));
  for (const char* bad : {"<img", "<u>", "<i>", "<!--", "onmouseover='", "\xe2\x80\xae", "\xff", "\x1b"})
    EXPECT_EQ(occurrences(part, bad), 0u) << bad;
  EXPECT_THAT(part, HasSubstr("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"));
  EXPECT_THAT(part, HasSubstr("&quot;&gt;&lt;script&gt;"));
  EXPECT_THAT(part, HasSubstr("&#39; onmouseover=&#39;alert(1)"));
  EXPECT_THAT(part, HasSubstr("esc\\x1b[31m"));
  EXPECT_THAT(part, HasSubstr("&amp;lt;b&amp;gt;"));
  EXPECT_THAT(part, HasSubstr(">{{data}}<")) << "a name is no place to fill";
  for (const char c : part) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

// Layers and experts; errors of all sizes, and as many ulp bins as float32 tensors have.
Report large_report(std::size_t n, double failing) {
  Report report;
  report.verb = "diff";
  report.actual = "gpu";
  report.reference = "npu";
  report.policies = {{"telechat3", ""}};
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> ratio(-7, 2), wide(3, 2);
  std::uniform_real_distribution<double> uniform;
  for (std::size_t i = 0; i < n; ++i) {
    Finding f;
    const bool fails = uniform(random) < failing;
    f.id = {static_cast<std::int64_t>(i / 50000),
            0,
            Phase::forward,
            "layers." + std::to_string(i / 512 % 61) + ".moe.experts." + std::to_string(i / 8 % 64) + ".fc" +
                std::to_string(i / 4 % 2),
            i % 2 == 0 ? "input" : "output",
            i % 4 < 2 ? "x" : "y",
            static_cast<std::int64_t>(i / 31232)};
    f.name = to_string(f.id);
    f.verdict = fails ? Verdict::failed : Verdict::passed;
    f.rule = "telechat3 float32, count >= 0: |a-g| <= 0.0001 (1+|g|) (count unknown: strictest row)";
    f.row = "telechat3 float32, count >= 0: |a-g| <= 0.0001 (1+|g|)";
    f.ratio = fails ? wide(random) + 1 : std::min(ratio(random), 1.);
    f.actual_shape = f.reference_shape = {4096, 1536};
    Metrics m;
    m.elements = 4096 * 1536;
    m.max_abs = ratio(random);
    m.max_rel = ratio(random);
    m.relative_l2 = ratio(random);
    m.max_ulp = random() >> 40;
    m.worst_ratio = f.ratio;
    m.worst_at = static_cast<std::int64_t>(random() % 6291456);
    m.over = fails ? static_cast<std::int64_t>(random() % 10000) : 0;
    for (int k = 0; k < 24; ++k)
      m.ulp_histogram.push_back(static_cast<std::int64_t>(random() % 100000) >> (k / 2));
    f.actual_value = uniform(random);
    f.reference_value = uniform(random);
    f.metrics = m;
    if (fails) {
      f.reason =
          std::to_string(m.over) + " of 6291456 elements outside, error/allowed " + std::to_string(f.ratio);
      f.repeat = "assay diff gpu npu" + only_option(f.name);
    }
    report.findings.push_back(std::move(f));
  }
  return report;
}

TEST(Html, AHundredThousandTensorsStayBelowFiveMegabytes) {
  for (const double failing : {0.001, 1.0}) {
    const std::string page = to_html(large_report(100'000, failing));
    EXPECT_LT(page.size(), most_bytes) << failing;
    EXPECT_GT(page.size(), 1'000'000u) << "all are there";
    EXPECT_THAT(page, HasSubstr("To stay below 5 MB this page leaves out: ")) << "and what is not is said";
  }
}

TEST(Html, ASmallReportLeavesNothingOut) {
  EXPECT_THAT(static_part(to_html(large_report(2'000, 0.1))), Not(HasSubstr("leaves out")));
}

TEST(Html, WhatIsLeftOutFollowsTheBudget) {
  const Report report = large_report(3'000, 0.5);
  std::string everything, less, least;
  const std::size_t whole = page_data(report, {}, most_bytes, everything).size();
  EXPECT_EQ(everything, "");
  EXPECT_LT(page_data(report, {}, whole - 1, less).size(), whole);
  EXPECT_EQ(less, "worst elements of tensors that passed");
  EXPECT_LT(page_data(report, {}, 20'000, least).size(), 20'000u);
  EXPECT_THAT(least, HasSubstr("tensors that passed, but for the pictures above; all beyond the first "));
}

TEST(Html, Base64IsThatOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xfb\xff"), "+/8=");
}

TEST(Html, NumbersHaveThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1250.4), "1250");
  EXPECT_EQ(short_number(0.00012345), "0.000123");
  EXPECT_EQ(short_number(99999), "1e+5");
  EXPECT_EQ(short_number(4.567e-7), "4.57e-7");
  EXPECT_EQ(short_number(2.0234e9), "2.02e+9");
  EXPECT_EQ(short_number(1e-300), "1e-300");
  EXPECT_EQ(short_number(infinity), "inf");
  EXPECT_EQ(short_number(nan), "nan");
}

TEST(Html, ShadesTurnAtTheLimit) {
  EXPECT_EQ(shade(0), '0');
  EXPECT_EQ(shade(0.01), '1');
  EXPECT_EQ(shade(1), '4');
  EXPECT_EQ(shade(std::nextafter(1, 2)), '5');
  EXPECT_EQ(shade(10.1), '6');
  EXPECT_EQ(shade(1e9), '7');
  EXPECT_EQ(shade(infinity), '8');
  EXPECT_EQ(shade(nan), '8');
}

}  // namespace
}  // namespace assay::report_html_test
