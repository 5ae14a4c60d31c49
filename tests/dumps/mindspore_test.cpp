#include <fmt/core.h>
#include <gmock/gmock.h>

#include "assay/dumps/io/csv.h"
#include "assay/dumps/mindspore/names.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::mindspore_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::string_view header =
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,L2Norm Value\n";
constexpr std::string_view good = "Add,Add-op1,0,0,1623124369613540,input,0,8,float32,\"(2, 1)\",2,3\n";
constexpr std::string_view file = "Add.Add-op1.0.0.1623124369613540.input.0.DefaultFormat.float32.npy";

std::string npy(const Scratch& scratch, const std::vector<double>& values, DType dtype = DType::float32) {
  const auto path = scratch.path() / "x.npy";
  write_npy(path, Tensor::from_values(dtype, {static_cast<std::int64_t>(values.size())}, values));
  std::string text = read_text(path);
  std::filesystem::remove(path);
  return text;
}

std::unique_ptr<Dump> open_rows(std::string_view rows) {
  const Scratch scratch;
  scratch.write("run/rank_0/Net/0/0/statistic.csv", fmt::format("{}{}", header, rows));
  return open_dump(scratch.path() / "run");
}

TEST(Csv, CellsAndQuotes) {
  std::vector<std::string> cells;
  CsvRows rows("a,\"b,\"\"c\nd\",\r\n\n\"\",=1+1");
  ASSERT_TRUE(rows.next(cells));
  EXPECT_THAT(cells, ElementsAre("a", "b,\"c\nd", ""));
  EXPECT_EQ(rows.line(), 1U);
  ASSERT_TRUE(rows.next(cells));
  EXPECT_THAT(cells, ElementsAre("", "=1+1"));
  EXPECT_EQ(rows.line(), 4U);
  EXPECT_FALSE(rows.next(cells));
  for (const char* text : {"\"a", "a\"b", "\"a\"b", "a,\"", "\""}) {
    CsvRows broken(text);
    EXPECT_THROW(broken.next(cells), Error) << text;
  }
}

TEST(MindSporeNames, KernelsAndWhatIsNone) {
  const auto name =
      parse_kernel_name("Conv2D.Conv2D-op12.0.0.1623124369613540.output.1.DefaultFormat.bfloat16.npy");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->type, "Conv2D");
  EXPECT_EQ(name->op, "Conv2D-op12");
  EXPECT_EQ(name->slot, 1);
  EXPECT_FALSE(name->is_input);
  EXPECT_EQ(name->dtype, DType::bfloat16);
  EXPECT_EQ(parse_kernel_name("A.B.0.0.1623124369613540.7.input.0.ND.npy")->dtype, std::nullopt);
  for (const char* text :
       {"a.npy", "A.B.0.0.1.input.0.npy", "A.B.0.x.1.input.0.ND.npy", "A.B.0.0.1.sideways.0.ND.npy",
        "A.B.0.0.1.input.-1.ND.npy", "A.B.0.0.1.input.0.ND.float32.extra.npy", "..0.0.1.input.0.ND.npy",
        "A.B.0.0.99999999999999999999999.input.0.ND.npy", "A.B.0.0.1.input.0.ND.pt", ".npy", ""}) {
    EXPECT_FALSE(parse_kernel_name(text)) << text;
  }
}

TEST(MindSporeNames, Folders) {
  const KernelFolder kernels = parse_kernel_folder("/x/rank_3/Net/1/7");
  EXPECT_EQ(kernels.rank, 3);
  EXPECT_EQ(kernels.step, 7);
  EXPECT_EQ(kernels.graph, "Net/1");
  EXPECT_TRUE(parse_kernel_folder("/x/rank_3/Net/1/constants").is_constants);
  const KernelFolder engine = parse_kernel_folder("/x/5/20260101120000/2/ge_default/11/0");
  EXPECT_EQ(engine.step, 5);
  EXPECT_EQ(engine.rank, 2);
  EXPECT_EQ(engine.graph, "ge_default/11");
  for (const char* path :
       {"/", "/x", "/rank_x/Net/1/7", "/rank_-1/Net/1/7", "/rank_99999999999/Net/1/7", "/1/2/3"})
    EXPECT_EQ(parse_kernel_folder(path).graph, "") << path;
}

TEST(MindSporeHostile, BrokenRowsAreSaid) {
  for (const char* row : {"Add,Add-op1,0,0\n", "Add,Add-op1,0,0,now,input,0,8,float32,\"(2,)\",2,3\n",
                          "Add,Add-op1,0,0,1,sideways,0,8,float32,\"(2,)\",2,3\n",
                          "Add,Add-op1,0,0,1,input,-1,8,float32,\"(2,)\",2,3\n",
                          "Add,Add-op1,0,0,1,input,0,8,Complex64,\"(2,)\",2,3\n",
                          "Add,Add-op1,0,0,1,input,0,8,float32,\"(-2,)\",2,3\n",
                          "Add,Add-op1,0,0,1,input,0,8,float32,\"(4611686018427387904, 4)\",2,3\n",
                          "Add,Add-op1,0,0,1,input,0,8,float32,two,2,3\n",
                          "Add,Add-op1,0,0,99999999999999999999999999,input,0,8,float32,\"()\",2,3\n",
                          "=cmd|' /C calc'!A0\n"}) {
    SCOPED_TRACE(row);
    const auto dump = open_rows(fmt::format("{}{}", row, good));
    ASSERT_THAT(dump->records, SizeIs(1));
    EXPECT_EQ(dump->records[0].statistics->l2, 3);
    EXPECT_EQ(dump->records[0].statistics->rounding, 5e-6);  // six digits
    EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("1 rows cannot be read, first line 2")));
  }
}

TEST(MindSporeHostile, AQuoteThatIsNotClosedEndsTheFile) {
  const auto dump = open_rows(fmt::format("{}Add,\"Add-op2,0,0\n{}", good, "Add,Add-op3,0\n"));
  EXPECT_THAT(dump->records, SizeIs(1));
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("line 3: a quote that is not closed")));
}

TEST(MindSporeHostile, FormulasAreText) {
  const auto dump = open_rows("=1+1,@SUM(A1),0,0,1,input,0,8,float32,\"()\",=2,+3\n");
  ASSERT_THAT(dump->records, SizeIs(1));
  EXPECT_EQ(dump->records[0].op, "=1+1");
  EXPECT_FALSE(dump->records[0].statistics);
}

TEST(MindSporeHostile, ColumnsThatAreMissing) {
  const Scratch scratch;
  scratch.write("run/statistic.csv", "Op Type,Op Name,Task ID\nAdd,Add-op1,0\n");
  EXPECT_THROW(open_dump(scratch.path() / "run"), Error);
}

TEST(MindSporeHostile, AMappingNamesNoPath) {
  const Scratch scratch;
  scratch.write("secret.npy", npy(scratch, {1}));
  scratch.write("run/1.npy", npy(scratch, {2}));
  scratch.write("run/2.npy", npy(scratch, {3}));
  scratch.write("run/mapping.csv", fmt::format("../secret.npy,{}\n/etc/passwd,{}\n1.npy,../../{}\n2.npy,{}\n",
                                               file, file, "x.npy", file));
  // Nothing here is a dump by its own name: only the mapping says so.
  scratch.write(fmt::format("run/{}", "Sub.Sub-op1.0.0.1623124369613541.input.0.ND.npy"), npy(scratch, {4}));
  const auto dump = open_dump(scratch.path() / "run");
  ASSERT_THAT(dump->records, SizeIs(2));
  EXPECT_THAT(dump->read(0).values(), ElementsAre(3));
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("first 1.npy")));
}

TEST(MindSporeHostile, AMappingThatIsBroken) {
  const Scratch scratch;
  scratch.write(fmt::format("run/{}", file), npy(scratch, {1}));
  scratch.write("run/mapping.csv", "\"a");
  const auto dump = open_dump(scratch.path() / "run");
  EXPECT_THAT(dump->records, SizeIs(1));
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("mapping.csv: line 1")));
}

TEST(MindSporeHostile, FilesThatAreNotWhatTheyAreCalled) {
  const Scratch scratch;
  const auto named = [](int slot, std::string_view dtype) {
    return fmt::format("run/Add.Add-op1.0.0.1623124369613540.input.{}.ND.{}.npy", slot, dtype);
  };
  scratch.write(named(0, "float16"), npy(scratch, {1}));
  scratch.write(named(1, "bfloat16"), npy(scratch, {1.001}));
  scratch.write(named(2, "float32"), "text");
  scratch.write(named(3, "float32"), npy(scratch, {1}).substr(0, 90));
  std::filesystem::create_symlink(scratch.path() / "secret", scratch.path() / named(4, "float32"));
  const auto dump = open_dump(scratch.path() / "run");
  ASSERT_THAT(dump->records, SizeIs(2));
  // A float32 file of a float16 tensor holds values that float16 has, or is refused.
  EXPECT_EQ(dump->read(0).dtype(), DType::float16);
  EXPECT_THROW(dump->read(1), Error);
  EXPECT_THAT(dump->left_out, SizeIs(3));
}

TEST(MindSporeHostile, StatisticsThatContradictTheirFile) {
  const Scratch scratch;
  scratch.write(fmt::format("run/{}", file), npy(scratch, {1, 2, 3}));
  scratch.write("run/statistic.csv", fmt::format("{}{}", header, good));
  const auto dump = open_dump(scratch.path() / "run");
  ASSERT_THAT(dump->records, SizeIs(1));
  EXPECT_FALSE(dump->records[0].statistics);
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("has shape [2, 1], its file [3]")));
}

TEST(MindSpore, ProtobufsNameTheToolThatConvertsThem) {
  const Scratch scratch;
  scratch.write("run/MatMul.MatMul-op4.4.65535.1623124369613541", "\x08\x02");
  try {
    open_dump(scratch.path() / "run");
    ADD_FAILURE();
  } catch (const Error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("msaccucmp.py convert"));
  }
}

}  // namespace
}  // namespace assay::mindspore_test
