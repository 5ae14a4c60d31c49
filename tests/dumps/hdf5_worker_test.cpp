#include "assay/dumps/hdf5/worker.h"

#include <gmock/gmock.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "assay/dumps/hdf5/filters.h"
#include "assay/dumps/hdf5/hdf5.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::hdf5_worker_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t allowance = 1 << 20;

std::filesystem::path sample(const char* name) {
  return std::filesystem::path(ASSAY_TEST_DATA) / "hdf5_samples" / name;
}

std::string process_text(pid_t process, const char* what) {
  return read_text(std::filesystem::path("/proc") / std::to_string(process) / what);
}

TEST(Hdf5Worker, AnEmptyFileIsSaidToBeEmpty) {
  const Scratch scratch;
  const auto file = MappedFile::open(scratch.write("rank00000.h5", ""));
  EXPECT_THAT([&] { Hdf5Worker worker(*file); },
              ThrowsMessage<Error>(HasSubstr("is empty, expected an HDF5 file")));
}

TEST(Hdf5Worker, HoldsNothingAndMayOpenNothing) {
  ::setenv("HDF5_PLUGIN_PATH", "/tmp", 1);
  ::setenv("HDF5_PLUGIN_PRELOAD", "evil", 1);
  Hdf5Worker worker(*MappedFile::open(sample("part0.h5")));
  worker.ask(Hdf5Question::list, "", allowance);
  ::unsetenv("HDF5_PLUGIN_PATH");
  ::unsetenv("HDF5_PLUGIN_PRELOAD");
  const pid_t process = worker.process();
  EXPECT_THAT(process_text(process, "environ"), testing::StartsWith("LD_LIBRARY_PATH="));
  EXPECT_THAT(process_text(process, "environ"), testing::Not(HasSubstr("HDF5")));
  EXPECT_THAT(process_text(process, "status"), HasSubstr("NoNewPrivs:\t1"));
  const std::string limits = process_text(process, "limits");
#if !defined(ASSAY_SANITIZED)
  EXPECT_THAT(limits, HasSubstr("Max open files            0                    0"));
#endif
  for (const char* limit : {"Max core file size        0                    0",
                            "Max file size             0                    0"}) {
    EXPECT_THAT(limits, HasSubstr(limit));
  }
  EXPECT_THAT(limits, testing::Not(HasSubstr("Max cpu time              unlimited")));
#if !defined(ASSAY_SANITIZED)
  EXPECT_THAT(limits, testing::Not(HasSubstr("Max address space         unlimited")));
#endif
  std::vector<std::string> open;
  const auto folder = std::filesystem::path("/proc") / std::to_string(process) / "fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    open.push_back(entry.path().filename());
  EXPECT_THAT(open,
              testing::UnorderedElementsAre("0", "1", "2", "3"));  // three times nothing, and its socket
}

TEST(Hdf5Worker, KilledWhileItReadsIsAnError) {
  Hdf5Worker worker(*MappedFile::open(sample("part0.h5")));
  worker.ask(Hdf5Question::list, "", allowance);
  const pid_t process = worker.process();
  ::kill(process, SIGSTOP);
  std::jthread killer([process] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(process, SIGKILL);
  });
  const auto ask = [&] { worker.ask(Hdf5Question::list, "", allowance); };
  EXPECT_THAT(ask,
              ThrowsMessage<Error>(HasSubstr("part0.h5: the process that reads it was ended by signal 9")));
  // It is not started again, and says why each time.
  EXPECT_EQ(worker.process(), 0);
  EXPECT_THAT(ask, ThrowsMessage<Error>(HasSubstr("ended by signal 9")));
}

TEST(Hdf5Worker, ThatTakesTooLongIsEnded) {
  Hdf5Worker worker(*MappedFile::open(sample("part0.h5")), std::chrono::milliseconds(100));
  ::kill(worker.process(), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { worker.ask(Hdf5Question::list, "", allowance); },
              ThrowsMessage<Error>(HasSubstr("part0.h5: takes the HDF5 library longer")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(worker.process(), 0);
}

TEST(Hdf5Worker, AnswersNoMoreThanItIsAllowed) {
  Hdf5Worker worker(*MappedFile::open(sample("chunks_old.h5")));
  EXPECT_THAT([&] { worker.ask(Hdf5Question::list, "", 100); },
              ThrowsMessage<Error>(HasSubstr("does not keep to its protocol")));
}

// What needs no worker is read after its death too.
TEST(Hdf5Worker, ItsDeathIsNotThatOfOtherTensors) {
  const Hdf5File file(MappedFile::open(std::filesystem::path(ASSAY_TEST_DATA) / "samples/every.h5"));
  file.list();
  ASSERT_NE(file.worker(), 0);
  ::kill(file.worker(), SIGKILL);
  EXPECT_THAT([&] { file.read(file.describe("deflated")); },
              ThrowsMessage<Error>(HasSubstr("every.h5: the process that reads it was ended by signal 9")));
  EXPECT_EQ(file.read(file.describe("f8")).size(), 6);
  EXPECT_THROW(file.read(file.describe("chunked")), Error);
}

TEST(Hdf5Worker, ThousandsOfFilesDoNotNeedThousands) {
  const auto mapped = MappedFile::open(sample("chunks_new.h5"));
  std::vector<std::unique_ptr<Hdf5File>> files;
  for (int i = 0; i < 40; ++i) {
    files.push_back(std::make_unique<Hdf5File>(mapped));
    files.back()->list();
  }
  EXPECT_EQ(std::count_if(files.begin(), files.end(), [](auto& file) { return file->worker() != 0; }), 32);
  EXPECT_EQ(files[0]->worker(), 0);
  EXPECT_EQ(files[0]->read(files[0]->describe("gzip")).size(), 13 * 21);
  EXPECT_NE(files[0]->worker(), 0);
}

TEST(Hdf5Worker, ThreadsShareOne) {
  const Hdf5File file(MappedFile::open(sample("chunks_old.h5")));
  const Tensor expected = file.read(file.describe("all_three"));
  std::vector<std::jthread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const Hdf5File::Dataset& dataset : file.list().datasets) file.read(dataset);
      same += std::ranges::equal(file.read(file.describe("all_three")).bytes(), expected.bytes()) ? 1 : 0;
    });
  }
  threads.clear();
  EXPECT_EQ(same, 4);
}

TEST(Hdf5Worker, AForkedChildReadsByAWorkerOfItsOwn) {
  const Hdf5File file(MappedFile::open(sample("chunks_old.h5")));
  auto dropped = std::make_unique<Hdf5File>(MappedFile::open(sample("chunks_old.h5")));
  const auto all_three = [&] { return file.read(file.describe("all_three")); };
  const Tensor expected = all_three();
  dropped->read(dropped->describe("all_three"));
  const pid_t worker = file.worker(), other = dropped->worker();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      dropped.reset();
      for (int n = 0; n < 20; ++n)
        if (!std::ranges::equal(all_three().bytes(), expected.bytes())) ::_exit(1);
      ::_exit(file.worker() != worker ? 0 : 2);
    } catch (const std::exception&) {
      ::_exit(3);
    }
  }
  for (int n = 0; n < 20; ++n) EXPECT_TRUE(std::ranges::equal(all_three().bytes(), expected.bytes()));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(std::ranges::equal(dropped->read(dropped->describe("all_three")).bytes(), expected.bytes()));
  EXPECT_EQ(std::pair(file.worker(), dropped->worker()), std::pair(worker, other));
}

// A batch system sets hard limits, which only root may raise.
TEST(Hdf5Worker, KeepsToTheLimitsOfOthers) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  std::filesystem::copy_file(sample("chunks_old.h5"), path);
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr rlimit seconds{1000, 1000};
    constexpr uid_t nobody = 65534;
    if (::setrlimit(RLIMIT_CPU, &seconds) != 0 || (::geteuid() == 0 && ::setuid(nobody) != 0)) ::_exit(2);
    try {
      const Hdf5File file(MappedFile::open(path));
      file.read(file.describe("all_three"));
      ::_exit(0);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s\n", problem.what());
      ::_exit(1);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Plain datasets are described from their headers, without the library; it must say the same of each.
TEST(Hdf5Worker, HeadersSayWhatTheLibrarySays) {
  std::size_t datasets = 0;
  for (const char* folder : {"samples", "hdf5_samples"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(ASSAY_TEST_DATA) / folder)) {
      if (entry.path().extension() != ".h5") continue;
      const auto mapped = MappedFile::open(entry.path());
      const Hdf5File file(mapped);
      Hdf5Worker worker(*mapped);
      const auto all = worker.ask(Hdf5Question::list, "", allowance);
      for (const Hdf5File::Dataset& dataset : file.list().datasets) {
        ++datasets;
        const auto answer = worker.ask(Hdf5Question::list, dataset.name, allowance);
        const auto one = Hdf5Worker::content(answer);
        EXPECT_NE(std::search(all.begin(), all.end(), one.begin(), one.end()), all.end())
            << entry.path() << ": " << dataset.name;
      }
    }
  }
  EXPECT_GT(datasets, 70U);
}

TEST(Hdf5Chunks, InOrderAndUnfilteredTheyAreNotCopied) {
  const auto mapped = MappedFile::open(sample("chunks_new.h5"));
  const Hdf5File file(mapped);
  const auto is_in_place = [&](const char* name) {
    const auto bytes = file.read(file.describe(name)).bytes();
    return bytes.data() >= mapped->bytes().data() &&
           bytes.data() < mapped->bytes().data() + mapped->bytes().size();
  };
  EXPECT_TRUE(is_in_place("single"));
  EXPECT_TRUE(is_in_place("rows"));
  EXPECT_FALSE(is_in_place("plain"));
  EXPECT_FALSE(is_in_place("single_gzip"));
}

// Only the C library writes them.
TEST(Hdf5Chunks, EdgesMayBeUnfiltered) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  std::vector<float> values(10 * 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const hsize_t extents[] = {10, 20}, chunk[] = {4, 8};
  const hid_t space = H5Screate_simple(2, extents, nullptr), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_deflate(plist, 6);
  H5Pset_chunk_opts(plist, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
  const hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  H5Dwrite(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(dataset);
  H5Pclose(plist);
  H5Sclose(space);
  H5Fclose(file);
  H5Pclose(access);
  const Hdf5File read(MappedFile::open(path));
  EXPECT_THAT(read.read(read.describe("x")).values(), testing::ElementsAreArray(values));
}

// Known values: computed by the definition, sums modulo 65535 of big-endian words.
TEST(Hdf5Chunks, Fletcher32IsTheDefinition) {
  for (const std::size_t size : {1U, 2U, 3U, 719U, 720U, 721U, 100'000U}) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 250);
    std::uint64_t low = 0, high = 0;
    for (std::size_t i = 0; i < size; i += 2) {
      low += std::to_integer<std::uint64_t>(bytes[i]) << 8;
      if (i + 1 < size) low += std::to_integer<std::uint64_t>(bytes[i + 1]);
      low %= 65535;
      high = (high + low) % 65535;
    }
    const std::uint32_t sum = fletcher32(bytes);
    EXPECT_EQ((sum & 0xffff) % 65535, low) << size;
    EXPECT_EQ((sum >> 16) % 65535, high) << size;
  }
}

}  // namespace
}  // namespace assay::hdf5_worker_test
