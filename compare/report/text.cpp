#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/report/folds.h"
#include "assay/compare/report/report.h"
#include "assay/compare/report/rule_uses.h"
#include "assay/compare/report/text_lines.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay {
namespace {

constexpr std::size_t most_lines = 20;      // so that a report fits a screen
constexpr std::size_t most_text_notes = 2;  // lines of a kind
constexpr std::size_t rule_indent = 26;
constexpr std::size_t all = std::numeric_limits<std::size_t>::max();

void append(Lines& to, const Lines& lines) {
  to.insert(to.end(), lines.begin(), lines.end());
}

class Writer {
 public:
  Writer(const Report& report, const TextStyle& style) : report_(report), style_(style) {}

  std::string write() {
    const Lines end = closing();
    verdict();
    if (report_.coverage)
      append(out_,
             wrapped(printable(sentence(*report_.coverage)), room_behind(0, style_), style_.all ? all : 2));
    const Finding* first = report_.first_failure();
    if (first != nullptr) {
      line(fmt::format("first in execution order: {}", paint(printable(first->name), "1")));
      append(out_, finding_lines(*first, style_));
    }
    const std::size_t used = out_.size() + end.size() + 2;  // a blank line and the head of the table
    const std::size_t room = style_.all ? all : used < most_lines ? most_lines - used : 0;
    if (first != nullptr) table(room);
    if (first == nullptr || style_.all) rules(room);
    append(out_, end);
    std::string text;
    for (const std::string& line : out_) text += line + "\n";
    return text;
  }

 private:
  void line(std::string text) { out_.push_back(std::move(text)); }

  std::string paint(std::string_view text, std::string_view code) const {
    return style_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  }
  std::string good(std::string_view text) const { return paint(text, "1;32"); }
  std::string bad(std::string_view text) const { return paint(text, "1;31"); }
  std::string dim(std::string_view text) const { return paint(text, "2"); }

  void verdict() {
    const int status = report_.exit_status();
    const std::string word(report_.verdict());
    const Lines text =
        wrapped(printable(status == 0 ? agreement() : disagreement()), room_behind(word.size() + 2, style_));
    line((status == 0 ? good(word) : bad(word)) + "  " + text.front());
    for (std::size_t i = 1; i < text.size(); ++i) line(std::string(word.size() + 2, ' ') + text[i]);
  }

  std::string agreement() const {
    const std::int64_t exempt = report_.count(Verdict::exempt);
    const auto rejected = std::ranges::count_if(
        report_.findings, [](const Finding& f) { return f.injected && f.verdict == Verdict::passed; });
    return fmt::format(
        "{} tensors of {} agree with {}{}{}", grouped(report_.compared() - rejected), report_.actual,
        report_.reference,
        exempt == 0 ? "" : fmt::format(", {} of them exempt from the tolerance", grouped(exempt)),
        rejected == 0 ? "" : fmt::format("; {} injected faults were rejected", grouped(rejected)));
  }

  std::string disagreement() const {
    std::string what;
    for (int v = 1; v < verdict_count; ++v) {
      const std::int64_t n = report_.count(static_cast<Verdict>(v));
      const auto verdict = static_cast<Verdict>(v);
      if (n == 0 || is_fine(verdict) || verdict == Verdict::inherited) continue;
      what += fmt::format("{}{} {}", what.empty() ? "" : ", ", grouped(n), name(verdict));
    }
    if (const std::int64_t follow = report_.count(Verdict::inherited); what.empty() && follow > 0)
      what = fmt::format("{} follow from exempt ones and were not judged", grouped(follow));
    if (what.empty()) what = "nothing was compared";
    return fmt::format("{}: {} against {}", what, report_.actual, report_.reference);
  }

  void row(std::int64_t count, Verdict verdict, double ratio, const std::string& what) {
    line(fmt::format("{:>7}  {:<17} {:>13}  {}", grouped(count), name(verdict),
                     ratio > 0 ? fmt::format("{:.3g}", ratio) : "", printable(what)));
  }

  void table(std::size_t room) {
    const auto fine = std::ranges::count_if(report_.findings, is_fine, &Finding::verdict);
    if (std::ssize(report_.findings) - fine == 1) return;  // it stands above
    line("");
    line(fmt::format("{:>7}  {:<17} {:>13}  {}", "TENSORS", "VERDICT", "ERROR/ALLOWED",
                     style_.all ? "IN EXECUTION ORDER" : "WORST KIND FIRST; --all LISTS EACH"));
    if (style_.all) return each();
    std::map<Verdict, Lines> reasons = reasons_by_verdict();
    const auto following = std::ranges::count_if(report_.findings, is_inherited);
    std::size_t kept = following > 0 ? 1 : 0;
    for (const auto& [verdict, reason] : reasons) kept += reason.size();
    const std::vector<Fold> list = folds(report_, room > kept ? room - kept : 1);
    if (list.size() + kept > room) reasons.clear();
    for (const Fold& f : list) {
      row(f.count, f.verdict, f.ratio, f.name);
      append(out_, reasons[f.verdict]);
      reasons.erase(f.verdict);
    }
    const std::int64_t uncompared = following - report_.count(Verdict::inherited);
    if (following == 0) return;
    row(following, Verdict::inherited, 0,
        uncompared == 0 ? "follow from these"
                        : fmt::format("follow from these, {} not compared", grouped(uncompared)));
  }

  // What numbers do not say, below the first line of its kind.
  std::map<Verdict, Lines> reasons_by_verdict() const {
    constexpr std::size_t indent = 9;
    std::map<Verdict, Lines> reasons;
    for (const Finding& f : report_.findings) {
      const bool needs_reason = f.verdict == Verdict::no_rule || f.verdict == Verdict::not_comparable ||
                                f.verdict == Verdict::unreadable;
      if (!needs_reason || is_inherited(f) || reasons.contains(f.verdict)) continue;
      Lines& lines = reasons[f.verdict];
      if (&f == report_.first_failure() || f.name.ends_with(f.reason)) continue;  // stands there already
      const Lines reason = wrapped(printable(f.reason), room_behind(indent, style_), 1);
      lines.push_back(dim(std::string(indent, ' ') + reason.front()));
    }
    return reasons;
  }

  void each() {
    for (const Finding& f : report_.findings) {
      if (!is_fine(f.verdict)) row(1, f.verdict, f.ratio, f.name);
    }
  }

  // Which rule decided how many tensors, and how near the worst of them came: the nearest first.
  void rules(std::size_t room) {
    std::vector<RuleUse> uses = rule_uses(report_);
    if (uses.empty()) return;
    std::ranges::stable_sort(uses, std::greater(), &RuleUse::worst);
    line(fmt::format("{:>9}  {:>13}  {}", "PASSED BY", "ERROR/ALLOWED",
                     "RULE, and the tensor that came nearest to its limit"));
    const std::size_t begin = out_.size();
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (out_.size() - begin + 4 > room) {  // two lines of rule, a tensor, and what is left
        line(dim(fmt::format("and {} more rules: --all shows them", uses.size() - i)));
        break;
      }
      const Lines rule = wrapped(printable(uses[i].rule), room_behind(rule_indent, style_));
      line(fmt::format("{:>9}  {:>13}  {}", grouped(uses[i].count), fmt::format("{:.3g}", uses[i].worst),
                       rule.front()));
      for (std::size_t k = 1; k < rule.size(); ++k) line(std::string(rule_indent, ' ') + rule[k]);
      if (uses[i].worst > 0) line(dim(std::string(rule_indent, ' ') + "in " + printable(uses[i].worst_in)));
    }
  }

  // From what was left out to the counts.
  Lines closing() const {
    Lines lines = exempt();
    append(lines, limited(ignored(), most_text_notes, "reasons to ignore tensors"));
    Lines notes;
    for (const std::string& note : report_.notes) notes.push_back(printable("note: " + note));
    append(lines, limited(notes, most_text_notes, "notes"));
    append(lines, limited(notes_on_passes(), report_.exit_status() == 0 ? most_text_notes : 1,
                          "notes on tensors that passed"));
    if (style_.all) append(lines, identity());
    std::string last = report_.summary();
    for (const std::string& file : style_.written)
      last += (&file == &style_.written.front() ? "; wrote " : ", ") + printable(file);
    lines.push_back(std::move(last));
    return lines;
  }

  Lines identity() const {
    Lines lines;
    for (const PolicyUsed& p : report_.policies) {
      if (!p.table_sha256.empty())
        lines.push_back(printable(fmt::format("table {}: SHA-256 {}", p.name, p.table_sha256)));
    }
    if (!report_.command.empty()) lines.push_back(printable("command: " + report_.command));
    lines.push_back(fmt::format("assay {}", version));
    return lines;
  }

  // The last of at most so many lines counts what is left out.
  Lines limited(Lines lines, std::size_t most, std::string_view what) const {
    if (style_.all || lines.size() <= most) return lines;
    const std::size_t left = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back(dim(fmt::format("and {}{} {}: --all shows them", left, most == 1 ? "" : " more", what)));
    return lines;
  }

  // A line for each kind of exemption; with --all one for each tensor.
  Lines exempt() const {
    Lines lines;
    for (const ExemptionUse& use : exemption_uses(report_)) lines.push_back(printable(use.text()));
    for (const Finding& f : report_.findings) {
      if (style_.all && f.verdict == Verdict::exempt)
        lines.push_back(printable(fmt::format("exempt: {}: {}", f.name, sentence(*f.exemption))));
    }
    return lines;
  }

  Lines ignored() const {
    std::map<std::string, std::int64_t> reasons;
    for (const Finding& f : report_.findings) {
      if (f.verdict == Verdict::ignored)
        ++reasons[(f.injected ? "injected faults: " : "tensors by ") + f.reason];
    }
    Lines lines;
    for (const auto& [reason, count] : reasons)
      lines.push_back(fmt::format("ignored: {} {}", grouped(count), printable(reason)));
    return lines;
  }

  // Something passed for another reason than its tolerance: the report says which.
  Lines notes_on_passes() const {
    Lines lines;
    for (const Finding& f : report_.findings) {
      if (f.verdict != Verdict::passed) continue;
      for (const std::string& note : f.notes)
        lines.push_back(printable(fmt::format("note: {}: {}", f.name, note)));
    }
    return lines;
  }

  const Report& report_;
  const TextStyle& style_;
  Lines out_;
};

}  // namespace

std::string to_text(const Report& report, const TextStyle& style) {
  return Writer(report, style).write();
}

}  // namespace assay
