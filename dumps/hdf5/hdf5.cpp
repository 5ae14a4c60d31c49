#include "assay/dumps/hdf5/hdf5.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "assay/dumps/hdf5/chunks.h"
#include "assay/dumps/hdf5/process.h"
#include "assay/dumps/hdf5/virtual.h"
#include "assay/dumps/hdf5/windows.h"
#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/claim.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// A dataset without stored data reads as its fill value, so that a small file can claim any size.
constexpr std::uint64_t max_unstored = std::uint64_t{64} << 20;
constexpr std::uint64_t max_ratio = 1032;
// An answer of any kind, and an error text.
constexpr std::uint64_t small_answer = std::uint64_t{1} << 20;
// Chunks and filters need 24 bytes for each chunk.
constexpr std::uint64_t chunks_answer = small_answer + 24 * hdf5_max_chunks;
// The library needs 272 bytes of a file for the smallest dataset; its description is about as long, and the
// library keeps some 1000 for it.
constexpr std::uint64_t list_growth = 8;

// Files whose workers live, the oldest first. A dump has thousands of files, and a process for each would be
// too many: the oldest worker ends, and its file starts another when it is asked again.
constexpr std::size_t max_workers = 32;
std::mutex working_mutex;
std::deque<const Hdf5File*> working;
[[maybe_unused]] const int working_is_free = free_in_forked<working_mutex>();

void check_size(const Hdf5File::Dataset& dataset, std::uint64_t size, const MappedFile& file) {
  if (size > max_unstored && size / max_ratio > file.bytes().size()) {
    throw Error("{}: claims {} bytes in a file of {}", where(file, dataset.name), size, file.bytes().size());
  }
  // A file with holes has any size. What chunks hold is known when their places are: no more than the file.
  const bool is_known = dataset.storage != Hdf5Storage::chunked;
  check_claim(size, is_known ? dataset.stored : file.bytes().size(), where(file, dataset.name));
}

std::uint64_t bytes_of(const Hdf5File::Dataset& dataset) {
  return static_cast<std::uint64_t>(element_count(dataset.shape)) * size_of(*dataset.dtype);
}

Hdf5File::Dataset parse_dataset(MessageReader& message, const MappedFile& file) {
  Hdf5File::Dataset dataset;
  dataset.name = message.text();
  constexpr std::uint64_t last = static_cast<std::uint64_t>(all_dtypes[std::size(all_dtypes) - 1]);
  const std::uint64_t dtype = message.number();
  if (dtype != hdf5_none && dtype > last) message.fail();
  if (dtype != hdf5_none) dataset.dtype = static_cast<DType>(dtype);
  dataset.type = message.text();
  if (dataset.dtype) dataset.type = name(*dataset.dtype);
  dataset.big_endian = message.number_to(1) == 1;
  constexpr std::uint64_t max_rank = 32;
  const std::uint64_t rank = message.number_to(max_rank);
  std::uint64_t bytes = dataset.dtype ? size_of(*dataset.dtype) : 1;
  bool fits = true;
  for (std::uint64_t d = 0; d < rank; ++d) {
    const std::uint64_t extent = message.number();
    fits = fits && extent <= std::uint64_t{std::numeric_limits<std::int64_t>::max()} &&
           !__builtin_mul_overflow(bytes, extent, &bytes) &&
           bytes <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    dataset.shape.push_back(fits ? static_cast<std::int64_t>(extent) : 0);
  }
  dataset.storage = message.choice(Hdf5Storage::elsewhere);
  dataset.offset = message.number();
  dataset.stored = message.number();
  if (dataset.storage == Hdf5Storage::in_file) dataset.stored = bytes;
  if (!fits) {
    dataset.problem = where(file, dataset.name) + ": its shape has more than 2^63 bytes";
  } else if (dataset.storage == Hdf5Storage::elsewhere) {
    dataset.problem = where(file, dataset.name) +
                      ": keeps its data in other files, which are never opened: copy it with h5repack";
  }
  return dataset;
}

}  // namespace

std::string where(const MappedFile& file, const std::string& dataset) {
  return file.path().string() + ": dataset '" + dataset + "'";
}

Hdf5File::Hdf5File(std::shared_ptr<const MappedFile> file, Log log)
    : file_(std::move(file)), log_(std::move(log)) {}

Hdf5File::~Hdf5File() {
  rest();
}

pid_t Hdf5File::worker() const {
  const std::lock_guard lock(mutex_);
  return worker_ == nullptr ? 0 : worker_->process();
}

void Hdf5File::rest() const {
  const std::lock_guard lock(mutex_);
  const std::lock_guard working_lock(working_mutex);
  rest_unlocked();
}

void Hdf5File::rest_unlocked() const {
  std::erase(working, this);
  // A dead one stays, so that a file that kills its worker does so once.
  if (worker_ != nullptr && worker_->process() != 0) worker_.reset();
}

std::vector<std::byte> Hdf5File::ask(Hdf5Question question, const std::string& name,
                                     std::uint64_t allowance) const {
  const std::lock_guard lock(mutex_);
  if (worker_ != nullptr && worker_->is_of_parent()) {
    const std::lock_guard working_lock(working_mutex);
    rest_unlocked();
  }
  if (worker_ == nullptr) {
    const std::lock_guard working_lock(working_mutex);
    if (working.size() >= max_workers) {
      // One that is answering is left alone.
      for (const Hdf5File* oldest : working) {
        if (std::unique_lock other(oldest->mutex_, std::try_to_lock); other.owns_lock()) {
          oldest->rest_unlocked();
          break;
        }
      }
    }
    worker_ = std::make_unique<Hdf5Worker>(*file_);
    log_.debug("process {} reads {} with the HDF5 library", worker_->process(), file_->path().string());
    working.push_back(this);
  }
  return worker_->ask(question, name, allowance);
}

const Hdf5File::Listing& Hdf5File::list() const {
  {
    const std::lock_guard lock(mutex_);
    if (listing_ != nullptr) return *listing_;
  }
  const auto answer = ask(Hdf5Question::list, "", small_answer + list_growth * file_->bytes().size());
  MessageReader message(Hdf5Worker::content(answer), file_->path().string());
  auto listing = std::make_unique<Listing>();
  bool needs_worker = false;
  while (!message.rest().empty()) {
    const auto item = message.choice(Hdf5Item::left_out);
    if (item != Hdf5Item::dataset) {
      (item == Hdf5Item::note ? listing->notes : listing->left_out)
          .push_back(file_->path().string() + ": " + message.text());
      continue;
    }
    Dataset dataset = parse_dataset(message, *file_);
    if (!dataset.dtype) {
      listing->left_out.push_back(where(*file_, dataset.name) + ": holds " + dataset.type);
      continue;
    }
    needs_worker = needs_worker || dataset.storage != Hdf5Storage::in_file;
    listing->datasets.push_back(std::move(dataset));
  }
  std::vector<Dataset>& all = listing->datasets;
  std::sort(all.begin(), all.end(), [](const Dataset& a, const Dataset& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(all.begin(), all.end(),
                                        [](const Dataset& a, const Dataset& b) { return a.name == b.name; });
  if (twice != all.end()) throw Error("{}: stands twice in its group", where(*file_, twice->name));
  if (!needs_worker) rest();
  const std::lock_guard lock(mutex_);
  if (listing_ == nullptr) listing_ = std::move(listing);
  return *listing_;
}

const Hdf5File::Dataset& Hdf5File::describe(const std::string& name) const {
  const std::string relative = name.starts_with('/') ? name.substr(1) : name;
  const std::vector<Dataset>& all = list().datasets;
  const auto found = std::lower_bound(all.begin(), all.end(), relative,
                                      [](const Dataset& a, const std::string& b) { return a.name < b; });
  if (found == all.end() || found->name != relative)
    throw Error("{}: is not in the file, or holds no numbers", where(*file_, relative));
  return *found;
}

Tensor Hdf5File::read(const Dataset& dataset) const {
  return read(dataset, dataset.dtype.value_or(DType::uint8));
}

Tensor Hdf5File::read(const Dataset& dataset, DType dtype) const {
  Hdf5Sources sources;
  return read(dataset, dtype, sources);
}

Tensor Hdf5File::read(const Dataset& dataset, DType dtype, Hdf5Sources& sources) const {
  return source(dataset, dtype, sources).whole();
}

TensorSource Hdf5File::source(const Dataset& dataset, DType dtype) const {
  Hdf5Sources sources;
  return source(dataset, dtype, sources);
}

TensorSource Hdf5File::source(const Dataset& dataset, DType dtype, Hdf5Sources& sources) const {
  if (!dataset.dtype)
    throw Error("{}: holds {}, expected numbers", where(*file_, dataset.name), dataset.type);
  if (!dataset.problem.empty()) throw Error("{}", dataset.problem);
  const std::uint64_t size = bytes_of(dataset);
  if (size == 0) return Tensor(dtype, dataset.shape);
  switch (dataset.storage) {
    case Hdf5Storage::in_file: {
      const auto bytes = file_->range(dataset.offset, size, "dataset '" + dataset.name + "'");
      if (!dataset.big_endian) return Tensor(dtype, dataset.shape, bytes, file_);
      return Tensor(dtype, dataset.shape, byte_swapped({bytes.begin(), bytes.end()}, size_of(dtype)));
    }
    case Hdf5Storage::chunked:
    case Hdf5Storage::filled:
      check_size(dataset, size, *file_);
      return read_chunks(dataset, dtype);
    case Hdf5Storage::packed:
      check_size(dataset, size, *file_);
      return read_by_library(dataset, dtype);
    case Hdf5Storage::virtual_: {
      const Pages pages = sources.assemble(*this, dataset);
      return Tensor(dtype, dataset.shape, pages.bytes, pages.owner);
    }
    case Hdf5Storage::elsewhere:
      break;
  }
  throw Error("{}: cannot be read", where(*file_, dataset.name));
}

TensorSource Hdf5File::read_chunks(const Dataset& dataset, DType dtype) const {
  const auto answer = ask(Hdf5Question::chunks, dataset.name, chunks_answer);
  Hdf5Chunks chunks = parse_chunks({Hdf5Worker::content(answer), file_->path().string()}, dataset, *file_);
  switch (decoder_of(chunks.filters)) {
    case Hdf5Decoder::library:
      return read_by_library(dataset, dtype);
    case Hdf5Decoder::none:
      throw Error(
          "{}: is compressed by {}, which the HDF5 library does not have itself; plugins are never "
          "loaded: decompress it with h5repack -f NONE",
          where(*file_, dataset.name), unknown_filter(chunks.filters));
    case Hdf5Decoder::own:
      break;
  }
  const std::uint64_t offset = elements_in_place(chunks, dataset);
  if (offset != hdf5_none && !dataset.big_endian) {
    const auto bytes = file_->range(offset, bytes_of(dataset), "dataset '" + dataset.name + "'");
    return Tensor(dtype, dataset.shape, bytes, file_);
  }
  return windows_of(std::move(chunks), dataset, dtype, file_);
}

Tensor Hdf5File::read_by_library(const Dataset& dataset, DType dtype) const {
  const std::uint64_t size = bytes_of(dataset);
  // The library holds a chunk beside the answer, and the answer is made of nothing.
  auto answer = std::make_shared<std::vector<std::byte>>(
      ask(Hdf5Question::elements, dataset.name, small_answer + 3 * size));
  const auto bytes = std::span(*answer).subspan(Hdf5Worker::answer_head);
  if (bytes.size() != size) {
    throw Error("{}: the worker answered {} bytes, expected {}: the file is malicious",
                where(*file_, dataset.name), bytes.size(), size);
  }
  if (dataset.big_endian) swap_bytes(bytes, size_of(dtype));
  return {dtype, dataset.shape, bytes, answer};
}

std::string Hdf5File::read_text(const std::string& name) const {
  const std::string relative = name.starts_with('/') ? name.substr(1) : name;
  const auto answer = ask(Hdf5Question::list, relative, small_answer);
  MessageReader message(Hdf5Worker::content(answer), file_->path().string());
  if (message.choice(Hdf5Item::left_out) != Hdf5Item::dataset) message.fail();
  const Dataset dataset = parse_dataset(message, *file_);
  message.expect_end();
  if (dataset.dtype && size_of(*dataset.dtype) == 1) {
    const Tensor bytes = read(dataset);
    return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
  }
  const auto text = ask(Hdf5Question::text, relative, small_answer + max_ratio * file_->bytes().size());
  return {reinterpret_cast<const char*>(text.data()) + Hdf5Worker::answer_head,
          text.size() - Hdf5Worker::answer_head};
}

}  // namespace assay
