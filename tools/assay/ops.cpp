#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "assay/golden/error.h"
#include "assay/operators/golden.h"
#include "output.h"
#include "verbs.h"

namespace assay {
namespace {

bool is_output(const Arg& arg) {
  return arg.role == Role::output || arg.role == Role::grad_input;
}

// The accumulation count is code. For people it is read off by probing: with a prime for every letter, the
// count names the letters whose product it is, and a small constant that is added. Primes whose gaps exceed
// that constant.
constexpr std::int64_t primes[] = {1009, 1213, 1409, 1601, 1801, 2003, 2203, 2411};
constexpr std::int64_t unnamed_extent = 2609;
constexpr std::int64_t largest_constant = 8;

std::vector<std::pair<char, std::int64_t>> letters_of(const Operator& op) {
  std::vector<std::pair<char, std::int64_t>> letters;
  for (const Arg& arg : op.args) {
    for (const char c : arg.shape) {
      const bool known =
          std::ranges::find(letters, c, &std::pair<char, std::int64_t>::first) != letters.end();
      if (std::isalpha(static_cast<unsigned char>(c)) == 0 || known || letters.size() == std::size(primes))
        continue;
      letters.emplace_back(c, primes[letters.size()]);
    }
  }
  return letters;
}

// The inputs of a call whose extents are the letters' primes. A starred letter is one extent, or none if it
// is in `empty`.
std::vector<InputShape> probe_inputs(const Operator& op, std::string_view empty) {
  const auto letters = letters_of(op);
  std::vector<InputShape> inputs;
  for (const Arg& arg : op.args) {
    if (is_output(arg)) continue;
    InputShape input{std::string(arg.name), {}, nullptr};
    if (input.name.ends_with('#')) {
      input.name.back() = '0';
      input.shape = {unnamed_extent};  // members have shapes of their own
    }
    for (std::size_t i = 0; i < arg.shape.size(); ++i) {
      const bool starred = i + 1 < arg.shape.size() && arg.shape[i + 1] == '*';
      const auto letter = std::ranges::find(letters, arg.shape[i], &std::pair<char, std::int64_t>::first);
      if (letter != letters.end() && !(starred && empty.find(arg.shape[i]) != std::string_view::npos)) {
        input.shape.push_back(letter->second);
      } else if (arg.shape[i] == '1') {
        input.shape.push_back(1);
      }
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// The count with every letter's prime as its extent; where the operator needs to see its inputs for it, in
// the first call that it accepts, with as few starred letters empty as possible.
std::optional<std::int64_t> probe_count(const Operator& op, std::string_view output) {
  try {
    Dims dims;
    for (const auto& [letter, prime] : letters_of(op)) dims.set(std::string(1, letter), prime);
    return op.terms(output, dims, complete_attributes(op, {}));
  } catch (const Error&) {
    // It counts something that no letter names.
  }
  std::string stars;
  for (const Arg& arg : op.args) {
    for (std::size_t i = 1; i < arg.shape.size(); ++i) {
      const char letter = arg.shape[i - 1];
      if (arg.shape[i] == '*' && stars.find(letter) == std::string::npos) stars += letter;
    }
  }
  for (std::uint32_t set = 0; set < (1u << stars.size()); ++set) {
    std::string empty;
    for (std::size_t i = 0; i < stars.size(); ++i) {
      if ((set >> i & 1u) != 0) empty += stars[i];
    }
    try {
      const std::vector<InputShape> inputs = probe_inputs(op, empty);
      return accumulation_count(op, output, inputs, {});
    } catch (const Error&) {
      continue;  // these extents do not fit together
    }
  }
  return std::nullopt;
}

std::string count_formula(const Operator& op, std::string_view output) {
  const std::optional<std::int64_t> probed = probe_count(op, output);
  if (!probed) return "depends on the call";
  const std::int64_t count = *probed;
  if (count <= largest_constant) return std::to_string(count);
  const auto letters = letters_of(op);
  for (std::uint32_t set = 1; set < (1u << letters.size()); ++set) {
    std::int64_t product = 1;
    std::string formula;
    for (std::size_t i = 0; i < letters.size() && product <= count; ++i) {
      if ((set >> i & 1u) == 0) continue;
      product *= letters[i].second;
      formula += std::string(formula.empty() ? "" : " ") + letters[i].first;
    }
    if (count >= product && count - product <= largest_constant) {
      return count == product ? formula : fmt::format("{} + {}", formula, count - product);
    }
  }
  return "depends on the call";
}

std::string text_of(const Arg& arg) {
  return fmt::format("{} [{}]{}", arg.name, arg.shape, arg.optional ? ", optional" : "");
}

void describe(const Operator& op) {
  fmt::print("{}: {}\n  source    {}\n", op.name, op.math, op.source);
  if (!op.aliases.empty()) fmt::print("  aliases   {}\n", fmt::join(op.aliases, ", "));
  for (const Attribute& a : op.attributes)
    fmt::print("  attribute {} = {}: {}\n", a.name, a.initial, a.meaning);
  for (const Arg& arg : op.args) {
    if (is_output(arg)) {
      fmt::print("  {:<9} {}, accumulation count {}\n", arg.role == Role::output ? "output" : "gradient",
                 text_of(arg), count_formula(op, arg.name));
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

void print_markdown(std::span<const Operator* const> listed) {
  std::string out =
      "# Operators\n\nWritten by `assay ops --markdown` from the declarations in `operators/`; a test fails "
      "when it is "
      "stale.\nShapes by letters: `N*` is any number of extents, equal letters are equal extents. The count "
      "is the "
      "accumulation\ncount behind one element; 0 is a copy, judged bit for bit.\n";
  for (const Operator* op : listed) {
    out += fmt::format("\n## {}\n\n`{}`\n\nSource: {}.", op->name, op->math, op->source);
    if (!op->aliases.empty()) out += fmt::format(" Also known as {}.", fmt::join(op->aliases, ", "));
    out += "\n\n| argument | shape | role | count |\n| --- | --- | --- | --- |\n";
    for (const Arg& arg : op->args) {
      out +=
          fmt::format("| {} | [{}] | {}{} | {} |\n", arg.name, arg.shape, name(arg.role),
                      arg.optional ? ", optional" : "", is_output(arg) ? count_formula(*op, arg.name) : "");
    }
    if (op->attributes.empty()) continue;
    out += "\n| attribute | default | meaning |\n| --- | --- | --- |\n";
    for (const Attribute& a : op->attributes)
      out += fmt::format("| {} | `{}` | {} |\n", a.name, a.initial, cell(a.meaning));
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
    }
    j["args"] = Json::array();
    for (const Arg& arg : op->args) {
      Json t = {
          {"name", arg.name}, {"shape", arg.shape}, {"role", name(arg.role)}, {"optional", arg.optional}};
      if (is_output(arg)) t["accumulation_count"] = count_formula(*op, arg.name);
      j["args"].push_back(std::move(t));
    }
    list.push_back(std::move(j));
  }
  write_text("-", list.dump(1) + "\n");
}

}  // namespace

int run(const OpsVerb& verb) {
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

}  // namespace assay
