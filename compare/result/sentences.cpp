#include "assay/compare/result/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace assay::sentences {

std::string left(double residual) {
  return fmt::format("error/allowed {:.2g}", residual);
}

std::string partial_sum(const CauseParameters& p, double residual) {
  return fmt::format(
      "their sum is the reference ({}): each rank holds a partial sum, the all-reduce over {} is missing",
      left(residual), p.axis.empty() ? "these ranks" : p.axis);
}

std::string stale(const CauseParameters& p, double residual) {
  std::vector<std::string> which;
  if (p.step) which.push_back(fmt::format("step {}", *p.step));
  if (p.micro_batch) which.push_back(fmt::format("micro-batch {}", *p.micro_batch));
  if (p.call) which.push_back(fmt::format("call {}", *p.call));
  return fmt::format("it is the {} of {} ({})", p.operand.empty() ? "reference's tensor" : "recorded one",
                     fmt::join(which, ", "), left(residual));
}

std::string added(const CauseParameters& p, double residual) {
  const double k = p.factor.value();
  if (p.tensor.empty()) {
    const std::string where = p.positions.empty() ? "" : fmt::format("{} {}: ", p.along, p.positions.front());
    if (p.term == "a constant")
      return fmt::format("actual = reference {} {}; {}", k < 0 ? "-" : "+",
                         factor_text(std::abs(k), p.factor_names), left(residual));
    return fmt::format("{}actual = reference {} {:.6g} x {}; {}", where, k < 0 ? "-" : "+", std::abs(k),
                       p.term, left(residual));
  }
  const std::string_view decay = !p.decays.value_or(false) ? ""
                                 : k < 0                   ? ": weight decay that the reference does not have"
                                                           : ": the reference's weight decay is missing";
  return fmt::format("actual = reference {} {:.6g} x {} ({}){}; {}", k < 0 ? "-" : "+", std::abs(k), p.term,
                     p.tensor, decay, left(residual));
}

std::string other_tensor(const CauseParameters& p, double residual) {
  if (!p.how.empty()) return p.how;
  const std::string_view whose = p.operand.empty() ? "the reference's " : "";
  if (!p.elements) return fmt::format("it is {}{} ({})", whose, p.tensor, left(residual));
  return fmt::format("{} {} of {} are those of the reference's {} ({})", p.along,
                     fmt::join(p.positions, ", "), p.of.value(), p.tensor, left(residual));
}

std::string sum_of_pieces(const CauseParameters& p, double residual) {
  return fmt::format(
      "each of its {} pieces along {} is the sum of all of them ({}): added over ranks that hold other "
      "pieces",
      p.of.value(), p.along, left(residual));
}

std::string left_out(const CauseParameters& p, double) {
  const std::string where =
      p.elements ? fmt::format("{} of {} elements are", *p.elements, p.of.value()) : "it is";
  return fmt::format("{} {}'s {} unchanged: {} was left out{}", where, p.op, p.operand, p.op,
                     p.elements ? " there" : "");
}

std::string missing_term(const CauseParameters& p, double residual) {
  return fmt::format("it is the sum without {} ({})", p.tensor, left(residual));
}

std::string missing_layer(const CauseParameters& p, double) {
  return fmt::format("the subject has none of the {} tensors of {}: the layer was not computed",
                     p.elements.value(), p.module);
}

}  // namespace assay::sentences
