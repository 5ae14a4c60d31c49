#include <gtest/gtest.h>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/generate.h"
#include "assay/operators/engine/golden.h"
#include "calls.h"

namespace assay::threads_test {
namespace {

struct Large {
  std::string_view op;
  Example example;
};

// Large enough that each has several stretches (grain_of).
const Large calls[] = {
    {"linear", {"N=150,K=90,M=70"}},
    {"matmul", {"A=,M=40,K=200,B=,N=130"}},
    {"attention",
     {"B=1,H=4,L=70,D=8,G=2,S=70,V=8", "is_causal=true",
      "mask,bias,sink,document_q,document_k,cu_seqlens_q,cu_seqlens_k"}},
    {"attention",
     {"B=1,H=4,L=70,D=8,G=2,S=70,V=8,A=70x70", "", "mask,document_q,document_k,cu_seqlens_q,cu_seqlens_k"}},
    {"cross_entropy", {"N=50,V=300,D=", "", "weight,target_probs"}},
    {"rms_norm", {"N=90,C=150"}},
    {"swiglu", {"N=90,W=128,C=64", "", "gate,up,probs"}},
    {"gelu", {"N=9000"}},
    {"conv", {"N=2,C=8,S=31x29,M=12,I=4,K=3x3", "groups=2,padding=1"}},
    {"conv_transpose", {"N=2,C=8,S=15x14,I=6,K=3x3,M=12", "groups=2,stride=2"}},
    {"batch_norm", {"N=9,C=20,D=33", "training=true"}},
    {"instance_norm", {"N=9,C=20,D=133"}},
    {"smooth_l1_loss", {"S=9000"}},
    {"cosine_similarity", {"A=500,C=33,B="}},
    {"add", {"A=80x100,B=100"}},
    {"adamw", {"S=3000,T=2", "", "exp_avg,exp_avg_sq,max_exp_avg_sq"}},
};

void expect_same(std::span<const NamedTensor> a, std::span<const NamedTensor> b, std::string_view op) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t k = 0; k < a.size(); ++k)
    EXPECT_TRUE(std::ranges::equal(a[k].tensor.bytes(), b[k].tensor.bytes())) << op << " " << a[k].name;
}

TEST(Threads, TheirNumberChangesNoBit) {
  ErrorModel quick = float32_device, narrow = float32_device;
  quick.quick = true;
  narrow.stored_roundoff = 0x1p-9;
  for (const Large& large : calls) {
    const Operator& op = find_operator(large.op);
    const CallShape call = parse_call(large.example);
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 3);
    const auto all = [&](int threads) {
      const ThreadScope scope(threads);
      std::vector<std::vector<NamedTensor>> made;
      for (const Level level : {Level::report, Level::fp64})
        made.push_back(compute_golden(op, inputs, call.attributes, level));
      for (const ErrorModel& device : {float32_device, quick, narrow})
        made.push_back(compute_bound(op, inputs, call.attributes, device));
      return made;
    };
    const auto alone = all(1);
    for (const int threads : {2, 5}) {
      const auto together = all(threads);
      for (std::size_t k = 0; k < alone.size(); ++k) expect_same(alone[k], together[k], large.op);
    }
  }
}

}  // namespace
}  // namespace assay::threads_test
