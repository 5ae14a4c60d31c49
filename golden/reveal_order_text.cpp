#include <fmt/format.h>

#include "assay/golden/reveal_order.h"

namespace assay {
namespace {

std::string arithmetic_of(const RevealedOrder& r) {
  return fmt::format("{}{}{}", name(r.accumulator), r.is_bitwise ? ",bitwise" : "",
                     r.products == RevealedOrder::Products::fused ? ",fma" : "");
}

std::string_view in_words(RevealedOrder::Products products) {
  switch (products) {
    case RevealedOrder::Products::none:
      return "none";
    case RevealedOrder::Products::exact:
      return "exact in the accumulator";
    case RevealedOrder::Products::rounded:
      return "rounded before they are added";
    case RevealedOrder::Products::fused:
      return "fused: an addition rounds product and sum at once";
    case RevealedOrder::Products::unknown:
      break;
  }
  return "rounded in a way that is not known";
}

}  // namespace

std::string_view name(RevealedOrder::Products products) {
  constexpr std::string_view names[] = {"none", "exact", "rounded", "fused", "unknown"};
  return names[static_cast<std::size_t>(products)];
}

std::string RevealedOrder::accumulator_text() const {
  return fmt::format("{},order={}", arithmetic_of(*this), order.text());
}

std::string RevealedOrder::text() const {
  constexpr std::size_t width = 90;
  std::string tree = order.text();
  if (tree.size() > width) tree = tree.substr(0, width) + "..";
  std::string text = fmt::format("{} terms of {}: {}\n", order.terms(), name(dtype), order.describe());
  text += fmt::format("order        {}\n", tree);
  text += fmt::format("depth        {} of {} additions\n", order.depth(), order.additions().size());
  text += accumulator_bits ? fmt::format("accumulator  {} bits: {}\n", *accumulator_bits, name(accumulator))
                           : fmt::format("accumulator  taken for {}: of so few terms no bits are seen\n",
                                         name(accumulator));
  if (products != Products::none) text += fmt::format("products     {}\n", in_words(products));
  text += is_bitwise ? "bits         those of IEEE 754 additions in this order\n"
                     : fmt::format("bits         not known: {}\n", note);
  return text + fmt::format("asked        {} sums\n", questions);
}

std::string RevealedOrder::json() const {
  return fmt::format(
      R"({{"terms": {}, "dtype": "{}", "result": "{}", "shape": "{}", "depth": {}, "accumulator": "{}", )"
      R"("accumulator_bits": {}, "products": "{}", "bitwise": {}, "note": "{}", "questions": {}, "order": "{}"}})",
      order.terms(), name(dtype), name(result), order.describe(), order.depth(), arithmetic_of(*this),
      accumulator_bits ? std::to_string(*accumulator_bits) : "null", name(products), is_bitwise, note,
      questions, order.text());
}

}  // namespace assay
