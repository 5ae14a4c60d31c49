#include "assay/dumps/hdf5/windows.h"

#include <gmock/gmock.h>
#include <hdf5.h>

#include <fstream>
#include <random>
#include <thread>

#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::hdf5_windows_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

bool same(const Tensor& window, const Tensor& whole, std::int64_t begin) {
  const std::size_t size = size_of(whole.dtype());
  return std::ranges::equal(
      window.bytes(), whole.bytes().subspan(static_cast<std::size_t>(begin) * size, window.bytes().size()));
}

// The expected values of the whole tensors are h5py's: Formats, of every sample.
TEST(Hdf5Windows, OfEverySampleAreItsElements) {
  std::size_t tensors = 0;
  for (const char* folder : {"samples", "hdf5_samples"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(ASSAY_TEST_DATA) / folder)) {
      if (entry.path().extension() != ".h5") continue;
      const auto dump = open_dump(entry.path());
      for (std::size_t i = 0; i < dump->records.size(); ++i, ++tensors) {
        Tensor whole;
        try {
          whole = dump->read(i);
        } catch (const Error&) {  // as expected.json says
          EXPECT_THROW(dump->source(i), Error);
          continue;
        }
        const TensorSource source = dump->source(i);
        EXPECT_EQ(source.shape(), whole.shape());
        EXPECT_EQ(source.dtype(), whole.dtype());
        for (const std::int64_t length : {1, 7, 50}) {
          for (std::int64_t begin = 0; begin < whole.size(); begin += std::max<std::int64_t>(1, length - 2)) {
            const Tensor window = source.window(begin, std::min(length, whole.size() - begin));
            ASSERT_TRUE(same(window, whole, begin)) << dump->location(i) << " at " << begin;
          }
        }
      }
    }
  }
  EXPECT_GT(tensors, 70U);
}

// By the definition: element by element, its index divided by the extents of a chunk.
TEST(Hdf5Windows, RunsAreTheDefinition) {
  std::mt19937 random(20261122);
  const auto below = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random()) % most; };
  for (int trial = 0; trial < 300; ++trial) {
    Shape shape, extents;
    for (std::int64_t d = below(4); d > 0; --d) {
      shape.push_back(below(7));
      extents.push_back(random() % 3 == 0 ? shape.back() : below(9));
    }
    const std::int64_t size = element_count(shape), begin = below(size) - 1,
                       end = begin + below(size - begin);
    const ChunkGrid grid(shape, extents);
    std::int64_t at = begin, runs = 0;
    grid.for_each_run(begin, end, [&](std::size_t chunk, std::int64_t from, std::int64_t to, std::int64_t n) {
      ++runs;
      ASSERT_EQ(to, at - begin);
      for (std::int64_t i = 0; i < n; ++i, ++at) {
        const Shape index = unravel(at, shape);
        std::int64_t expected = 0, inside = 0;
        for (std::size_t d = 0; d < shape.size(); ++d) {
          expected = expected * ((shape[d] - 1) / extents[d] + 1) + index[d] / extents[d];
          inside = inside * extents[d] + index[d] % extents[d];
        }
        ASSERT_EQ(static_cast<std::int64_t>(chunk), expected) << to_string(shape) << to_string(extents);
        ASSERT_EQ(from + i, inside) << to_string(shape) << to_string(extents);
      }
    });
    EXPECT_EQ(at, end);
    EXPECT_EQ(grid.is_one_run(begin, end), runs == 1) << to_string(shape) << to_string(extents);
  }
}

TEST(Hdf5Windows, APassIsInsideOfARowOfChunks) {
  EXPECT_EQ(ChunkGrid({100, 90}, {10, 10}).open_chunks(), 9U);
  EXPECT_EQ(ChunkGrid({100, 90}, {1, 10}).open_chunks(), 1U);
  EXPECT_EQ(ChunkGrid({100, 90}, {10, 90}).open_chunks(), 1U);
  EXPECT_EQ(ChunkGrid({4, 100, 90}, {1, 10, 15}).open_chunks(), 6U);
  EXPECT_EQ(ChunkGrid({4, 100, 90}, {2, 10, 15}).open_chunks(), 60U);
  EXPECT_EQ(ChunkGrid({1, 100, 90}, {8, 10, 15}).open_chunks(), 6U);
}

/// Datasets "x" and "y" of one shape, their chunks written by turns, so that those of one are not
/// consecutive.
class Written {
 public:
  static constexpr std::int64_t rows = 600, columns = 1000, tall = 100, wide = 250;
  explicit Written(const std::filesystem::path& path, bool gzip, std::int64_t chunk_columns)
      : values_(rows * columns) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i * 31 % 1009);
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t extents[] = {rows, columns}, chunk[] = {tall, static_cast<hsize_t>(chunk_columns)};
    const hid_t space = H5Screate_simple(2, extents, nullptr), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 2, chunk);
    if (gzip) H5Pset_deflate(plist, 1);
    const auto create = [&](const char* name) {
      return H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    };
    const hid_t x = create("x"), y = create("y");
    for (hsize_t row = 0; row < rows; row += tall) {
      const hsize_t start[] = {row, 0}, count[] = {tall, columns};
      const hid_t part = H5Screate_simple(2, count, nullptr);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
      for (const hid_t dataset : {x, y})
        H5Dwrite(dataset, H5T_IEEE_F32LE, part, space, H5P_DEFAULT, values_.data() + row * columns);
      H5Sclose(part);
    }
    for (const hid_t dataset : {x, y}) H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    H5Fclose(file);
  }
  Tensor whole() const { return {{rows, columns}, std::span<const float>(values_)}; }

 private:
  std::vector<float> values_;
};

/// Its "x", as the parts of the reader see it.
struct Opened {
  explicit Opened(const std::filesystem::path& path)
      : file(MappedFile::open(path)), hdf5(file), dataset(hdf5.describe("x")) {}
  Hdf5Chunks chunks() const {
    Hdf5Worker worker(*file);
    const auto answer = worker.ask(Hdf5Question::chunks, "x", 1 << 20);
    return parse_chunks({Hdf5Worker::content(answer), "x"}, dataset, *file);
  }
  std::shared_ptr<const MappedFile> file;
  Hdf5File hdf5;
  const Hdf5File::Dataset& dataset;
};

/// Writes over the middle of the chunks that `damaged` says, in place of what deflate made.
void damage(const std::filesystem::path& path, const std::vector<std::size_t>& damaged) {
  const Hdf5Chunks chunks = Opened(path).chunks();
  std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const std::size_t place : damaged) {
    stream.seekp(static_cast<std::streamoff>(chunks.places.at(place).offset + chunks.places[place].size / 2));
    stream << std::string(64, '\xff');
  }
}

TEST(Hdf5Windows, UnfilteredChunksAreNotCopied) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  const Written written(path, false, Written::columns);
  const Opened opened(path);
  const TensorSource source = opened.hdf5.source(opened.dataset, DType::float32);
  const auto is_in_place = [bytes = opened.file->bytes()](const Tensor& t) {
    return t.bytes().data() >= bytes.data() && t.bytes().data() < bytes.data() + bytes.size();
  };
  constexpr std::int64_t chunk = Written::tall * Written::columns;
  EXPECT_TRUE(is_in_place(source.window(0, chunk)));
  EXPECT_TRUE(is_in_place(source.window(3 * chunk + 5, chunk - 5)));
  EXPECT_FALSE(is_in_place(source.window(5, chunk)));
  for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{5}, 3 * chunk + 5})
    EXPECT_TRUE(same(source.window(begin, chunk), written.whole(), begin)) << begin;
  EXPECT_TRUE(same(source.whole(), written.whole(), 0));
}

TEST(Hdf5Windows, ThreadsShareTheChunks) {
  const Scratch scratch;
  for (const bool gzip : {false, true}) {
    const auto path = scratch.path() / "x.h5";
    const Written written(path, gzip, Written::wide);
    const Tensor expected = written.whole();
    const auto dump = open_dump(path);
    const TensorSource source = merge(*dump, logical_tensors(*dump).front()).tensor;
    std::atomic<std::int64_t> next = 0;
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> pool;
    for (int t = 0; t < 4; ++t) {
      pool.emplace_back([&] {
        constexpr std::int64_t length = 3001;
        for (std::int64_t at = next.fetch_add(length); at < expected.size(); at = next.fetch_add(length)) {
          if (!same(source.window(at, std::min(length, expected.size() - at)), expected, at)) ++wrong;
        }
      });
    }
    pool.clear();
    EXPECT_EQ(wrong, 0) << gzip;
    EXPECT_TRUE(same(source.whole(), expected, 0)) << gzip;
  }
}

// Twelve chunks in rows of four; those of the third row are damaged.
TEST(Hdf5Windows, ADamagedChunkIsAnErrorOfWhatTouchesIt) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  const Written written(path, true, Written::wide);
  damage(path, {9, 10});
  const auto dump = open_dump(path);
  const TensorSource source = merge(*dump, logical_tensors(*dump).front()).tensor;
  constexpr std::int64_t third_row = 2 * Written::tall * Written::columns;
  EXPECT_TRUE(same(source.window(0, third_row), written.whole(), 0));
  const auto names_the_first =
      ThrowsMessage<Error>(HasSubstr("x.h5: dataset 'x': the chunk at [200, 250] is damaged"));
  EXPECT_THAT([&] { source.window(third_row, Written::columns); }, names_the_first);
  EXPECT_THAT([&] { source.window(third_row + 300, 200); }, names_the_first);
  EXPECT_THAT([&] { source.whole(); }, names_the_first);
  EXPECT_THAT([&] { dump->read(0); }, names_the_first);
  EXPECT_TRUE(same(source.window(third_row, Written::wide), written.whole(), third_row));
  EXPECT_TRUE(same(dump->read(1), written.whole(), 0));
}

TEST(Hdf5Windows, ChunksAreDecodedOnceAndNotKeptForEver) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  const Written written(path, true, Written::wide);
  const Opened opened(path);
  const Hdf5Chunks chunks = opened.chunks();
  const std::size_t cost = bytes_of_chunk(chunks) + Hdf5ChunkCache::cost_of_entry;
  Hdf5ChunkCache cache(chunks, opened.dataset, *opened.file, 4 * cost);
  const std::size_t row[] = {0, 1, 2, 3}, next[] = {4, 5};
  Hdf5ChunkCache::Chunks first = cache.get(row);
  EXPECT_EQ(first[0]->bytes().size(), bytes_of_chunk(chunks));
  const std::weak_ptr<const Hdf5ChunkCache::Chunk> oldest = first[0], kept = first[3];
  EXPECT_EQ(cache.get(row), first);
  first.clear();
  cache.get(next);
  EXPECT_TRUE(oldest.expired());
  EXPECT_FALSE(kept.expired());
  EXPECT_EQ(cache.get(std::span(row).last(1))[0], kept.lock());
}

}  // namespace
}  // namespace assay::hdf5_windows_test
