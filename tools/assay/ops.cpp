#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"
#include "output.h"
#include "verb.h"

namespace assay {
namespace {

struct OpsVerb {
  std::string name;
  bool markdown = false, json = false;
};

bool is_output(const Arg& arg) {
  return arg.role == Role::output || arg.role == Role::output_index || arg.role == Role::grad_input;
}

std::string count_text(const Arg& arg) {
  return std::string(arg.exact == Exact::bits ? "copy" : arg.exact == Exact::value ? "exact" : arg.terms);
}

std::string text_of(const Arg& arg) {
  return fmt::format("{} [{}]{}", arg.name, arg.shape, arg.optional ? ", optional" : "");
}

void describe(const Operator& op) {
  fmt::print("{}: {}\n  source    {}\n", op.name, op.math, op.source);
  if (!op.aliases.empty()) fmt::print("  aliases   {}\n", fmt::join(op.aliases, ", "));
  for (const Attribute& a : op.attributes)
    fmt::print("  attribute {} = {}: {}\n", a.name, a.initial, a.meaning);
  for (const Seen& row : op.seen) fmt::print("  seen      {} = {}: {}\n", row.attribute, row.value, row.who);
  for (const Arg& arg : op.args) {
    if (is_output(arg)) {
      const std::string count = arg.exact == Exact::bits    ? ", a copy"
                                : arg.exact == Exact::value ? ", exact"
                                : arg.terms.empty()         ? ""
                                                    : fmt::format(", accumulation count {}", arg.terms);
      fmt::print("  {:<9} {}{}\n", arg.role == Role::grad_input ? "gradient" : "output", text_of(arg), count);
    } else {
      fmt::print("  {:<9} {}\n", arg.role == Role::grad_output ? "grad of" : name(arg.role), text_of(arg));
    }
  }
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

/// The groups of the index: each begins with this operator, in the order of operators/CMakeLists.txt.
struct Group {
  std::string_view first, heading;
};
constexpr Group groups[] = {{"matmul", "Products and convolutions"},
                            {"embedding", "Embedding, norms, positions"},
                            {"add", "Elementwise"},
                            {"sigmoid", "Activations"},
                            {"softmax", "Softmax and losses"},
                            {"attention", "Attention"},
                            {"router_topk", "Mixture of experts"},
                            {"reduce_sum", "Reductions, scans, order, pooling"},
                            {"transpose", "Shapes and indices"},
                            {"cast", "Casts and quantization"},
                            {"clip_grad_norm", "Optimizers"},
                            {"all_reduce", "Collectives"}};

std::string index_of(std::span<const Operator* const> listed) {
  std::string out = "\n| group | operators |\n| --- | --- |";
  std::string_view separator = "\n| | ";
  for (const Operator* op : listed) {
    const auto* group = std::ranges::find(groups, op->name, &Group::first);
    if (group != std::end(groups)) {
      out += fmt::format("{}\n| {} | ", out.ends_with('|') ? "" : " |", group->heading);
      separator = "";
    }
    out += fmt::format("{0}[{1}](#{1})", separator, op->name);
    separator = ", ";
  }
  return out + " |\n";
}

void print_markdown(std::span<const Operator* const> listed) {
  std::string out =
      "# Operators\n\nWritten by `assay ops --markdown` from the declarations in `operators/`; a test fails "
      "when it is "
      "stale.\nShapes by letters: `N*` is any number of extents, equal letters are equal extents. The count "
      "is the "
      "accumulation\ncount behind one element, from extents by letter and from words that the operator's "
      "file "
      "explains; `#` is the\nmember's number. A copy is judged bit for bit.\n";
  out += index_of(listed);
  for (const Operator* op : listed) {
    out += fmt::format("\n## {}\n\n`{}`\n\nSource: {}.", op->name, op->math, op->source);
    if (!op->aliases.empty()) out += fmt::format(" Also known as {}.", fmt::join(op->aliases, ", "));
    out += "\n\n| argument | shape | role | count |\n| --- | --- | --- | --- |\n";
    for (const Arg& arg : op->args) {
      out += fmt::format("| {} | [{}] | {}{} | {} |\n", arg.name, arg.shape, name(arg.role),
                         arg.optional ? ", optional" : "", count_text(arg));
    }
    if (op->attributes.empty()) continue;
    out += "\n| attribute | default | meaning |\n| --- | --- | --- |\n";
    for (const Attribute& a : op->attributes)
      out += fmt::format("| {} | `{}` | {} |\n", a.name, a.initial, cell(a.meaning));
    if (op->seen.empty()) continue;
    out += "\n| seen | who uses it |\n| --- | --- |\n";
    for (const Seen& row : op->seen)
      out += fmt::format("| `{} = {}` | {} |\n", row.attribute, row.value, cell(row.who));
  }
  write_text("-", out);
}

void print_json(std::span<const Operator* const> listed) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Operator* op : listed) {
    Json j = {{"name", op->name},
              {"math", op->math},
              {"source", op->source},
              {"aliases", op->aliases},
              {"backward", op->has_backward}};
    j["attributes"] = Json::array();
    for (const Attribute& a : op->attributes) {
      j["attributes"].push_back(
          {{"name", a.name}, {"default", Json::parse(a.initial)}, {"meaning", a.meaning}});
      for (const Seen& row : op->seen) {
        if (row.attribute == a.name)
          j["attributes"].back()["seen"].push_back({{"value", Json::parse(row.value)}, {"who", row.who}});
      }
    }
    j["args"] = Json::array();
    for (const Arg& arg : op->args) {
      Json t = {
          {"name", arg.name}, {"shape", arg.shape}, {"role", name(arg.role)}, {"optional", arg.optional}};
      if (is_output(arg)) t["accumulation_count"] = count_text(arg);
      j["args"].push_back(std::move(t));
    }
    list.push_back(std::move(j));
  }
  write_text("-", list.dump(1) + "\n");
}

void declare(OpsVerb& verb, Options& options) {
  options.option("name", verb.name, "operator or alias").holds("NAME");
  const Option& markdown = options.flag("--markdown", verb.markdown, "as Markdown: OPERATORS.md");
  options.flag("--json", verb.json, "as JSON").excludes(markdown);
}

int run(const OpsVerb& verb, const Options&) {
  std::vector<const Operator*> listed(operators().begin(), operators().end());
  if (!verb.name.empty()) listed = {&find_operator(verb.name)};
  if (verb.markdown) {
    print_markdown(listed);
  } else if (verb.json) {
    print_json(listed);
  } else if (!verb.name.empty()) {
    describe(*listed.front());
  } else {
    for (const Operator* op : listed) {
      fmt::print("{:<18} {}  {}\n", op->name, op->has_backward ? "fwd bwd" : "fwd    ", op->math);
    }
  }
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb ops = {"ops", "list the operators, or describe one", "assay ops rms_norm",
                             declared<OpsVerb>};
}

}  // namespace assay
