#include <cblas.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <hwy/targets.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "certified_product.h"

// The same bits for any number of threads, instruction set and kernel of OpenBLAS.
namespace assay::certified_matmul_bits_test {
namespace {

Product mixed_product(int threads) {
  Random random(6);
  Matrix a(300, 400), b(400, 200, true);
  a.fill([&](std::int64_t i, std::int64_t) { return i % 3 == 0 ? any_exponent(random) : normal(random); });
  b.fill([&](std::int64_t, std::int64_t j) { return j % 7 == 0 ? any_exponent(random) : normal(random); });
  for (std::int64_t k = 0; k < 400; ++k) a.at(200, k) = k % 2 == 0 ? a.at(100, k) : -a.at(101, k);
  a.at(50, 60) = -inf;
  return multiply(a, b, threads);
}

std::uint64_t hash(const std::vector<float>& y) {
  std::uint64_t h = 0xcbf29ce484222325;  // FNV-1a, a word at a time
  for (const float x : y) h = (h ^ bits(x)) * 0x100000001b3;
  return h;
}

TEST(CertifiedMatmul, SameBitsForAnyThreadCount) {
  const std::uint64_t one = hash(mixed_product(1).y);
  for (const int threads : {0, 2, 3, 7, 100}) EXPECT_EQ(hash(mixed_product(threads).y), one) << threads;
}

TEST(CertifiedMatmul, SameBitsForEveryInstructionSet) {
  const std::uint64_t best = hash(mixed_product(1).y);
  for (std::int64_t target = 1; target != 0; target <<= 1) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(hash(mixed_product(1).y), best) << hwy::TargetName(target);
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(CertifiedMatmul, LeavesTheThreadCountOfOpenBlas) {
  const int before = openblas_get_num_threads();
  openblas_set_num_threads(2);
  const int set = openblas_get_num_threads();
  mixed_product(2);
  EXPECT_EQ(openblas_get_num_threads(), set);
  openblas_set_num_threads(before);
}

// Run by the next test in processes of their own: OpenBLAS reads its environment once.
TEST(CertifiedMatmul, DISABLED_Hash) {
  std::printf("hash %016llx of %s\n", static_cast<unsigned long long>(hash(mixed_product(1).y)),
              openblas_get_corename());
}

std::string run_with(const std::string& environment) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX " + environment + " '" + self +
      "' --gtest_also_run_disabled_tests --gtest_filter=CertifiedMatmul.DISABLED_Hash 2>&1";
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "r");
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) out.push_back(static_cast<char>(c));
  EXPECT_TRUE(pipe != nullptr && pclose(pipe) == 0) << command << "\n" << out;
  const std::size_t line = out.find("hash ");
  return line == std::string::npos ? out : out.substr(line, out.find('\n', line) - line);
}

TEST(CertifiedMatmul, SameBitsForEveryKernelOfOpenBlas) {
  if (!std::filesystem::exists("/proc/self/exe")) GTEST_SKIP() << "needs /proc to start itself";
  const std::string expected =
      fmt::format("hash {:016x} of ", static_cast<std::uint64_t>(hash(mixed_product(1).y)));
  for (const char* threads : {"1", "2"})
    EXPECT_THAT(run_with(std::string("OPENBLAS_NUM_THREADS=") + threads), testing::StartsWith(expected));
#if defined(__x86_64__)
  const std::pair<const char*, bool> cores[] = {
      {"Nehalem", true},
      {"Haswell", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
      {"SkylakeX", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")}};
  for (const auto& [core, supported] : cores) {
    if (supported) {
      EXPECT_EQ(run_with(std::string("OPENBLAS_CORETYPE=") + core), expected + core);
      continue;
    }
    std::printf("OPENBLAS_CORETYPE=%s is not tried: this processor cannot run it\n", core);
  }
#else
  std::printf("OPENBLAS_CORETYPE is not tried: the names are those of x86-64 processors\n");
#endif
}

}  // namespace
}  // namespace assay::certified_matmul_bits_test
