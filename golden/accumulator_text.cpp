#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "assay/golden/accumulator.h"
#include "assay/golden/dtype.h"
#include "assay/golden/error.h"
#include "assay/golden/sum_order.h"

namespace assay {
namespace {

// What one instruction adds: the model and numbers of MMA-Sim, commit c7851383 (simulator/nv_ptx.py, amd.py).
// Ampere and Ada take an instruction in two halves.
struct MatrixUnit {
  std::string_view name;
  std::int64_t fused;
  int fraction_bits, result_bits;
};
constexpr MatrixUnit units[] = {
    {"volta", 4, 23, 23},          {"ampere", 8, 24, 23},     {"ampere-tf32", 4, 24, 23},
    {"ada-fp8", 16, 13, 13},       {"hopper", 16, 25, 23},    {"hopper-tf32", 8, 25, 23},
    {"hopper-fp8", 32, 13, 13},    {"blackwell", 16, 25, 23}, {"blackwell-tf32", 8, 25, 23},
    {"blackwell-fp8", 32, 25, 23}, {"cdna3", 8, 24, 23},      {"cdna3-tf32", 4, 24, 23},
    {"cdna3-fp8", 16, 24, 23},
};

std::int64_t positive(std::string_view text, std::string_view whole) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error == std::errc() && end == text.data() + text.size() && n > 0) return n;
  throw Error("accumulator '{}': '{}' is no number; expected one above 0", whole, text);
}

}  // namespace

Accumulator parse_accumulator(std::string_view text) {
  Accumulator a;
  std::string_view rest = text;
  const auto next = [&] {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    return word;
  };
  const std::string_view kind = next();
  const auto unit = std::ranges::find(units, kind, &MatrixUnit::name);
  const std::optional<DType> dtype = parse_dtype(kind);
  if (unit != std::end(units)) {
    a.fused = unit->fused;
    a.fraction_bits = unit->fraction_bits;
    a.result_bits = unit->result_bits;
  } else if (dtype && is_float(*dtype)) {
    a.dtype = *dtype;
    a.unit_roundoff = unit_roundoff(*dtype);
  } else {
    std::string names;
    for (const MatrixUnit& known : units) names += (names.empty() ? "" : ", ") + std::string(known.name);
    throw Error("there is no accumulator '{}'; expected a floating dtype or one of {}", kind, names);
  }
  while (!rest.empty()) {
    const std::string_view word = next();
    if (word.starts_with("promote=")) {
      a.promote = positive(word.substr(8), text);
    } else if (word.starts_with("block=") && a.fused == 0) {
      a.order = Accumulator::Order::blocked;
      a.block = positive(word.substr(6), text);
    } else if (word == "tree" && a.fused == 0) {
      a.order = Accumulator::Order::tree;
    } else if (word == "truncate" && a.fused == 0) {
      a.truncates = true;
    } else if (word == "worst" && a.fused == 0) {
      a.worst_case = true;
    } else if (word.starts_with("order=") && a.fused == 0) {
      a.terms_in_order = std::make_shared<const SumOrder>(SumOrder::parse(word.substr(6)));
    } else if ((word == "bitwise" || word == "fma") && a.fused == 0) {
      (word == "fma" ? a.fma : a.bitwise) = true;
    } else {
      throw Error("accumulator '{}': '{}' is not known{}", text, word,
                  a.fused == 0
                      ? "; expected tree, block=N, truncate, worst, promote=N, order=TERMS, bitwise or fma"
                      : "; expected promote=N");
    }
  }
  if ((a.bitwise || a.fma) && a.terms_in_order == nullptr)
    throw Error("accumulator '{}': bitwise and fma are of a known order; expected order=TERMS with them",
                text);
  if (a.terms_in_order && (a.promote > 0 || a.order != Accumulator::Order::any))
    throw Error("accumulator '{}' has two orders; expected order=TERMS without tree, block and promote",
                text);
  if (a.bitwise && a.truncates)
    throw Error("accumulator '{}': bitwise is of IEEE 754 additions to nearest; expected it without truncate",
                text);
  return a;
}

std::string accumulator_in_any_order(std::string_view text) {
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (word != "bitwise" && word != "fma" && !word.starts_with("order="))
      kept += (kept.empty() ? "" : ",") + std::string(word);
    begin = end + 1;
  }
  return kept;
}

std::string accumulator_in_words(std::string_view text) {
  const auto order = text.find(",order=");
  if (order == std::string_view::npos) return std::string(text);
  return fmt::format("{}, order of {} terms: {}", text.substr(0, order),
                     parse_accumulator(text).terms_in_order->terms(),
                     parse_accumulator(text).terms_in_order->describe());
}

}  // namespace assay
