#include "assay/compare/origin/failing_cases.h"

#include <fmt/format.h>

#include "assay/compare/result/printable.h"

namespace assay {
namespace {

// Of letters, digits, '.' and '-', with one '_' for all others in a row.
std::string file_name(const std::string& finding) {
  std::string name;
  for (const char c : finding) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '-' || (c == '.' && !name.empty());
    if (is_plain)
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  constexpr std::size_t longest = 200;  // file systems take 255 bytes
  name.resize(std::min(name.size(), longest));
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

}  // namespace

std::string FailingCases::unused_name(const std::string& finding) {
  const std::string plain = file_name(finding);
  std::string name = plain;
  for (int twin = 2; name.empty() || !names_.insert(name).second; ++twin)
    name = fmt::format("{}-{}", plain.empty() ? "call" : plain, twin);
  return name;
}

void FailingCases::add(Finding& f, const Call& call, const CallVariant& right) {
  if (folder_.empty()) return;
  if (std::ssize(names_) == most) {
    ++beyond_;
    return;
  }
  std::optional<NewCase> made = call.as_case(right);
  if (!made) {
    ++of_several_;
    return;
  }
  made->name = unused_name(f.name);
  const std::filesystem::path folder = folder_ / made->name;
  write_case(*made, folder);
  f.repeat = "assay check --whole " + shell_quoted(folder.string());
  if (const auto dtype = call.device().intermediate)
    f.repeat += fmt::format(" --intermediate {}", name(*dtype));
}

std::string FailingCases::note() const {
  if (names_.empty() && of_several_ == 0) return "";
  std::string text = fmt::format("wrote {} wrong call{} as operator cases to {}", names_.size(),
                                 names_.size() == 1 ? "" : "s", folder_.string());
  if (of_several_ > 0) text += fmt::format("; {} not written: sums of several calls", grouped(of_several_));
  if (beyond_ > 0) text += fmt::format("; {} not written after the first {}", grouped(beyond_), most);
  return text;
}

}  // namespace assay
