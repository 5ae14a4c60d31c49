#include "assay/golden/log.h"

#include <filesystem>
#include <mutex>

#include "diff_dumps.h"

namespace assay {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Lines : public LogWriter {
 public:
  explicit Lines(LogLevel least) : least_(least) {}
  bool takes(LogLevel level) const override { return level >= least_; }
  void write(const LogLine& line) override {
    const std::lock_guard lock(mutex_);
    lines.push_back(fmt::format("{} {} {} {}", name(line.level), line.rank, line.stage, line.message));
  }
  std::vector<std::string> lines;

 private:
  const LogLevel least_;
  std::mutex mutex_;
};

TEST(Log, ItsLevelsHaveNames) {
  for (const LogLevel level :
       {LogLevel::trace, LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off})
    EXPECT_EQ(parse_log_level(name(level)), level);
  for (const char* text : {"", "loud", "Info", "warning", "info "})
    EXPECT_EQ(parse_log_level(text), std::nullopt);
}

TEST(Log, LinesNameTheirRankAndStageAndStopAtTheLevel) {
  const auto lines = std::make_shared<Lines>(LogLevel::info);
  const Log log(lines);
  log.info("opened {}", 3);
  log.of_stage("tp-sp").of_rank(2).warn("{}", "{not a format}");
  log.debug("nobody asked");
  log.info("still no rank");
  EXPECT_THAT(lines->lines, testing::ElementsAre("info - - opened 3", "warn 2 tp-sp {not a format}",
                                                 "info - - still no rank"));
}

TEST(Log, WithoutAWriterNothingIsTaken) {
  const Log silent;
  EXPECT_FALSE(silent.takes(LogLevel::error));
  testing::internal::CaptureStderr();
  silent.warn("{}", 1);
  silent.of_rank(1).of_stage("tp").warn("{}", 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Of what the process itself would show.
TEST(Log, ADiffWithoutOneWritesNothing) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1})), r.add("x", float32({2}));
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const Report report = diff(a, r, options());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(report.exit_status(), 1);
}

TEST(Log, ADiffSaysWhatItMatchedAndHowItJudged) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) d->add("same", float32({1}));
  a.add("x", float32({1})), r.add("x", float32({2}));
  const auto lines = std::make_shared<Lines>(LogLevel::trace);
  DiffOptions with = options();
  with.log = Log(lines);
  const Report logged = diff(a, r, with);
  EXPECT_THAT(lines->lines,
              Contains("debug - - matched 2 tensors of a with 2 of r: 2 pairs, 2 of them asked for"));
  EXPECT_THAT(lines->lines, Contains(StartsWith("trace - - same: passed, ")));
  EXPECT_THAT(lines->lines, Contains(StartsWith("trace - - x: failed, ")));
  EXPECT_THAT(lines->lines, Contains(StartsWith("info - - 2 compared: 1 passed, 1 failed")));
  EXPECT_EQ(logged.summary(), diff(a, r, options()).summary());
}

TEST(Log, OpeningADumpSaysItsFormat) {
  const auto lines = std::make_shared<Lines>(LogLevel::info);
  const std::filesystem::path sample = std::filesystem::path(ASSAY_TEST_DATA) / "samples/every.h5";
  const auto at_info = open_dump(sample, {.log = Log(lines)});
  ASSERT_EQ(lines->lines.size(), 1);
  EXPECT_THAT(lines->lines.front(), HasSubstr("every.h5: hdf5, world size 1, "));
  const auto all = std::make_shared<Lines>(LogLevel::debug);
  const auto at_debug = open_dump(sample, {.log = Log(all)});
  EXPECT_THAT(all->lines, Contains(HasSubstr("with the HDF5 library")));
}

}  // namespace
}  // namespace assay
