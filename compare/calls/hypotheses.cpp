#include "assay/compare/calls/hypotheses.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/calls/call_variant.h"
#include "assay/operators/engine/fp8_codes.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

class HypothesesOf {
 public:
  explicit HypothesesOf(const Operator& op) : op_(op) {}

  std::vector<HypothesisRow> all() {
    attributes();
    layouts();
    arithmetics();
    mistakes();
    return std::move(rows_);
  }

 private:
  void admit(std::string kind, std::string what, std::string_view source) {
    rows_.push_back({true, std::move(kind), std::move(what), std::string(source)});
  }
  void mistake(std::string kind, std::string what, std::string_view source) {
    rows_.push_back({false, std::move(kind), std::move(what), std::string(source)});
  }

  static bool is_default(const Attribute& attribute, const Seen& row) {
    return parse_attribute(attribute.initial) == parse_attribute(row.value);
  }

  void attributes() {
    bool is_any_left = false;
    for (const Attribute& attribute : op_.attributes) {
      const std::size_t before = rows_.size();
      add_seen(attribute);
      for (const Solved& row : op_.solved) {
        if (row.attribute == attribute.name) admit("attribute", std::string(row.attribute), how(row));
      }
      is_any_left = is_any_left || rows_.size() == before;
    }
    if (is_any_left)
      admit("attribute", "any other",
            op_.infer == nullptr ? "the default" : "the default, or what shapes and index data tell");
    if (!op_.gain.empty())
      admit("gain", fmt::format("{} + 1", op_.gain),
            "stored minus 1: Megatron-LM's layernorm_zero_centered_gamma");
  }

  void add_seen(const Attribute& attribute) {
    std::string who = "the default";
    bool is_seen = std::ranges::find(op_.solved, attribute.name, &Solved::attribute) != op_.solved.end();
    for (const Seen& row : op_.seen) {
      if (row.attribute != attribute.name) continue;
      is_seen = true;
      if (is_default(attribute, row)) who += fmt::format("; {}", row.who);
    }
    if (!is_seen) return;
    admit("attribute", fmt::format("{} = {}", attribute.name, attribute.initial), who);
    for (const Seen& row : op_.seen) {
      if (row.attribute == attribute.name && !is_default(attribute, row))
        admit("attribute", fmt::format("{} = {}", row.attribute, row.value), row.who);
    }
  }

  static std::string how(const Solved& row) {
    switch (row.by) {
      case Solved::By::bisection:
        return fmt::format("solved from the result, {:g} to {:g}", row.low, row.high);
      case Solved::By::factor:
        return "solved from the result, which is proportional to it";
      case Solved::By::candidates:
        break;
    }
    return std::string(row.how);
  }

  void layouts() {
    for (const Layout& row : op_.layouts) admit("layout", std::string(row.dims), row.who);
  }

  void arithmetics() {
    admit("arithmetic", "float32, sums in any order",
          "float64 for a float64 result; steps between may be kept in the dtype of the result");
    if (op_.narrowing != Narrowing::none)
      admit("arithmetic", "operands rounded to the dtype of the result", "torch.autocast");
    if (op_.narrowing == Narrowing::to_result_fp8)
      admit("arithmetic", fmt::format("float8_e4m3fn operands in blocks of {}", fp8_block),
            "DeepSeek-V3, arXiv:2412.19437 sec. 3.3.2");
    for (const Arg& arg : op_.args) {
      if (!arg.gap.empty())
        admit("choice", fmt::format("another {} where {} is within its error", arg.name, arg.gap),
              "rounding may swap two that are as near");
    }
  }

  void mistakes() {
    if (op_.has_backward)
      mistake("weights", "micro-batches that do not count once each",
              "solved from a gradient that sums several");
    if (!op_.seen.empty() || !op_.solved.empty())
      mistake("attribute", "one of the above", "where the reference has another");
    if (!op_.gain.empty()) mistake("gain", fmt::format("no {}", op_.gain), "left out");
    for (const Seen& row : op_.mistaken)
      mistake("attribute", fmt::format("{} = {}", row.attribute, row.value), row.who);
    if (const OtherValues* others = op_.other_values)
      mistake("attribute", std::string(others->attribute), others->what);
    for (const Arithmetic& a : narrow_arithmetics()) mistake("arithmetic", describe(a), "a precision fault");
  }

  const Operator& op_;
  std::vector<HypothesisRow> rows_;
};

}  // namespace

std::vector<HypothesisRow> hypotheses_for(const Operator& op) {
  return HypothesesOf(op).all();
}

}  // namespace assay
