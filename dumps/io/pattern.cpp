#include "assay/dumps/io/pattern.h"

#include <re2/re2.h>

#include "assay/golden/error.h"

namespace assay {
namespace {

// RE2 writes \1 where ECMAScript writes $1.
std::string rewrite_of(std::string_view to) {
  std::string out;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const char next = i + 1 < to.size() ? to[i + 1] : '\0';
    const bool is_group = next >= '0' && next <= '9';
    if (to[i] == '\\') {
      out += "\\\\";
    } else if (to[i] == '$' && (is_group || next == '&')) {
      out += {'\\', is_group ? next : '0'};
      ++i;
    } else {
      out += to[i];
      if (to[i] == '$' && next == '$') ++i;
    }
  }
  return out;
}

}  // namespace

Pattern::Pattern(const std::string& text) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_encoding(re2::RE2::Options::EncodingLatin1);  // a name may be any bytes
  const auto program = std::make_shared<const re2::RE2>(text, options);
  if (!program->ok())
    throw Error("'{}' is no regular expression in the syntax of RE2: {}", text, program->error());
  program_ = program;
}

std::size_t Pattern::groups() const {
  return static_cast<std::size_t>(program_->NumberOfCapturingGroups());
}

std::vector<std::string_view> Pattern::find(std::string_view name) const {
  // Debian 13's is Abseil's own string_view, which takes no std::string_view.
  const re2::StringPiece text(name.data(), name.size());
  std::vector<re2::StringPiece> found(groups() + 1);
  if (!program_->Match(text, 0, text.size(), re2::RE2::UNANCHORED, found.data(),
                       static_cast<int>(found.size())))
    return {};
  std::vector<std::string_view> parts;
  for (const re2::StringPiece& part : found) parts.emplace_back(part.data(), part.size());
  return parts;
}

bool Pattern::replace(std::string& name, std::string_view to) const {
  return re2::RE2::GlobalReplace(&name, *program_, rewrite_of(to)) > 0;
}

void Pattern::check_replacement(std::string_view to) const {
  std::string problem;
  if (!program_->CheckRewriteString(rewrite_of(to), &problem))
    throw Error("'{}' has a group that '{}' has not; expected $0 to ${}", to, program_->pattern(), groups());
}

}  // namespace assay
