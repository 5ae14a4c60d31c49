#pragma once

#include <map>
#include <optional>
#include <string>

#include "assay/align/given/given_dump.h"
#include "assay/align/step/sources.h"

namespace assay::align {

/// The micro-batches of a replay.
struct Batches {
  Batch batch = {};
  std::int64_t micro_batches = 1, steps = 1;
  std::int64_t all() const { return micro_batches * steps; }
};

/// The batches of a recorded program, whose embedding was given [sequences, length] integers: its rows are
/// sequence after sequence. Nothing: it is another file, or the dump of a replay.
/// @throws Error  if steps have other numbers of micro-batches, or these other sizes
std::optional<Batches> batches_of_program(const std::string& path);

/// The tokens of a replay. Of a file that has one tensor of integers [micro-batches of all steps, sequences,
/// length + 1]: each token's target is the next one; or two, "tokens" and "targets" [.., .., length], where a
/// target of -100 counts in no loss. The first two dimensions may be one. Or of an assay-dump of a replay
/// what its embedding and its head took, from the first step on. Or of a recorded program what its embedding
/// and, as "labels", its model were given, of which each is the target of the token before it, as in Hugging
/// Face's code.
class GivenTokens {
 public:
  /// Throws Error if they are others, or beyond the vocabulary.
  GivenTokens(const std::string& path, const Batches&, std::int64_t vocabulary);
  const Sequences& of(const MicroBatch& which) const { return sequences_.at(which); }
  /// Whether they were recorded.
  bool are_recorded() const { return are_recorded_; }

 private:
  void take_recorded();
  void take_of_program();
  void check_masks() const;
  void take_plain();
  std::vector<std::int64_t> integers(const LogicalTensor&, const Shape&) const;
  const LogicalTensor& only(const std::string& name) const;
  void check(std::int64_t vocabulary) const;

  const GivenDump given_;
  const Batches batches_;
  bool are_recorded_ = false;
  std::map<MicroBatch, Sequences> sequences_;
};

}  // namespace assay::align
