// What PyTorch's DebugMode prints.
#include <gmock/gmock.h>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::debug_mode_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

// Of PyTorch 2.13, with hashes of inputs, identities, stacks and a compiled region.
constexpr std::string_view eager =
    R"(    [nn.Mod] M
      [nn.Mod] M.layers.0
        # File: m.py:9 in forward, code: return self.fc(x)
        aten::t(t$0: f32[8, 4])  ->  t$1: f32[4, 8]  # {'input_hash': ((7.5,), {}), 'hash': 7.5}
        aten::addmm(t$2: f32[8], t$3: f32[3, 4], t$1: f32[4, 8])  ->  t$4: f32[3, 8]  # {'input_hash': ((2.5, 9.25, 7.5), {}), 'hash': 12.375}

        aten::native_layer_norm(t: f32[3, 8], [8], t: f32[8], None, 1e-05)  ->  ('t: f32[3, 8]', 't: f32[3, 1]', 't: f32[3, 1]')  # {'input_hash': ((6.5, [None], 8.0, None, None), {}), 'hash': (19.5, 0.25, 9.0)}
      aten::silu(t: bf16[3, 8])  ->  t: bf16[3, 8]  # {'hash': 1e-05}
    aten::eq.Scalar(t: i64[], 2)  ->  t: b8[]  # {'hash': 1.0}
  [record function] Optimizer.step#AdamW.step
      aten::mul_.Tensor(t: f32[2], 0.5)  ->  t: f32[2]  # {'hash': nan}
      aten::mul_.Tensor(t: f32[2], 0.5)  ->  t: f32[2]  # {'hash': 4539628424389459968}
      aten::_local_scalar_dense(t: f32[])  ->  1.0  # {'hash': None}
  [aot_eager region (compile)] enter
    [nn.Mod (compile)] L['self'].layers.1
      aten::mm(dt$7: f32[4, 4]| S(0), dt$1: f32[4, 4]| S(0))
      _c10d_functional::all_reduce(t: f32[4, 4], sum, 0)  ->  t: f32[4, 4]  # {'hash': 2.0}
    [nn.Mod (compile bwd)] L['self'].layers.1
      aten::mm(t: f32[4, 4], t: f32[4, 4])  ->  t: f32[4, 4]  # {'hash': 3.0}
)";

std::unique_ptr<Dump> opened(const Scratch& scratch, std::string_view text) {
  return open_dump(scratch.write("log.txt", text));
}

TEST(DebugModeLog, CallsHaveTheirModules) {
  const Scratch scratch;
  const auto dump = opened(scratch, eager);
  EXPECT_EQ(dump->format, "DebugMode log");
  std::vector<std::string> names;
  for (const Record& r : dump->records) names.push_back(to_string(r.id));
  EXPECT_THAT(
      names,
      ElementsAre("layers.0.t() input 0 (step 0, forward)", "layers.0.t() output y (step 0, forward)",
                  "layers.0.addmm() input 0 (step 0, forward)", "layers.0.addmm() input 1 (step 0, forward)",
                  "layers.0.addmm() input 2 (step 0, forward)", "layers.0.addmm() output y (step 0, forward)",
                  "layers.0.native_layer_norm() input 0 (step 0, forward)",
                  "layers.0.native_layer_norm() input 1 (step 0, forward)",
                  "layers.0.native_layer_norm() output 0 (step 0, forward)",
                  "layers.0.native_layer_norm() output 1 (step 0, forward)",
                  "layers.0.native_layer_norm() output 2 (step 0, forward)",
                  "silu() output y (step 0, forward)", "eq() output y", "mul() output y",
                  "mul() output y (step 0, call 1)", "layers.1.all_reduce() output y (step 0, forward)",
                  "layers.1.mm() output y (step 0, backward)"));
  EXPECT_EQ(dump->records[5].op, "aten.addmm");
  EXPECT_EQ(dump->records[5].shape, (Shape{3, 8}));
  EXPECT_EQ(dump->records[11].dtype, DType::bfloat16);
  EXPECT_EQ(dump->records[12].dtype, DType::boolean);
  EXPECT_EQ(dump->location(5), dump->path.string() + ":5");
}

TEST(DebugModeLog, ANormIsTheSumOfMagnitudes) {
  const Scratch scratch;
  const auto dump = opened(scratch, eager);
  ASSERT_THAT(dump->records, SizeIs(17));
  ASSERT_TRUE(dump->records[10].statistics.has_value());
  EXPECT_EQ(dump->records[10].statistics->abs_sum, 9.0);
  EXPECT_EQ(dump->records[11].statistics->abs_sum, 1e-05);
  EXPECT_EQ(dump->records[13].checksum, "torch.norm:nan") << "no statistic of finite elements";
  EXPECT_EQ(dump->records[14].checksum, "torch.hash_tensor:4539628424389459968");
  EXPECT_FALSE(dump->records[14].statistics.has_value());
  EXPECT_THAT([&] { dump->read(0); }, ThrowsMessage<Error>(HasSubstr("holds no values, only their hashes")));
}

TEST(DebugModeLog, OtherTextIsNone) {
  const Scratch scratch;
  EXPECT_THAT(
      [&] { opened(scratch, "  aten::mm(t: f32[2, 2])  ->  t: f32[2, 2]\n"); },
      ThrowsMessage<Error>(HasSubstr("in which no call has a hash; expected what debug_string() prints")));
  for (const char* text :
       {"  hello (world)\n", "aten::mm(t)\n", "  std::map < int (x)\n", "  \n  {\"a\": 1}\n"})
    EXPECT_THAT([&] { opened(scratch, text); }, ThrowsMessage<Error>(HasSubstr("no known format"))) << text;
}

TEST(DebugModeLog, DamageIsLeftOut) {
  const Scratch scratch;
  const auto dump =
      opened(scratch,
             "  aten::a(t: f32[1])  ->  t: f32[1]  # {'hash': (1.0, 2.0, 3.0}\n"
             "  aten::b(t: f32[1], t: f32[1])  ->  ('t: f32[1]', 't: f32[1]')  # {'hash': (1.0, 2.0, 3.0)}\n"
             "  aten::c(t: c64[1])  ->  t: c64[1]  # {'hash': 1.0}\n"
             "  aten::d(t: f32[99999999999999999999])  ->  t: f32[-1]  # {'hash': 1.0}\n"
             "  aten::e()  ->  t: f32[1  # {'hash': \n"
             "  aten::f()  ->  t: f32[1]  # {'hash': '\n"
             "  aten::g()  ->  t: f32[9999999999, 9999999999]  # {'hash': 1.0}\n");
  EXPECT_THAT(dump->records, SizeIs(1)) << "three hashes of one tensor are three functions' of it";
  EXPECT_THAT(dump->left_out,
              ElementsAre(HasSubstr("log.txt:7: shape [9999999999, 9999999999] has more than"),
                          HasSubstr("3 hashes of 2 tensors"), HasSubstr("is c64")));
}

}  // namespace
}  // namespace assay::debug_mode_test
