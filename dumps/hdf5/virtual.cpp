#include "assay/dumps/hdf5/virtual.h"

#include <algorithm>
#include <cstring>

#include "assay/dumps/hdf5/chunks.h"
#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/claim.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

/// The elements that a regular hyperslab selects, as runs in C order.
class Hyperslab {
 public:
  struct Run {
    std::size_t at = 0, size = 0;  ///< in elements
  };

  static Hyperslab all(const Shape& shape) {
    Hyperslab runs;
    runs.shape_ = shape;
    for (const std::int64_t extent : shape) runs.dims_.push_back({0, 1, 1, extent});
    return runs.begin();
  }
  /// Throws Error if it is no regular part of `shape`.
  static Hyperslab parse(MessageReader& message, const Shape& shape, const std::string& where) {
    const auto kind = message.choice(Hdf5Selection::other);
    if (kind == Hdf5Selection::all) return all(shape);
    if (kind == Hdf5Selection::other)
      throw Error("{}: is put together in an irregular way: copy it with h5repack -l CONTI", where);
    Hyperslab runs;
    runs.shape_ = shape;
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    const bool same_rank = message.number_to(hdf5_max_rank) == shape.size();
    for (std::size_t d = 0; same_rank && d < shape.size(); ++d) {
      std::int64_t number[4];
      for (std::int64_t& n : number) n = static_cast<std::int64_t>(std::min(message.number(), most));
      const auto [start, stride, count, block] = number;
      runs.dims_.push_back({start, stride, count, block});
      // The last element; an overflow is far outside too. Unlimited counts are such.
      std::int64_t end = 0;
      if (count < 1 || block < 1 || stride < (count == 1 ? 0 : block) ||
          __builtin_mul_overflow(count - 1, stride, &end) || __builtin_add_overflow(end, start, &end) ||
          __builtin_add_overflow(end, block, &end) || end > shape[d]) {
        throw Error("{}: maps elements that are not in the shape {}", where, to_string(shape));
      }
    }
    if (!same_rank) throw Error("{}: maps another number of dimensions than {}", where, to_string(shape));
    return runs.begin();
  }

  std::int64_t count() const {
    std::int64_t product = 1;
    for (const Dim& dim : dims_) product *= dim.count * dim.block;
    return product;
  }
  /// The next run; of size 0 behind the last.
  Run next() {
    if (done_) return {};
    if (dims_.empty()) {
      done_ = true;
      return {0, 1};
    }
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const Dim& dim = dims_[d];
      flat = flat * shape_[d] + dim.start + at_[d] / dim.block * dim.stride + at_[d] % dim.block;
    }
    const Dim& last = dims_.back();
    const std::int64_t size = last.block;
    at_.back() += size;
    for (std::size_t d = dims_.size(); d-- > 0;) {
      if (at_[d] < dims_[d].count * dims_[d].block) break;
      at_[d] = 0;
      if (d == 0) {
        done_ = true;
      } else {
        ++at_[d - 1];
      }
    }
    return {static_cast<std::size_t>(flat), static_cast<std::size_t>(size)};
  }

 private:
  static constexpr std::uint64_t hdf5_max_rank = 32;
  struct Dim {
    std::int64_t start, stride, count, block;
  };
  Hyperslab begin() {
    at_.assign(dims_.size(), 0);
    done_ = count() == 0;
    return *this;
  }

  Shape shape_;
  std::vector<Dim> dims_;
  Shape at_;
  bool done_ = false;
};

void copy(std::span<std::byte> target, Hyperslab to, std::span<const std::byte> source, Hyperslab from,
          std::size_t element) {
  Hyperslab::Run write = to.next(), read = from.next();
  while (write.size != 0 && read.size != 0) {
    const std::size_t size = std::min(write.size, read.size);
    std::memcpy(target.data() + write.at * element, source.data() + read.at * element, size * element);
    write = write.size == size ? to.next() : Hyperslab::Run{write.at + size, write.size - size};
    read = read.size == size ? from.next() : Hyperslab::Run{read.at + size, read.size - size};
  }
}

}  // namespace

Tensor Hdf5Sources::read(const Hdf5File& file, const Source& source, const std::string& where) {
  const std::filesystem::path& path = file.file().path();
  const std::string own_name = path.filename().string();
  const std::string file_name = source.file == "." ? own_name : source.file;
  const std::string name = source.dataset.starts_with('/') ? source.dataset.substr(1) : source.dataset;
  const auto [entry, is_new] = tensors_.try_emplace({file_name, name});
  if (!is_new) {
    if (!entry->second) throw Error("{}: is part of itself, over '{}' in {}", where, name, file_name);
    return *entry->second;
  }
  try {
    const Hdf5File* from = &file;
    if (file_name != own_name) {
      std::unique_ptr<Hdf5File>& opened = files_[file_name];
      if (opened == nullptr)
        opened = std::make_unique<Hdf5File>(MappedFile::open_in(path.parent_path(), file_name), file.log_);
      from = opened.get();
    }
    const Hdf5File::Dataset& dataset = from->describe(name);
    return *(tensors_[{file_name, name}] = from->read(dataset, *dataset.dtype, *this));
  } catch (const Error& problem) {
    throw Error("{}: is made of others, and one cannot be read: {}", where, problem.what());
  }
}

Pages Hdf5Sources::assemble(const Hdf5File& file, const Hdf5File::Dataset& dataset) {
  const std::string where = assay::where(file.file(), dataset.name);
  // A source that leads back here finds it unfinished.
  tensors_.try_emplace({file.file().path().filename().string(), dataset.name});
  constexpr std::uint64_t allowance = std::uint64_t{256} << 20;
  const auto answer = file.ask(Hdf5Question::sources, dataset.name, allowance);
  MessageReader message(Hdf5Worker::content(answer), file.file().path().string());
  const std::string fill = message.text();
  const std::size_t element = size_of(*dataset.dtype);
  if (fill.size() != element) message.fail();

  struct MappedSource {
    Tensor tensor;
    Hyperslab to, from;
  };
  std::vector<MappedSource> parts;
  std::uint64_t stored = 0;
  const std::uint64_t count = message.number_to(hdf5_max_sources);
  for (std::uint64_t i = 0; i < count; ++i) {
    Source source;
    source.file = message.text();
    source.dataset = message.text();
    Hyperslab to = Hyperslab::parse(message, dataset.shape, where);
    const Tensor tensor = read(file, source, where);
    if (tensor.dtype() != *dataset.dtype) {
      throw Error("{}: holds {}, but its source '{}' in {} holds {}", where, name(*dataset.dtype),
                  source.dataset, source.file, name(tensor.dtype()));
    }
    Hyperslab from = Hyperslab::parse(message, tensor.shape(), where);
    if (to.count() != from.count()) {
      throw Error("{}: takes {} elements of its source '{}' for {} of its own", where, from.count(),
                  source.dataset, to.count());
    }
    stored += tensor.bytes().size();
    parts.push_back({tensor, std::move(to), std::move(from)});
  }
  message.expect_end();
  const std::uint64_t size = static_cast<std::uint64_t>(element_count(dataset.shape)) * element;
  check_claim(size, stored, where);
  Pages pages = allocate_pages(size, where);
  std::vector<std::byte> value(element);
  std::memcpy(value.data(), fill.data(), element);
  if (dataset.big_endian) swap_bytes(value, element);
  const bool is_zero = std::ranges::all_of(value, [](std::byte b) { return b == std::byte{0}; });
  if (!is_zero) fill_with(pages.bytes, value);
  for (const MappedSource& part : parts) copy(pages.bytes, part.to, part.tensor.bytes(), part.from, element);
  return pages;
}

}  // namespace assay
