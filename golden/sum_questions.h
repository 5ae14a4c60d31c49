#pragma once

#include <cstdint>
#include <vector>

#include "assay/golden/reveal_order.h"

namespace assay {

/// Asks a kernel for sums of terms that are powers of two, or 0.
class SumQuestions {
 public:
  /// Both must outlive this. @throws Error  if what the kernel makes is no sum of all its terms
  SumQuestions(const KernelUnderQuestion&, const AskKernel&);

  std::int64_t terms() const { return kernel_.terms; }
  const KernelUnderQuestion& kernel() const { return kernel_; }
  double unit() const;  ///< a power of two, as the mask: beside that it is nothing
  double mask() const;
  int log2_of_unit() const { return scale_.unit; }
  int bits_between() const { return scale_.mask - scale_.unit; }
  std::int64_t countable() const { return countable_; }  ///< so many units are added without a rounding

  SumQuestion zeros() const;
  void set(SumQuestion&, std::int64_t term, int exponent, double sign = 1) const;
  void set_unit(SumQuestion& q, std::int64_t term) const { set(q, term, scale_.unit); }
  void set_masks(SumQuestion&, std::int64_t positive, std::int64_t negative) const;

  /// Questions are as long as the sum: no more of them are kept than are asked at once.
  class Batch {
   public:
    explicit Batch(SumQuestions& questions) : questions_(questions) {}
    void add(SumQuestion);
    /// One for each question.
    std::vector<double> answers() &&;

   private:
    void flush();
    SumQuestions& questions_;
    std::vector<SumQuestion> waiting_;
    std::vector<double> answers_;
  };
  std::vector<double> ask(std::vector<SumQuestion>);

  DType result() const { return result_; }
  std::int64_t asked() const { return asked_; }

 private:
  // Powers of two.
  struct Scale {
    int mask = 0, unit = 0;
  };

  std::vector<Scale> scales() const;
  std::string problem_of_scale();
  std::string problem_of_terms();

  const KernelUnderQuestion& kernel_;
  const AskKernel& ask_;
  Scale scale_;
  std::int64_t countable_ = 0;
  DType result_ = DType::float32;
  std::int64_t asked_ = 0;
};

/// What the accumulator holds and how products enter it; whether random terms have the bits of IEEE 754.
void reveal_arithmetic(RevealedOrder&, SumQuestions&);

}  // namespace assay
