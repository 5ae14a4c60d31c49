#include <fmt/format.h>

#include <cstdio>

#include "assay/compare/rules/policy.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "verb.h"

namespace assay {
namespace {

struct ToleranceVerb {
  std::string policy, op, dtype;
  std::optional<long long> count;
};

void print_policy(const Policy& policy) {
  fmt::print("{}: {}\n", policy.name, policy.source);
  if (policy.rows.empty()) return;
  fmt::print("\n{:<15} {:>10} {:>12} {:>12}  {}\n", "DTYPE", "COUNT >=", "ATOL", "RTOL", "SOURCE");
  for (const Row& row : policy.rows) {
    fmt::print("{:<15} {:>10} {:>12.6g} {:>12.6g}  {}\n", name(row.dtype), row.count, row.atol, row.rtol,
               row.source);
  }
}

void explain(const Policy& policy, const ToleranceVerb& verb) {
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype) throw Error("--dtype {}: is no dtype; expected a torch name such as bfloat16", verb.dtype);
  const std::string what =
      fmt::format("{}{}", verb.op.empty() ? "a tensor of " : find_operator(verb.op).name,
                  verb.op.empty() ? std::string(name(*dtype)) : fmt::format(" in {}", name(*dtype)));
  if (policy.rule != Rule::atol_rtol) {
    fmt::print("{}: {}\n", what, policy.rule == Rule::bitwise ? "every bit equal" : policy.source);
    return;
  }
  const auto rows = policy.rows_of(*dtype);
  if (rows.empty())
    throw Error("{} has no row for {}; 'assay tolerance {}' shows the table", policy.name, name(*dtype),
                policy.name);
  const Row* row = verb.count ? policy.find(*dtype, *verb.count) : &rows.front();
  fmt::print("{}, {}:\n  {}\n  source: {}\n", what,
             verb.count ? fmt::format("accumulation count {}", *verb.count)
                        : "accumulation count unknown (strictest row)",
             to_string(policy, *row), row->source);
}

void declare(ToleranceVerb& verb, Options& options) {
  options.option("policy", verb.policy, "a policy's name or a .toml file; none: all").holds("POLICY");
  options.option("--op", verb.op, "operator").holds("O");
  options.option("--dtype", verb.dtype, "dtype of the tensor").holds("T");
  options.option("--count", verb.count, "accumulation count").holds("N");
}

int run(const ToleranceVerb& verb, const Options&) {
  const bool is_lookup = !verb.dtype.empty() || !verb.op.empty() || verb.count.has_value();
  if (is_lookup && verb.dtype.empty())
    throw Error("--dtype is missing; expected the dtype to look up, such as bfloat16");
  if (verb.count && *verb.count < 0) throw Error("--count {}: expected a number >= 0", *verb.count);
  if (is_lookup) {
    explain(load_policy(verb.policy.empty() ? "telechat3" : verb.policy), verb);
  } else if (!verb.policy.empty()) {
    print_policy(load_policy(verb.policy));
  } else {
    for (const std::string_view known : policy_names()) {
      const Policy policy = load_policy(known);
      fmt::print("{:<10} {}\n", policy.name, policy.source);
    }
  }
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb tolerance = {"tolerance", "show the tolerance tables, or explain one lookup",
                                   "assay tolerance telechat3 --dtype bfloat16 --count 4096",
                                   declared<ToleranceVerb>};
}

}  // namespace assay
