// certified_matmul against one dgemm of the same shape (inputs already widened), single thread, alternating
// in one run: a row is a kind of data, the ratio one of medians. `wrong` counts sampled elements that differ
// from a sum in 768 bits, which is exact for float32 products.
//   bench_certified_matmul [REPEATS]
#include <cblas.h>
#include <fmt/core.h>

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "assay/golden/certified_matmul.h"
#include "assay/golden/dtype.h"

namespace assay {
namespace {

using Exact = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<232>>;  // digits

struct Data {
  const char* name;
  std::function<double(std::mt19937_64&, bool left)> draw;
  DType dtype = DType::float32;
};

double normal(std::mt19937_64& random, bool = true) {
  return std::normal_distribution<double>()(random);
}
double heavy_tail(std::mt19937_64& random, bool) {
  return normal(random) * std::exp(2 * normal(random));
}
double post_relu(std::mt19937_64& random, bool left) {
  const double x = normal(random);
  return left ? std::max(x, 0.) : x;
}

// Of the thread, so that others on the machine count less.
double seconds(const std::function<void()>& f) {
  const auto now = [] {
    std::timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  f();
  return now() - start;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

void measure(const Data& data, int m, int n, int k, bool transpose_a, bool transpose_b, int repeats) {
  const auto size = [](int x, int y) { return static_cast<std::size_t>(x) * static_cast<std::size_t>(y); };
  std::mt19937_64 random(1);
  std::vector<float> a(size(m, k)), b(size(k, n)), y(size(m, n));
  for (float& x : a) x = static_cast<float>(round_to(data.dtype, data.draw(random, true)));
  for (float& x : b) x = static_cast<float>(round_to(data.dtype, data.draw(random, false)));
  const MatrixView view_a = {a.data(), m, k, transpose_a ? m : k, transpose_a};
  const MatrixView view_b = {b.data(), k, n, transpose_b ? k : n, transpose_b};
  const std::vector<double> wide_a(a.begin(), a.end()), wide_b(b.begin(), b.end());
  std::vector<double> c(y.size());
  std::vector<double> plain, certified;
  Certificate certificate;
  for (int r = 0; r < repeats; ++r) {
    plain.push_back(seconds([&] {
      cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                  transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1, wide_a.data(), transpose_a ? m : k,
                  wide_b.data(), transpose_b ? k : n, 0, c.data(), n);
    }));
    certified.push_back(seconds([&] { certificate = certified_matmul(view_a, view_b, y); }));
  }
  int wrong = 0;
  constexpr int samples = 10000;
  Exact sum;
  for (int s = 0; s < samples; ++s) {
    const auto i = static_cast<std::int64_t>(random() % static_cast<unsigned>(m));
    const auto j = static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
    sum = 0;
    for (int x = 0; x < k; ++x) sum += double{view_a(i, x)} * double{view_b(x, j)};
    // mpfr_get_flt rounds once, to nearest even.
    if (mpfr_get_flt(sum.backend().data(), MPFR_RNDN) != y[static_cast<std::size_t>(i * n + j)]) ++wrong;
  }
  fmt::print("{:<16} {}x{}x{}{}{} {:7.1f} ms {:5.1f} GF {:6.3f}   {:8} {:8} {:6} {:5}   {}/{}\n", data.name,
             m, n, k, transpose_a ? " a^T" : "    ", transpose_b ? " b^T" : "    ", median(plain) * 1e3,
             2e-9 * m * n * k / median(plain), median(certified) / median(plain), certificate.exact,
             certificate.certified, certificate.repaired_double_double, certificate.repaired_exact, wrong,
             samples);
  std::fflush(stdout);
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  using namespace assay;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 15;
  openblas_set_num_threads(1);
  fmt::print("{:<16} {:<19} {:>20} {:>11} {:>6}   {:>8} {:>8} {:>6} {:>5}   {}\n", "data", "M x N x K",
             "dgemm", "", "ratio", "exact", "certif.", "dd", "exact", "wrong");
  const Data kinds[] = {{"fp32 normal", normal},
                        {"fp32 heavy tail", heavy_tail},
                        {"fp32 post-ReLU", post_relu},
                        {"bf16 normal", normal, DType::bfloat16},
                        {"fp16 normal", normal, DType::float16}};
  for (const int k : {1024, 4096})
    for (const Data& kind : kinds) measure(kind, 1024, 1024, k, false, false, repeats);
  measure(kinds[0], 1024, 1024, 1024, false, true, repeats);
  measure(kinds[0], 1024, 1024, 1024, true, false, repeats);
  measure(kinds[3], 1024, 1024, 1024, true, false, repeats);
}
