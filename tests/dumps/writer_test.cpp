#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "assay/dumps/assay_dump_writer.h"
#include "assay/dumps/hdf5/writer.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::writer_test {
namespace {

Record record_of(const Tensor& tensor, std::int64_t seq = 0, int rank = 0) {
  Record record;
  record.id = {1, 2, Phase::forward, "layers.0 \"é\"\n", "output", "x", 3};
  record.seq = seq;
  record.rank = rank;
  record.dtype = tensor.dtype();
  record.shape = record.global_shape = tensor.shape();
  return record;
}

void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end()));
}

TEST(Writer, EveryTypeAndFieldReadsBack) {
  const Scratch scratch;
  const auto folder = scratch.path() / "run";
  std::vector<Tensor> tensors;
  std::vector<Record> records;
  {
    AssayDumpWriter writer(folder, {2, {{"dp", "tp"}, {1, 2}}, R"({"framework":"test"})"});
    for (const DType dtype : all_dtypes) {
      tensors.push_back(Tensor::from_values(dtype, {2, 2}, std::vector<double>{0, 1, 1, 0}));
    }
    tensors.push_back(Tensor(DType::float32, {}));
    tensors.push_back(Tensor(DType::float32, {0, 3}));
    for (const Tensor& tensor : tensors) {
      Record record = record_of(tensor, static_cast<std::int64_t>(records.size()), 1);
      record.id.arg = std::to_string(records.size());
      record.op = "matmul";
      record.attributes = R"({"dims":[0,1],"names":{"a":"é"}})";
      record.count = 40;
      record.placements = {{}, {Placement::Kind::partial, 0}};
      record.mesh_coordinate = {0, 1};
      record.offsets = Shape(tensor.shape().size(), 0);
      records.push_back(record);
      writer.add(record, tensor);
    }
    writer.finish();
  }
  const auto dump = open_dump(folder);
  EXPECT_EQ(dump->format, "assay-dump");
  EXPECT_EQ(dump->world_size, 2);
  EXPECT_EQ(dump->mesh.dims, (std::vector<std::string>{"dp", "tp"}));
  EXPECT_EQ(dump->producer, R"({"framework":"test"})");
  ASSERT_EQ(dump->records.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Record &a = dump->records[i], &b = records[i];
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(std::tie(a.seq, a.rank, a.op, a.attributes, a.count, a.global_shape, a.placements,
                       a.mesh_coordinate, a.offsets),
              std::tie(b.seq, b.rank, b.op, b.attributes, b.count, b.global_shape, b.placements,
                       b.mesh_coordinate, b.offsets));
    expect_same(dump->read(i), tensors[i]);
  }
}

// What `convert` does: names without phase or slot survive.
TEST(Writer, PlainFilesConvert) {
  const Scratch scratch;
  const auto source = open_dump(samples() / "every.safetensors");
  {
    AssayDumpWriter writer(scratch.path() / "run", {source->world_size, source->mesh, source->producer});
    for (std::size_t i = 0; i < source->records.size(); ++i) writer.add(source->records[i], source->read(i));
    writer.finish();
  }
  const auto copy = open_dump(scratch.path() / "run");
  ASSERT_EQ(copy->records.size(), source->records.size());
  for (std::size_t i = 0; i < source->records.size(); ++i) {
    EXPECT_EQ(copy->records[i].id, source->records[i].id);
    expect_same(copy->read(i), source->read(i));
  }
}

TEST(Writer, AnUnfinishedDumpSaysSo) {
  const Scratch scratch;
  const auto folder = scratch.path() / "run";
  const Tensor tensor(DType::float32, {2});
  {
    AssayDumpWriter writer(folder, {});
    writer.add(record_of(tensor), tensor);
    EXPECT_EQ(open_dump(folder)->left_out.size(), 1U);
  }
  const auto dump = open_dump(folder);
  expect_same(dump->read(0), tensor);
  ASSERT_EQ(dump->left_out.size(), 1U);
  EXPECT_THAT(dump->left_out[0], testing::HasSubstr("rank 0 of 1 has 1 tensor, the last is layers.0"));
}

TEST(Writer, RefusesWhatItCannotRecord) {
  const Scratch scratch;
  scratch.write("full/file", "x");
  EXPECT_THROW(AssayDumpWriter(scratch.path() / "full", {}), Error);
  EXPECT_THROW(AssayDumpWriter(scratch.path() / "mesh", {3, {{"tp"}, {2}}, ""}), Error);
  AssayDumpWriter writer(scratch.path() / "run", {});
  const Tensor tensor(DType::float32, {2});
  writer.add(record_of(tensor, 5), tensor);
  EXPECT_THROW(writer.add(record_of(tensor, 5), tensor), Error);
  EXPECT_THROW(writer.add(record_of(tensor, 6, 1), tensor), Error);
  EXPECT_THROW(writer.add(record_of(tensor, 6), Tensor(DType::float64, {2})), Error);
  Record record = record_of(tensor, 6);
  record.global_shape = {3};
  EXPECT_THROW(writer.add(record, tensor), Error);
  record = record_of(tensor, 6);
  record.id.module = "\xff";
  EXPECT_THROW(writer.add(record, tensor), Error);
  record = record_of(tensor, 6);
  record.id.slot = "gradient";  // no word of the format
  EXPECT_THROW(writer.add(record, tensor), Error);
  EXPECT_NO_THROW(writer.add(record_of(tensor, 6), tensor));
}

TEST(Writer, EqualDumpsAreEqualFiles) {
  const Scratch scratch;
  const Tensor tensor = Tensor::from_values(DType::float32, {2}, std::vector<double>{1, 2});
  for (const char* name : {"a", "b"}) {
    AssayDumpWriter writer(scratch.path() / name, {});
    writer.add(record_of(tensor), tensor);
    writer.finish();
    // Times in the files would have a resolution of seconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
  EXPECT_EQ(read_text(scratch.path() / "a/rank00000.h5"), read_text(scratch.path() / "b/rank00000.h5"));
}

std::vector<pid_t> children() {
  std::istringstream text(read_text("/proc/thread-self/children"));
  std::vector<pid_t> all;
  for (pid_t id = 0; text >> id;) all.push_back(id);
  return all;
}

TEST(Hdf5Writer, FilesThatAreOpenTogetherShareAProcess) {
  const Scratch scratch;
  const std::size_t before = children().size();
  std::vector<std::unique_ptr<Hdf5Writer>> writers;
  const auto path = [&](int n) { return scratch.path() / (std::to_string(n) + ".h5"); };
  for (int n = 0; n < 20; ++n) writers.push_back(std::make_unique<Hdf5Writer>(path(n)));
  EXPECT_EQ(children().size(), before + 1);
  for (int n = 0; n < 20; ++n)
    writers[static_cast<std::size_t>(n)]->write("/a/x",
                                                Tensor::from_values(DType::int64, {1}, std::vector{1.0 * n}));
  for (const auto& writer : writers) writer->close();
  writers.clear();
  EXPECT_EQ(children().size(), before) << "it is not ended with its last file";
  for (int n = 0; n < 20; ++n) {
    const std::unique_ptr<const Dump> dump = open_dump(path(n));
    ASSERT_EQ(dump->records.size(), 1U);
    EXPECT_EQ(dump->read(0).values(), std::vector{1.0 * n});
  }
}

TEST(Hdf5Writer, AChildThatWasForkedInBetweenKeepsNothingOpen) {
  const Scratch scratch;
  auto writer = std::make_unique<Hdf5Writer>(scratch.path() / "x.h5");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      Hdf5Writer other(scratch.path() / "y.h5");  // has a process of its own
      other.write_text("/t", "the child's");
      other.close();
      EXPECT_THROW(writer->write_text("/t", "the parent's"), Error);
      if (testing::Test::HasFailure()) ::_exit(1);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::pause();  // with the socket of its parent
  }
  writer->write_text("/t", "the parent's");
  writer->close();
  writer.reset();  // waits for the process that wrote
  for (int waited = 0; waited < 1000 && !std::filesystem::exists(scratch.path() / "y.h5"); ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "it could not write";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(open_dump(scratch.path() / "x.h5")->records.size(), 1U);
}

// A lock that another thread holds while a process is forked is never given back in that process.
TEST(Hdf5Writer, AChildThatWasForkedWhileAThreadStartsAFileWrites) {
  const Scratch scratch;
  std::atomic<bool> done = false;
  std::jthread starter([&] {
    while (!done) Hdf5Writer(scratch.path() / "x.h5");
  });
  for (int n = 0; n < 20; ++n) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // ends it
      Hdf5Writer writer(scratch.path() / fmt::format("{}.h5", n));
      writer.write_text("/t", "text");
      writer.close();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << n;
  }
  done = true;
}

TEST(Hdf5Writer, AProcessThatEndedIsAnErrorAndTheNextFileHasAnother) {
  const Scratch scratch;
  {
    Hdf5Writer writer(scratch.path() / "x.h5");
    const std::vector<pid_t> process = children();
    ASSERT_FALSE(process.empty());
    ::kill(process.back(), SIGKILL);
    EXPECT_THAT([&] { writer.write_text("/t", "text"); },
                testing::ThrowsMessage<Error>(testing::AllOf(
                    testing::HasSubstr("x.h5"), testing::HasSubstr("has ended before it was done"))));
  }
  Hdf5Writer next(scratch.path() / "y.h5");
  EXPECT_NO_THROW(next.write_text("/t", "text"));
  EXPECT_NO_THROW(next.close());
}

}  // namespace
}  // namespace assay::writer_test
