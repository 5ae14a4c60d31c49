#include "assay/operators/engine/alibi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"

namespace assay {

std::vector<Candidate> or_with_alibi(std::vector<Candidate> all) {
  struct Form {
    const char* alibi;
    double bias_max;
  };
  const std::vector<Candidate> without = all.empty() ? std::vector<Candidate>(1) : all;
  for (const auto& [alibi, bias_max] :
       {Form{"first_key", 8}, {"last_key", 8}, {"last_key", 16}, {"distance", 8}, {"scaled", 8}}) {
    for (Candidate with : without) {
      with.attributes.set("alibi", alibi);
      with.attributes.set("alibi_bias_max", bias_max);
      with.text += fmt::format("{}alibi = \"{}\"", with.text.empty() ? "" : ", ", alibi);
      if (bias_max != 8) with.text += fmt::format(", alibi_bias_max = {}", bias_max);
      all.push_back(std::move(with));
    }
  }
  return all;
}

void check_alibi(std::string_view op, const Attributes& a) {
  const auto expect = [&](std::string_view attribute, std::initializer_list<std::string_view> values) {
    if (std::ranges::find(values, a.text(attribute)) == values.end())
      throw Error("{}: {} is \"{}\"; expected {}", op, attribute, a.text(attribute), fmt::join(values, ", "));
  };
  if (a.has("alibi")) expect("alibi", {"first_key", "last_key", "distance", "scaled"});
  expect("alibi_slopes", {"closest_power", "all_heads", "from_one"});
  if (!(a.real("alibi_bias_max") > 0))
    throw Error("{}: alibi_bias_max is {}; expected a number above 0", op, a.real("alibi_bias_max"));
}

// github.com/ofirpress/attention_with_linear_biases, fairseq/models/transformer.py, get_slopes
std::vector<AlibiSlope> alibi_slopes(std::int64_t heads, const Attributes& a) {
  const std::string& rule = a.text("alibi_slopes");
  const auto base_of = [&](std::int64_t n) {
    return std::exp2(-a.real("alibi_bias_max") / static_cast<double>(n));
  };
  std::int64_t n = heads;
  if (rule != "all_heads") {
    for (n = 1; 2 * n <= heads;) n *= 2;
  }
  const std::int64_t less = rule == "from_one" ? 1 : 0;
  std::vector<AlibiSlope> slopes;
  for (std::int64_t h = 1; h <= n; ++h) slopes.push_back({base_of(n), h - less});
  for (std::int64_t h = 1; std::ssize(slopes) < heads; h += 2) slopes.push_back({base_of(2 * n), h - less});
  return slopes;
}

}  // namespace assay
