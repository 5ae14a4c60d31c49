#include "assay/dumps/hdf5/chunk_cache.h"

#include <algorithm>
#include <optional>

#include "assay/dumps/io/claim.h"
#include "assay/golden/error.h"

namespace assay {

Hdf5ChunkCache::Hdf5ChunkCache(const Hdf5Chunks& chunks, const Hdf5File::Dataset& dataset,
                               const MappedFile& file, std::size_t capacity)
    : chunks_(chunks),
      dataset_(dataset),
      file_(file),
      capacity_(std::max<std::size_t>(1, capacity / (bytes_of_chunk(chunks) + cost_of_entry))) {}

std::shared_ptr<Hdf5ChunkCache::Chunk> Hdf5ChunkCache::find_or_add(std::size_t place, bool& is_new) {
  const std::lock_guard lock(mutex_);
  const auto found = by_place_.find(place);
  is_new = found == by_place_.end();
  if (!is_new) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->chunk;
  }
  entries_.push_front({place, std::make_shared<Chunk>()});
  by_place_.emplace(place, entries_.begin());
  if (entries_.size() > capacity_) {
    by_place_.erase(entries_.back().place);
    entries_.pop_back();
  }
  return entries_.front().chunk;
}

// No thread waits before it has done what it began, so that none waits for ever.
Hdf5ChunkCache::Chunks Hdf5ChunkCache::get(std::span<const std::size_t> places) {
  std::vector<std::shared_ptr<Chunk>> chunks;
  chunks.reserve(places.size());
  std::optional<Hdf5Unfilter> unfilter;
  for (const std::size_t place : places) {
    bool is_new = false;
    Chunk& chunk = *chunks.emplace_back(find_or_add(place, is_new));
    if (!is_new) continue;
    try {
      if (!unfilter) unfilter.emplace(chunks_.filters, bytes_of_chunk(chunks_));
      decode(place, *unfilter, chunk);
    } catch (...) {
      chunk.problem_ = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      chunk.done_ = true;
    }
    done_.notify_all();
  }
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return std::ranges::all_of(chunks, &Chunk::done_); });
  }
  for (const auto& chunk : chunks) {
    if (chunk->problem_) std::rethrow_exception(chunk->problem_);
  }
  return {chunks.begin(), chunks.end()};
}

void Hdf5ChunkCache::decode(std::size_t place, Hdf5Unfilter& unfilter, Chunk& chunk) const {
  const Hdf5Chunks::Place& stored = chunks_.places[place];
  const Shape corner = corner_of(place, dataset_.shape, chunks_.extents);
  bool is_edge = false;
  for (std::size_t d = 0; d < corner.size(); ++d)
    is_edge = is_edge || corner[d] + chunks_.extents[d] > dataset_.shape[d];
  const std::uint64_t skipped = is_edge && chunks_.edges_are_unfiltered ? hdf5_none : stored.skipped;
  const std::size_t size = bytes_of_chunk(chunks_);
  chunk.content_ = within_memory(size, where(file_, dataset_.name), [&] {
    return unfilter(file_.range(stored.offset, stored.size, "a chunk of '" + dataset_.name + "'"), skipped);
  });
  if (chunk.content_.bytes.empty()) {
    throw Error("{}: the chunk at {} is damaged: it does not inflate to {} bytes, or fails its checksum",
                where(file_, dataset_.name), to_string(corner), size);
  }
}

}  // namespace assay
