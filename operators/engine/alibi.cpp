#include "assay/operators/engine/alibi.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "assay/golden/error.h"

namespace assay {

std::vector<Candidate> or_with_alibi(std::vector<Candidate> all) {
  struct Form {
    const char* alibi;
    double bias_max;
  };
  const std::vector<Candidate> without = all.empty() ? std::vector<Candidate>(1) : all;
  for (const auto& [alibi, bias_max] : {Form{"first_key", 8},
                                        {"last_key", 8},
                                        {"last_key", 16},
                                        {"distance", 8},
                                        {"scaled", 8},
                                        {"scaled_twice", 8}}) {
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

AlibiForm alibi_form(std::string_view op, const Attributes& a) {
  if (!a.has("alibi")) return AlibiForm::none;
  constexpr std::pair<std::string_view, AlibiForm> forms[] = {{"first_key", AlibiForm::first_key},
                                                              {"last_key", AlibiForm::last_key},
                                                              {"distance", AlibiForm::distance},
                                                              {"scaled", AlibiForm::scaled},
                                                              {"scaled_twice", AlibiForm::scaled_twice}};
  for (const auto& [name, form] : forms) {
    if (a.text("alibi") == name) return form;
  }
  throw Error("{}: alibi is \"{}\"; expected first_key, last_key, distance, scaled or scaled_twice", op,
              a.text("alibi"));
}

void check_alibi(std::string_view op, const Attributes& a) {
  (void)alibi_form(op, a);
  const std::string& slopes = a.text("alibi_slopes");
  if (slopes != "closest_power" && slopes != "all_heads" && slopes != "from_one") {
    throw Error("{}: alibi_slopes is \"{}\"; expected closest_power, all_heads or from_one", op, slopes);
  }
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
