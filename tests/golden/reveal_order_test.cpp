#include "assay/golden/reveal_order.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "assay/golden/accumulator.h"
#include "assay/golden/bound.h"
#include "assay/golden/error.h"

namespace assay::reveal_order_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Products = RevealedOrder::Products;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Some of at most `most` sums and terms that are left, added up to one, again and again.
SumOrder random_order(std::int64_t n, std::size_t most, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> left(at(n));
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<std::int64_t>(i);
  std::vector<SumOrder::Addition> additions;
  while (left.size() > 1) {
    std::shuffle(left.begin(), left.end(), random);
    const std::size_t count = std::min(left.size(), 2 + random() % (most - 1));
    additions.emplace_back(left.end() - static_cast<std::ptrdiff_t>(count), left.end());
    left.resize(left.size() - count);
    left.push_back(n + static_cast<std::int64_t>(additions.size()) - 1);
  }
  return {n, additions};
}

/// The sets of terms of all partial sums: what an order is, whichever operand comes first.
std::vector<std::vector<std::int64_t>> partial_sums(const SumOrder& order) {
  std::vector<std::vector<std::int64_t>> sets;
  for (std::int64_t i = 0; i < order.terms(); ++i) sets.push_back({i});
  for (const SumOrder::Addition& a : order.additions()) {
    std::vector<std::int64_t> all;
    for (const std::int64_t o : a) all.insert(all.end(), sets[at(o)].begin(), sets[at(o)].end());
    std::ranges::sort(all);
    sets.push_back(all);
  }
  std::ranges::sort(sets);
  return sets;
}

// A device, written without the code under test: each addition in float, stored in the format of its
// accumulator, more than two operands cut to 24 bits below the largest (accumulator.cpp, Ampere).
struct Device {
  SumOrder order;
  DType accumulator = DType::float32, result = DType::float32;
  bool is_fma = false;

  float store(float v) const { return static_cast<float>(round_to(accumulator, static_cast<double>(v))); }

  double sum(const SumQuestion& q) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < q.x.size(); ++i) values.push_back(product(q, i));
    const auto terms = static_cast<std::int64_t>(q.x.size());
    for (const SumOrder::Addition& a : order.additions()) {
      if (a.size() > 2) {
        values.push_back(store(at_once(a, values)));
      } else if (is_fma && a[1] < terms && !q.y.empty()) {
        values.push_back(
            std::fma(static_cast<float>(q.x[at(a[1])]), static_cast<float>(q.y[at(a[1])]), values[at(a[0])]));
      } else {
        values.push_back(store(values[at(a[0])] + values[at(a[1])]));
      }
    }
    return round_to(result, static_cast<double>(values.back()));
  }
  static float product(const SumQuestion& q, std::size_t i) {
    return static_cast<float>(q.x[i]) * (q.y.empty() ? 1.0f : static_cast<float>(q.y[i]));
  }
  static float at_once(const SumOrder::Addition& a, const std::vector<float>& values) {
    int largest = -1000;
    for (const std::int64_t o : a) {
      if (values[at(o)] != 0) largest = std::max(largest, std::ilogb(values[at(o)]));
    }
    double sum = 0;
    for (const std::int64_t o : a)
      sum +=
          std::ldexp(std::trunc(std::ldexp(static_cast<double>(values[at(o)]), 24 - largest)), largest - 24);
    return static_cast<float>(sum);
  }
};

AskKernel asking(std::function<double(const SumQuestion&)> sum, DType result = DType::float32) {
  return [sum = std::move(sum), result](std::span<const SumQuestion> questions) {
    SumAnswers answers{result, {}};
    for (const SumQuestion& q : questions) answers.elements.push_back({sum(q)});
    return answers;
  };
}
AskKernel asking(const Device& device) {
  return asking([device](const SumQuestion& q) { return device.sum(q); }, device.result);
}

TEST(RevealOrder, FindsEveryTree) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      const std::int64_t n = 1 + seed % 37;
      for (const std::size_t most : {2u, 5u}) {
        const SumOrder order = random_order(n, most, seed);
        const RevealedOrder found =
            reveal_order({n, dtype, seed % 2 == 0}, asking(Device{order, DType::float32, dtype}));
        EXPECT_EQ(partial_sums(found.order), partial_sums(order)) << order.text();
      }
    }
  }
}

// A result in bfloat16 counts no more than 256 terms.
TEST(RevealOrder, CountsWhatTheResultCanHold) {
  for (const std::int64_t n : {255, 256, 257, 300, 700}) {
    const SumOrder order = random_order(n, 3, 1);
    const RevealedOrder found =
        reveal_order({n, DType::bfloat16, true}, asking(Device{order, DType::float32, DType::bfloat16}));
    EXPECT_EQ(partial_sums(found.order), partial_sums(order)) << n;
  }
}

TEST(RevealOrder, KnowsTheAccumulator) {
  for (const auto& [accumulator, bits] :
       {std::pair(DType::float32, 24), {DType::float16, 11}, {DType::bfloat16, 8}}) {
    const SumOrder order = random_order(20, 2, 1);
    const RevealedOrder found = reveal_order({20, accumulator, false}, asking(Device{order, accumulator}));
    EXPECT_EQ(found.accumulator_bits, bits);
    EXPECT_EQ(found.accumulator, accumulator);
    EXPECT_TRUE(found.is_bitwise) << found.note;
  }
  const auto in_double = [](const SumQuestion& q) {
    double sum = 0;
    for (const double v : q.x) sum += v;
    return static_cast<double>(static_cast<float>(sum));
  };
  const RevealedOrder found = reveal_order({20, DType::float32, false}, asking(in_double));
  EXPECT_EQ(found.accumulator_text(), "float64,bitwise,order=0..19");
}

// As a loop in float32 does whose rest is added in float64.
TEST(RevealOrder, TakesTheNarrowestOfPartialSums) {
  const auto mixed = [](const SumQuestion& q) {
    float lanes[2] = {};
    for (std::size_t i = 0; i < 8; ++i) lanes[i % 2] += static_cast<float>(q.x[i]);
    double rest = 0;
    for (std::size_t i = 8; i < q.x.size(); ++i) rest += q.x[i];
    return static_cast<double>(static_cast<float>(static_cast<double>(lanes[0] + lanes[1]) + rest));
  };
  const RevealedOrder found = reveal_order({12, DType::float32, false}, asking(mixed));
  EXPECT_EQ(found.order.text(), "(0..6:2)+(1..7:2)+(8..11)");
  EXPECT_EQ(found.accumulator_bits, 24);
  EXPECT_FALSE(found.is_bitwise);
  EXPECT_THAT(found.note, HasSubstr("some partial sums keep 53 bits"));
}

TEST(RevealOrder, KnowsHowProductsEnter) {
  const SumOrder order = SumOrder::parse("(0..12:4)+(1..13:4)+((2..14:4)+(3..15:4))");
  const auto products = [&](DType dtype, bool is_fma) {
    const RevealedOrder found =
        reveal_order({16, dtype, true}, asking(Device{order, DType::float32, DType::float32, is_fma}));
    EXPECT_TRUE(found.is_bitwise) << found.note;
    return found.products;
  };
  EXPECT_EQ(products(DType::float32, true), Products::fused);
  EXPECT_EQ(products(DType::float32, false), Products::rounded);
  EXPECT_EQ(products(DType::bfloat16, false), Products::exact);
}

// From the last term on: the product that is there first is the last one.
TEST(RevealOrder, PutsTheRoundedProductFirst) {
  const SumOrder order = SumOrder::parse("9..0");
  const RevealedOrder found =
      reveal_order({10, DType::float32, true}, asking(Device{order, DType::float32, DType::float32, true}));
  EXPECT_EQ(found.accumulator_text(), "float32,bitwise,fma,order=9..0");
}

TEST(RevealOrder, ClaimsNoBitsOfAMatrixUnit) {
  const SumOrder order = SumOrder::parse("{{0..7}+8..15}");
  const RevealedOrder found = reveal_order({16, DType::float16, true}, asking(Device{order}));
  EXPECT_EQ(found.order, order);
  EXPECT_EQ(found.accumulator_bits, 24);
  EXPECT_FALSE(found.is_bitwise);
  EXPECT_THAT(found.note, HasSubstr("differ from IEEE 754 additions of float32"));
}

TEST(RevealOrder, SaysThatTermsAreRoundedFirst) {
  const auto tf32 = [](const SumQuestion& q) {
    float sum = 0;
    for (std::size_t i = 0; i < q.x.size(); ++i)
      sum += static_cast<float>(round_to(DType::tfloat32, q.x[i]) * round_to(DType::tfloat32, q.y[i]));
    return static_cast<double>(sum);
  };
  const RevealedOrder found = reveal_order({64, DType::float32, true}, asking(tf32));
  EXPECT_EQ(found.order.text(), "0..63");
  EXPECT_FALSE(found.is_bitwise);
}

// A kernel that computes in float16 has no 2^96.
TEST(RevealOrder, StaysWithinAFloat16) {
  const SumOrder order = random_order(30, 2, 3);
  const RevealedOrder found = reveal_order({30, DType::float32, false}, asking([&](const SumQuestion& q) {
                                             SumQuestion half = q;
                                             for (double& v : half.x) v = round_to(DType::float16, v);
                                             return Device{order}.sum(half);
                                           }));
  EXPECT_EQ(partial_sums(found.order), partial_sums(order));
}

TEST(RevealOrder, RefusesWhatHasNoOrder) {
  const auto complaint = [](std::int64_t n, std::function<double(const SumQuestion&)> sum) -> std::string {
    try {
      return reveal_order({n, DType::float32, false}, asking(std::move(sum))).text();
    } catch (const Error& e) {
      return e.what();
    }
  };
  const auto plain = [](std::vector<double> x) {
    float sum = 0;
    for (const double v : x) sum += static_cast<float>(v);
    return static_cast<double>(sum);
  };
  EXPECT_THAT(complaint(8, [](const SumQuestion&) { return 3.0; }),
              HasSubstr("term 0 of 1, the others 0, makes 3"));
  EXPECT_THAT(complaint(8,
                        [&](const SumQuestion& q) {
                          return plain({q.x.begin(), q.x.end() - 1});
                        }),
              HasSubstr("terms 0 to 7 of 1, the others 0, make 7; expected 8"));
  EXPECT_THAT(complaint(8, [](const SumQuestion&) { return NAN; }), HasSubstr("makes nan"));
  EXPECT_THAT(complaint(8,
                        [](const SumQuestion& q) {
                          double units = 0, masks = 0;  // as a compensated sum has them
                          for (const double v : q.x) (std::abs(v) > 1e9 ? masks : units) += v;
                          return masks + units;
                        }),
              HasSubstr("hide no term"));
  std::mt19937 random(1);
  EXPECT_THAT(complaint(64,
                        [&](const SumQuestion& q) {
                          std::vector<double> x = q.x;
                          std::ranges::shuffle(x, random);
                          return plain(x);
                        }),
              HasSubstr("no order was found"));
  // Repeatable as long as nothing is rounded.
  int calls = 0;
  EXPECT_THAT(complaint(16,
                        [&](const SumQuestion& q) {
                          return plain(q.x) + (q.x[3] != 0 && std::abs(q.x[3]) < 0.9 ? 1e-3 * ++calls : 0);
                        }),
              HasSubstr("not repeatable"));
}

TEST(RevealOrder, SaysThatElementsDiffer) {
  const SumOrder orders[] = {random_order(30, 2, 1), random_order(30, 2, 2)};
  const AskKernel ask = [&](std::span<const SumQuestion> questions) {
    SumAnswers answers;
    for (const SumQuestion& q : questions)
      answers.elements.push_back({Device{orders[0]}.sum(q), Device{orders[1]}.sum(q)});
    return answers;
  };
  try {
    reveal_order({30, DType::float32, false}, ask);
    FAIL() << "two orders were taken for one";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("does not add up all its elements in one order"));
  }
}

TEST(RevealOrder, AsksAFewTimesAsOftenAsThereAreTerms) {
  const auto questions = [](std::string_view order, std::int64_t n) {
    return reveal_order({n, DType::float32, false}, asking(Device{SumOrder::parse(order)})).questions;
  };
  EXPECT_LT(questions("0..499", 500), 2 * 500 + 150);
  EXPECT_LT(questions("499..0", 500), 3 * 500 + 150);
}

TEST(SumOrder, ReadsWhatItWrites) {
  for (const std::string text : {"0", "0+1", "0..9", "9..0", "(0+1)+(2+3)", "{{0..15}+16..31}",
                                 "(0+(1+2)+3..7:2)+(4+6)", "(0..3)+(4..7)+8+9"}) {
    EXPECT_EQ(SumOrder::parse(text).text(), text);
  }
  for (unsigned seed = 0; seed < 50; ++seed) {
    const SumOrder order = random_order(1 + seed, 2 + seed % 4, seed);
    EXPECT_EQ(partial_sums(SumOrder::parse(order.text())), partial_sums(order)) << order.text();
  }
}

TEST(SumOrder, RefusesWhatIsNone) {
  for (const std::string_view text : {"", "+", "0+", "0+0", "1", "0+2", "(0+1", "0+1)", "{0+1", "(0+1}",
                                      "0..", "3..0:2", "0..9:0", "a", "0 1", "0-1", "99999999999999999999"}) {
    EXPECT_THROW(SumOrder::parse(text), Error) << text;
  }
}

TEST(SumOrder, IsDescribed) {
  const auto words = [](std::string_view text) { return SumOrder::parse(text).describe(); };
  EXPECT_EQ(words("0"), "one term");
  EXPECT_EQ(words("0..99"), "one after the other");
  EXPECT_EQ(words("99..0"), "one after the other, the last first");
  EXPECT_EQ(words("((0+1)+(2+3))+((4+5)+(6+7))"), "pairwise");
  EXPECT_EQ(words("((0+4)+(2+6))+((1+5)+(3+7))"), "term i with term i + 4, and so on by halves");
  EXPECT_EQ(words("{0..7}"), "all 8 terms at once");
  EXPECT_EQ(words("{{{0..15}+16..31}+32..47}"), "16 terms and the running sum at once, from the first on");
  EXPECT_EQ(words("0+1+3+2+5+4+6"), "one after the other, of each two the second first");
  EXPECT_EQ(words("(0..12:4)+(1..13:4)+((2..14:4)+(3..15:4))"),
            "4 lanes (term i in lane i mod 4), each one after the other, joined pairwise");
  EXPECT_EQ(words("(0..4)+(5..9)+(10..14)"),
            "blocks of 5, each one after the other, joined one after the other");
  EXPECT_EQ(words("(0..6:2)+(1..7:2)+8+9"),
            "terms 0 to 7: (2 lanes (term i in lane i mod 2), each one after the other, joined in one "
            "addition), then 2 more one after the other");
  EXPECT_THAT(words("(0+5)+(1+3)+(2+4)"), HasSubstr("a tree of 5 additions"));
}

// The running error along the tree holds, and what rounds to nearest is within it.
TEST(SumOrder, BoundsItsLoss) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::int64_t n = 2 + seed % 60;
    const Device device{random_order(n, seed % 2 == 0 ? 2 : 6, seed)};
    SumQuestion q;
    double exact = 0;
    std::vector<Bound> terms;
    for (std::int64_t i = 0; i < n; ++i) {
      q.x.push_back(uniform(random));
      exact += q.x.back();
      terms.emplace_back(q.x.back());
    }
    const SumOrder::Loss loss = device.order.loss(terms, 0x1p-24);
    EXPECT_LE(std::abs(device.sum(q) - exact), loss.guaranteed) << device.order.text();
    if (device.order.is_binary()) {
      EXPECT_LE(loss.alike, loss.guaranteed);
    }
  }
}

// What an accumulator allows in a stated order holds, and says more than one in any order.
TEST(SumOrder, IsAnAccumulators) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const std::int64_t n : {20, 300, 4096}) {
    std::string in_a_row = "0";
    for (std::int64_t i = 1; i < n; ++i) in_a_row += fmt::format("+{}", i);
    for (unsigned seed = 0; seed < 10; ++seed) {
      const Device device{seed == 0 ? SumOrder::parse(in_a_row) : random_order(n, 2, seed)};
      SumQuestion q;
      double exact = 0;
      std::vector<Bound> terms;
      for (std::int64_t i = 0; i < n; ++i) {
        q.x.push_back(uniform(random));
        exact += q.x.back();
        terms.emplace_back(q.x.back());
      }
      const auto allowed = [&](const std::string& accumulator) {
        return accumulate({0x1p-24, 0x1p-149, parse_accumulator(accumulator)}, terms).error;
      };
      const double stated = allowed("float32,order=" + device.order.text());
      EXPECT_LE(std::abs(device.sum(q) - exact), stated) << n << " " << seed;
      if (seed > 0) {
        EXPECT_LT(stated, allowed("float32")) << n << " " << seed;
      }
      EXPECT_LE(stated, allowed("float32,worst,order=" + device.order.text()));
    }
  }
}

TEST(SumOrder, IsStatedOnce) {
  for (const std::string text :
       {"float32,order=0+0", "float32,order=", "float32,bitwise", "float32,fma", "float32,tree,order=0..3",
        "float32,promote=2,order=0..3", "float32,truncate,bitwise,order=0..3", "hopper,order=0..3",
        "float32,order=0..3,vax"}) {
    EXPECT_THROW(parse_accumulator(text), Error) << text;
  }
  const Accumulator a = parse_accumulator("bfloat16,bitwise,fma,order=(0..6:2)+(1..7:2)");
  EXPECT_EQ(a.dtype, DType::bfloat16);
  EXPECT_TRUE(a.bitwise && a.fma);
  EXPECT_EQ(a.terms_in_order->terms(), 8);
  EXPECT_EQ(accumulator_in_any_order("bfloat16,worst,bitwise,fma,order=0..3"), "bfloat16,worst");
  EXPECT_EQ(accumulator_in_words("bfloat16,order=0..3"), "bfloat16, order of 4 terms: one after the other");
}

}  // namespace
}  // namespace assay::reveal_order_test
