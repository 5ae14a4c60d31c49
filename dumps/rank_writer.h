#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "assay/dumps/assay_dump.h"
#include "assay/dumps/hdf5/writer.h"

namespace assay {

/// The event that a finished dump survives: a power failure, or only the end of its process. The latter is
/// enough for a dump that is read at once and removed.
enum class Durability { disk, page_cache };

/// One rank's part of an assay-dump, version 1, in HDF5: its tensors, its index, and a journal for the case
/// that the process dies. Ranks may be processes of their own, each with a writer in the same folder.
class RankWriter {
 public:
  /// Where the bits of a tensor lie: in a dataset, from this byte of the file on.
  struct Place {
    std::string dataset;
    std::uint64_t offset = 0;
  };

  /// Replaces what an unfinished recording of the rank has left. Throws Error if the file cannot be made.
  RankWriter(const std::filesystem::path& folder, int rank);
  /// Leaves an unfinished part if finish() was not called.
  ~RankWriter();
  RankWriter(const RankWriter&) = delete;
  RankWriter& operator=(const RankWriter&) = delete;

  /// The name of the file when it is finished, which lines of the index say.
  const std::string& file() const { return file_; }
  Place write(const Tensor&);
  /// Adds a line, without its end, to the journal: of a tensor that was written, with its offset.
  void journal(std::string_view line);
  /// @param index  the lines of all tensors, each with its end
  void finish(std::string_view index, Durability);
  /// The journal means nothing beside a manifest.
  void remove_journal() const;
  /// Removes all files.
  void discard();

 private:
  std::filesystem::path part(std::string_view ending) const;

  std::filesystem::path folder_;
  std::string stem_, file_;
  std::unique_ptr<Hdf5Writer> hdf5_;
  std::int64_t tensors_ = 0;
};

/// Begins a dump in a folder that is empty or not there; returns whether it made the folder. Throws Error for
/// another folder, and for a manifest that could not be read back.
bool begin_dump(const std::filesystem::path& folder, const Manifest&);

/// Ends a dump whose ranks are all finished: its manifest gets its name. Of several processes the first does
/// it.
void finish_dump(const std::filesystem::path& folder, Durability);

}  // namespace assay
