#include "assay/dumps/record/statistics_in_json.h"

#include <fmt/core.h>

#include <limits>

#include "assay/golden/error.h"

namespace assay {
namespace {

// JSON has no words for what is not finite: the listing writes strings.
std::optional<double> number(const Json& object, std::string_view key, std::string_view where) {
  const Json* value = object.find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto plain = value->number()) return plain;
  const std::string& text = value->string(fmt::format("{}: {}", where, key));
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf" || text == "-inf") return text == "inf" ? infinity : -infinity;
  throw Error("{}: {} is '{}', expected a number, nan, inf or -inf", where, key, text);
}

std::optional<std::int64_t> count(const Json& object, std::string_view key, std::int64_t elements,
                                  std::string_view where) {
  const Json* value = object.find(key);
  if (value == nullptr) return std::nullopt;
  const std::int64_t found = value->integer(fmt::format("{}: {}", where, key));
  if (found < 0 || found > elements)
    throw Error("{}: {} is {}, expected 0 to {} elements", where, key, found, elements);
  return found;
}

}  // namespace

std::optional<Statistics> statistics_in(const Json& object, std::int64_t elements, std::string_view where) {
  Statistics s;
  s.min = number(object, "min", where);
  s.max = number(object, "max", where);
  s.mean = number(object, "mean", where);
  s.l2 = number(object, "l2", where);
  s.sum = number(object, "sum", where);
  s.abs_sum = number(object, "abs_sum", where);
  s.nan = count(object, "nan", elements, where);
  s.inf = count(object, "inf", elements, where);
  s.rounding = number(object, "rounding", where).value_or(0);
  if (!(s.rounding >= 0 && s.rounding < 1))
    throw Error("{}: rounding is {}, expected 0 to 1", where, s.rounding);
  if (const Json* word = object.find("arithmetic")) {
    const std::string& text = word->string(fmt::format("{}: arithmetic", where));
    s.arithmetic = parse_dtype(text);
    if (!s.arithmetic || !is_float(*s.arithmetic))
      throw Error("{}: arithmetic is '{}', expected a floating dtype such as float64", where, text);
  }
  // Where there is no number, inspect writes zeros.
  if (s.nan == elements) s.min = s.max = std::nullopt;
  return s == Statistics{} ? std::nullopt : std::optional(s);
}

}  // namespace assay
