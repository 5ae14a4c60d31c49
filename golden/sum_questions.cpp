#include "assay/golden/sum_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/golden/error.h"

namespace assay {
namespace {

// A mask hides the sum of some units in a float32 accumulator: its 24 bits, one for the half below a power of
// two, one that a sum of units may round up to.
constexpr int bits_of_masked = 26;
// Between mask and unit of float16, which is enough for float32 and thousands of units.
constexpr int enough_bits = 39;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

SumQuestions::SumQuestions(const KernelUnderQuestion& kernel, const AskKernel& ask)
    : kernel_(kernel), ask_(ask) {
  if (kernel.terms < 1) throw Error("a sum of {} terms; expected one or more", kernel.terms);
  if (!is_float(kernel.dtype)) throw Error("terms of {}; expected a floating dtype", name(kernel.dtype));
  std::string problem;
  for (const Scale& scale : scales()) {
    scale_ = scale;
    const std::string of_scale = problem_of_scale();
    if (of_scale.empty()) return;
    if (problem.empty()) problem = of_scale;
  }
  throw Error("{}", problem);
}

double SumQuestions::unit() const {
  return std::ldexp(1, scale_.unit);
}
double SumQuestions::mask() const {
  return std::ldexp(1, scale_.mask);
}

// FPRev's, sec. 4: as far apart as the dtype has them. A kernel may flush subnormals, or compute in float16.
std::vector<SumQuestions::Scale> SumQuestions::scales() const {
  const FloatFormat &f = format_of(kernel_.dtype), &half = format_of(DType::float16);
  const auto all_of = [](const FloatFormat& format, int factors) {
    const int normal = factors * format.min_exponent(), mask = factors * format.max_exponent();
    return std::vector<Scale>{{mask, normal - factors * format.fraction_bits}, {mask, normal}};
  };
  if (f.max_exponent() > half.max_exponent()) {
    std::vector<Scale> scales = all_of(half, 1);
    scales.insert(scales.begin(), {3 * (f.max_exponent() + 1) / 4, 0});
    return scales;
  }
  const bool is_short = f.max_exponent() - f.min_exponent() + f.fraction_bits < enough_bits;
  return all_of(f, kernel_.has_products && is_short ? 2 : 1);
}

SumQuestion SumQuestions::zeros() const {
  const std::size_t n = index(terms());
  return {std::vector<double>(n, 0.0), std::vector<double>(kernel_.has_products ? n : 0, 1.0)};
}

void SumQuestions::set(SumQuestion& q, std::int64_t term, int exponent, double sign) const {
  const FloatFormat& f = format_of(kernel_.dtype);
  const int of_x = std::clamp(exponent, f.min_exponent() - f.fraction_bits, f.max_exponent());
  q.x[index(term)] = std::ldexp(sign, of_x);
  if (kernel_.has_products) q.y[index(term)] = std::ldexp(1, exponent - of_x);
}

void SumQuestions::set_masks(SumQuestion& q, std::int64_t positive, std::int64_t negative) const {
  set(q, positive, scale_.mask);
  set(q, negative, scale_.mask, -1);
}

void SumQuestions::Batch::add(SumQuestion q) {
  waiting_.push_back(std::move(q));
  if (waiting_.size() >= questions_.kernel_.most_questions) flush();
}

std::vector<double> SumQuestions::Batch::answers() && {
  flush();
  return std::move(answers_);
}

void SumQuestions::Batch::flush() {
  if (waiting_.empty()) return;
  const SumAnswers made = questions_.ask_(waiting_);
  if (made.elements.size() != waiting_.size())
    throw Error("the kernel gave {} answers to {} questions", made.elements.size(), waiting_.size());
  questions_.result_ = made.dtype;
  questions_.asked_ += static_cast<std::int64_t>(waiting_.size());
  for (const std::vector<double>& elements : made.elements) {
    if (elements.empty()) throw Error("the kernel returned no element; expected the sum");
    const double first = elements.front();
    const auto other = std::ranges::find_if(
        elements, [&](double v) { return v != first && !(std::isnan(v) && std::isnan(first)); });
    if (other != elements.end())
      throw Error(
          "the kernel does not add up all its elements in one order: of the same terms element 0 is {:g} and "
          "element {} is {:g}; expected a shape in which they are alike",
          first, other - elements.begin(), *other);
    answers_.push_back(first);
  }
  waiting_.clear();
}

std::vector<double> SumQuestions::ask(std::vector<SumQuestion> questions) {
  Batch batch(*this);
  for (SumQuestion& q : questions) batch.add(std::move(q));
  return std::move(batch).answers();
}

// A sum of an odd number of units has all bits from its highest to the last: where it is right, no count of
// as many bits is rounded, in any order.
std::string SumQuestions::problem_of_scale() {
  const int hidden = std::clamp(bits_between() - bits_of_masked, 1, 30);
  const std::int64_t most = std::min(terms(), std::int64_t{1} << hidden);
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count <= most; count = 2 * count + 1) counts.push_back(count);
  if (const std::int64_t odd = most - (most + 1) % 2; odd > counts.back()) counts.push_back(odd);
  std::vector<SumQuestion> questions;
  for (const std::int64_t count : counts) {
    questions.push_back(zeros());
    for (std::int64_t i = 0; i < count; ++i) set_unit(questions.back(), i);
  }
  const std::vector<double> answers = ask(std::move(questions));
  std::size_t exact = 0;
  while (exact < counts.size() && answers[exact] == unit() * static_cast<double>(counts[exact])) ++exact;
  countable_ = exact == counts.size() ? most : exact == 0 ? 0 : counts[exact - 1];
  if (countable_ == 0)
    return fmt::format(
        "no sum of its terms: term 0 of {:g}, the others 0, makes {:g}; expected the term itself", unit(),
        answers.front());
  if (std::string problem = problem_of_terms(); !problem.empty()) return problem;
  if (terms() == 1) return "";
  SumQuestion masks = zeros();
  set_masks(masks, 0, terms() - 1);
  const double left = ask({masks}).front();
  if (left == 0) return "";
  return fmt::format(
      "no sum of its terms: terms 0 and {} of {:g} and {:g}, the others 0, make {:g}; expected 0",
      terms() - 1, mask(), -mask(), left);
}

// Each term counts, and once.
std::string SumQuestions::problem_of_terms() {
  Batch batch(*this);
  for (std::int64_t begin = 0; begin < terms(); begin += countable_) {
    SumQuestion q = zeros();
    for (std::int64_t i = begin; i < std::min(begin + countable_, terms()); ++i) set_unit(q, i);
    batch.add(std::move(q));
  }
  std::int64_t begin = 0;
  for (const double answer : std::move(batch).answers()) {
    const std::int64_t end = std::min(begin + countable_, terms());
    const double expected = unit() * static_cast<double>(end - begin);
    if (answer != expected)
      return fmt::format(
          "no sum of its terms: {} of {:g}, the others 0, make{} {:g}; expected {:g}",
          end - begin == 1 ? fmt::format("term {}", begin) : fmt::format("terms {} to {}", begin, end - 1),
          unit(), end - begin == 1 ? "s" : "", answer, expected);
    begin = end;
  }
  return "";
}

}  // namespace assay
