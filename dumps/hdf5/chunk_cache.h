#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "assay/dumps/hdf5/chunks.h"

namespace assay {

/// The chunks of one dataset with their filters undone. Several threads may ask at the same time: each
/// decodes chunks that no other thread has begun. The most recently used chunks are kept.
class Hdf5ChunkCache {
 public:
  class Chunk {
   public:
    std::span<const std::byte> bytes() const { return content_.bytes; }

   private:
    friend class Hdf5ChunkCache;
    Hdf5Unfilter::Chunk content_;
    std::exception_ptr problem_;
    bool done_ = false;  // under the mutex of the cache
  };
  using Chunks = std::vector<std::shared_ptr<const Chunk>>;

  /// All of them outlive the cache.
  /// @param capacity  in bytes of chunks, and cost_of_entry for each; a question may need more while it lasts
  Hdf5ChunkCache(const Hdf5Chunks&, const Hdf5File::Dataset&, const MappedFile&, std::size_t capacity);

  /// The chunks at these places, none of which is unstored. Throws Error that names the first damaged one.
  Chunks get(std::span<const std::size_t> places);

  static constexpr std::size_t cost_of_entry = 256;

 private:
  struct Entry {
    std::size_t place;
    std::shared_ptr<Chunk> chunk;
  };
  std::shared_ptr<Chunk> find_or_add(std::size_t place, bool& is_new);
  void decode(std::size_t place, Hdf5Unfilter&, Chunk&) const;

  const Hdf5Chunks& chunks_;
  const Hdf5File::Dataset& dataset_;
  const MappedFile& file_;
  std::size_t capacity_;  ///< in chunks
  std::mutex mutex_;      ///< of all below
  std::condition_variable done_;
  std::list<Entry> entries_;  ///< the one that was asked for last in front
  std::unordered_map<std::size_t, std::list<Entry>::iterator> by_place_;
};

}  // namespace assay
