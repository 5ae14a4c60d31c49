#include "assay/compare/calls/hypotheses.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "output.h"
#include "verb.h"

namespace assay {
namespace {

struct HypothesesVerb {
  std::string name;
  bool json = false;
};

using HypothesisRows = std::vector<HypothesisRow>;

void print_text(const Operator& op, const HypothesisRows& rows) {
  std::size_t width = 0;
  for (const HypothesisRow& row : rows) width = std::max(width, row.what.size());
  fmt::print("{}: {}\n", op.name, op.math);
  for (const bool admissible : {true, false}) {
    fmt::print("{}\n", admissible
                           ? "right is what one of these makes of the recorded inputs, within its bound:"
                           : "what is wrong is explained by the first of these that makes it:");
    for (const HypothesisRow& row : rows) {
      if (row.admissible == admissible)
        fmt::print("  {:<10}  {:<{}}  {}\n", row.kind, row.what, width, row.source);
    }
  }
}

void print_json(const Operator& op, const HypothesisRows& rows) {
  using Json = nlohmann::ordered_json;
  Json j = {{"operator", op.name}, {"hypotheses", Json::array()}};
  for (const HypothesisRow& row : rows) {
    j["hypotheses"].push_back(
        {{"admissible", row.admissible}, {"kind", row.kind}, {"what", row.what}, {"source", row.source}});
  }
  write_text("-", j.dump(1) + "\n");
}

void declare(HypothesesVerb& verb, Options& options) {
  options.option("operator", verb.name, "operator or alias").holds("OPERATOR").required();
  options.flag("--json", verb.json, "as JSON");
}

int run(const HypothesesVerb& verb, const Options&) {
  const Operator& op = find_operator(verb.name);
  const HypothesisRows rows = hypotheses_for(op);
  if (verb.json)
    print_json(op, rows);
  else
    print_text(op, rows);
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb hypotheses = {"hypotheses",
                                    "list the rows by which results of an operator are judged and explained",
                                    "assay hypotheses rms_norm", declared<HypothesesVerb>};
}

}  // namespace assay
