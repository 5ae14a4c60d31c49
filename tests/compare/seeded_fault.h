#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <utility>

#include "recorded_pair.h"
#include "seeds.h"

namespace assay {

inline constexpr std::int64_t R = 48, C = 64;  // rows and columns of the faulty tensor
inline constexpr std::int64_t micro_batches = 5;
inline const Identity faulty{0, micro_batches - 1, Phase::forward, "m", "output", "y", 0};

struct Fault {
  std::string name;
  std::function<Values(const Values&)> apply;  // to right values, row-major
  std::string first;                           // how the first diagnosis begins, or the pattern of the errors
  Shape shape = {R, C};
  std::vector<DType> dtypes = {DType::float32, DType::bfloat16};
  double scale = 2;  // of the right values
};

inline Fault times(double k, const std::string& text) {
  return {fmt::format("times {}", k),
          [k](Values v) {
            for (double& x : v) x *= k;
            return v;
          },
          text};
}

// Every value by a function of its own.
inline Fault each(const std::string& name, const std::function<double(double)>& change,
                  const std::string& text, std::vector<DType> dtypes = {DType::float32, DType::bfloat16}) {
  return {name,
          [=](Values v) {
            for (double& x : v) x = change(x);
            return v;
          },
          text,
          {R, C},
          std::move(dtypes)};
}

// A mesh of dp 4, cp 3 and tp 2; five micro-batches.
inline void record(RecordedPair& run, const Fault& fault, DType dtype, std::uint64_t seed) {
  for (MemoryDump* dump : {&run.actual, &run.reference}) dump->mesh = {{"dp", "cp", "tp"}, {4, 3, 2}};
  Random random(seed);
  Identity before = faulty;
  before.module = "before";
  for (before.micro_batch = 0; before.micro_batch < micro_batches; ++before.micro_batch)
    run.add(before, normal_tensor(dtype, {4, 4}, seed + 9));
  Values right = random.normals(element_count(fault.shape));
  for (double& v : right) v = fault.scale * (v + std::copysign(0.05, v));
  Values other = right;  // rounded differently on the way
  for (double& v : other) v *= 1 + noise_of(dtype) * (2 * random.uniform() - 1);
  run.add(faulty, Tensor::from_values(dtype, fault.shape, fault.apply(other)),
          Tensor::from_values(dtype, fault.shape, right), "", 1000);
}

inline std::string pattern_of(const Finding& f) {
  for (const std::string& note : f.notes) {
    if (note.starts_with("errors: ")) return note;
  }
  return "nothing";
}

inline void expect_diagnosed(const std::vector<Fault>& faults) {
  int found = 0, seeded = 0;
  for (const Fault& fault : faults) {
    for (const DType dtype : fault.dtypes) {
      for (const std::uint64_t seed : seeds()) {
        RecordedPair run;
        record(run, fault, dtype, seed);
        const Report report = run.diff();
        ASSERT_NE(report.first_failure(), nullptr) << fault.name;
        const Finding& f = *report.first_failure();
        EXPECT_EQ(f.verdict, Verdict::failed) << fault.name;
        const bool by_pattern = fault.first.starts_with("errors: ");
        const std::string says = by_pattern ? pattern_of(f) : first_of(f.diagnoses);
        EXPECT_THAT(says, testing::StartsWith(fault.first))
            << fault.name << ' ' << name(dtype) << " seed " << seed;
        EXPECT_LE(f.diagnoses.size(), by_pattern ? 0U : 1U) << fault.name << ": " << first_of(f.diagnoses);
        ++seeded;
        found += says.starts_with(fault.first) ? 1 : 0;
      }
    }
  }
  fmt::print("{} of {} seeded faults found\n", found, seeded);
}

}  // namespace assay
