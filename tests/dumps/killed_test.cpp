#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "assay/dumps/assay_dump_writer.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::killed_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int ranks = 2;

// The n-th tensor of the run, of any size from none to a few blocks.
Tensor tensor_at(std::int64_t n) {
  const std::int64_t rows = n * 37 % 101, columns = n % 3 == 0 ? 40 : 3;
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<double>((n + i) % 251));
  return Tensor::from_values(n % 2 == 0 ? DType::float32 : DType::bfloat16, {rows, columns}, values);
}

Record record_at(std::int64_t n) {
  const Tensor tensor = tensor_at(n);
  Record record;
  record.id = {n, -1, Phase::forward, "layers.0", "output", "y", 0};
  record.seq = n;
  record.rank = static_cast<int>(n % ranks);
  record.dtype = tensor.dtype();
  record.shape = record.global_shape = tensor.shape();
  return record;
}

/// Writes `count` tensors and says so after each; the last word is 'f' for finished.
[[noreturn]] void record_run(const fs::path& folder, std::int64_t count, int report) {
  try {
    AssayDumpWriter writer(folder, {ranks, {}, ""});
    for (std::int64_t n = 0; n < count; ++n) {
      writer.add(record_at(n), tensor_at(n));
      if (::write(report, "t", 1) != 1) ::_exit(1);
    }
    writer.finish();
    if (::write(report, "f", 1) != 1) ::_exit(1);
    ::_exit(0);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    ::_exit(1);
  }
}

/// What the dump holds must be the beginning of the run on each rank; returns how many tensors that is.
std::int64_t check_prefix(const Dump& dump) {
  std::int64_t next[ranks] = {0, 1};
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    std::int64_t& n = next[dump.records[i].rank];
    EXPECT_EQ(dump.records[i].id, record_at(n).id);
    const Tensor found = dump.read(i), expected = tensor_at(n);
    EXPECT_EQ(found.shape(), expected.shape());
    EXPECT_TRUE(std::ranges::equal(found.bytes(), expected.bytes())) << "tensor " << n;
    n += ranks;
  }
  EXPECT_LE(std::abs(next[0] - next[1]), ranks);
  return static_cast<std::int64_t>(dump.records.size());
}

TEST(Killed, EveryFinishedTensorIsReadable) {
  const Scratch scratch;
  std::mt19937 random(20260101);
  int whole = 0, cut = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const fs::path folder = scratch.path() / std::to_string(trial);
    const std::int64_t count = static_cast<std::int64_t>(random() % 40);
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t child = ::fork();
    if (child == 0) record_run(folder, count, report[1]);
    ::close(report[1]);
    // Some runs come to an end, and others are killed while they close their files.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (trial % 8 == 0 ? 200'000 : 12'000)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::int64_t said = 0;
    bool finished = false;
    for (char word = 0; ::read(report[0], &word, 1) == 1;) {
      said += word == 't';
      finished = finished || word == 'f';
    }
    ::close(report[0]);
    if (!exists(folder / "manifest.json") && !exists(folder / "manifest.json.unfinished")) {
      EXPECT_EQ(said, 0);
      continue;
    }
    const auto dump = open_dump(folder);
    const std::int64_t found = check_prefix(*dump);
    EXPECT_GE(found, said);
    const bool looks_whole = dump->left_out.empty();
    EXPECT_TRUE(looks_whole || !finished);
    if (looks_whole) {
      EXPECT_EQ(found, count);
    } else {
      EXPECT_EQ(dump->left_out.size(), static_cast<std::size_t>(ranks));
      EXPECT_THAT(dump->left_out[0], HasSubstr("did not finish: rank 0 of 2"));
    }
    ++(looks_whole ? whole : cut);
  }
  EXPECT_GT(cut, 10);
  EXPECT_GT(whole, 0);
}

// Every state that finish() passes through, made by hand: a kill may come between any two of its steps.
TEST(Killed, WhileFinishing) {
  const Scratch scratch;
  constexpr std::int64_t count = 9;
  const fs::path before = scratch.path() / "before", after = scratch.path() / "after";
  {
    AssayDumpWriter writer(after, {ranks, {}, ""});
    for (std::int64_t n = 0; n < count; ++n) writer.add(record_at(n), tensor_at(n));
    fs::copy(after, before);
    writer.finish();
  }
  EXPECT_EQ(fs::exists(after / "rank00000.jsonl.unfinished"), false);
  const auto expect_unfinished = [&] {
    const auto dump = open_dump(before);
    EXPECT_EQ(check_prefix(*dump), count);
    EXPECT_EQ(dump->left_out.size(), static_cast<std::size_t>(ranks));
  };
  expect_unfinished();
  // A library that dies while it writes its own tables leaves anything there, but not in the tensors.
  const std::string part = read_text(before / "rank00000.h5.unfinished");
  scratch.write("before/rank00000.h5.unfinished", std::string(96, '\xff') + part.substr(96));
  expect_unfinished();
  for (const char* rank : {"rank00000", "rank00001"}) {
    fs::remove(before / (std::string(rank) + ".h5.unfinished"));
    fs::copy(after / (std::string(rank) + ".h5"), before);
    expect_unfinished();
  }
  fs::rename(before / "manifest.json.unfinished", before / "manifest.json");
  const auto dump = open_dump(before);  // journals are still there
  EXPECT_EQ(check_prefix(*dump), count);
  EXPECT_TRUE(dump->left_out.empty());
}

// A line that was not written to its end stands for nothing.
TEST(Killed, InTheMiddleOfALine) {
  const Scratch scratch;
  {
    AssayDumpWriter writer(scratch.path() / "run", {ranks, {}, ""});
    for (std::int64_t n = 0; n < 4; ++n) writer.add(record_at(n), tensor_at(n));
  }
  const std::string journal = read_text(scratch.path() / "run/rank00001.jsonl.unfinished");
  for (std::size_t cut = 0; cut < journal.size(); ++cut) {
    scratch.write("run/rank00001.jsonl.unfinished", journal.substr(0, cut));
    const auto dump = open_dump(scratch.path() / "run");
    EXPECT_EQ(dump->records.size(), cut > journal.find('\n') ? 3U : 2U);
  }
}

// A disk that is full: writing fails at any byte, and the error names the file.
TEST(Killed, AFullDiskIsAnErrorAndLosesNothing) {
  const Scratch scratch;
  for (rlim_t limit = 100; limit < 40'000; limit += 1733) {
    const fs::path folder = scratch.path() / std::to_string(limit);
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit most{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &most);
      char written = 0;
      bool right = false;
      try {
        AssayDumpWriter writer(folder, {ranks, {}, ""});
        try {
          for (std::int64_t n = 0; n < 100; ++n, ++written) writer.add(record_at(n), tensor_at(n));
          writer.finish();
        } catch (const Error& problem) {
          right = std::string(problem.what()).find(folder.string() + "/rank0000") == 0;
          if (!right) std::fprintf(stderr, "%s\n", problem.what());
        }
        // It is too late, whatever the caller does now.
        try {
          writer.finish();
          right = false;
        } catch (const Error&) {
        }
      } catch (const Error& problem) {
        right = std::string(problem.what()).find(folder.string() + "/manifest") == 0;
      }
      ::_exit(::write(report[1], &written, 1) == 1 && right ? 0 : 1);
    }
    ::close(report[1]);
    int status = -1;
    ::waitpid(child, &status, 0);
    char written = -1;
    ASSERT_EQ(::read(report[0], &written, 1), 1);
    ::close(report[0]);
    EXPECT_EQ(status, 0) << limit;
    EXPECT_FALSE(exists(folder / "manifest.json")) << limit;
    if (!exists(folder / "manifest.json.unfinished")) continue;
    EXPECT_EQ(check_prefix(*open_dump(folder)), written) << limit;
  }
}

TEST(Killed, ADiscardedDumpLeavesNothing) {
  const Scratch scratch;
  AssayDumpWriter writer(scratch.path() / "run", {ranks, {}, ""});
  writer.add(record_at(0), tensor_at(0));
  writer.discard();
  EXPECT_FALSE(exists(scratch.path() / "run"));
  EXPECT_THROW(writer.finish(), Error);
}

// The other container, as demo/record.py writes it: an index that ends too early, or a rank that never came.
TEST(Killed, TheSecondContainerSaysWhatIsMissing) {
  const Scratch scratch;
  const fs::path run = scratch.path() / "run";
  fs::copy(samples() / "assay_dump", run);
  const std::string index = read_text(run / "rank00000.jsonl");
  scratch.write("run/rank00000.jsonl", index.substr(0, index.find('\n') + 1));
  const auto cut = open_dump(run);
  EXPECT_EQ(cut->records.size(), 3U);
  ASSERT_EQ(cut->left_out.size(), 1U);
  EXPECT_THAT(cut->left_out[0], HasSubstr("tensor 't00000001' has no line"));

  scratch.write("run/rank00000.jsonl", index);
  fs::rename(run / "manifest.json", run / "manifest.json.unfinished");
  fs::remove(run / "rank00001.jsonl");
  const auto alone = open_dump(run);
  EXPECT_EQ(alone->records.size(), 2U);
  ASSERT_EQ(alone->left_out.size(), 2U);
  EXPECT_THAT(alone->left_out[1], HasSubstr("rank 1 of 2 has no tensor"));
}

}  // namespace
}  // namespace assay::killed_test
