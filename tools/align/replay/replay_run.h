#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assay/align/ranks/mpi_job.h"
#include "assay/align/settings/selection.h"
#include "assay/align/step/training_step.h"
#include "assay/dumps/assay_dump_writer.h"
#include "assay/golden/log.h"

namespace assay::align {

/// A whole replay: what is computed, from what, and what of it is written.
struct ReplayOrder {
  std::string model;  ///< as load_model takes it
  StepSettings settings = {};
  std::int64_t steps = 1;
  std::string weights = {}, tokens = {}, routing = {};  ///< files or dumps; empty: drawn, and free
  std::string dump = {};                                ///< empty: none
  Durability durability = Durability::disk;
  Selection selection = {};
  std::optional<std::string> modes_of = {};  ///< the strategy whose modes are replayed
  std::string fault = {};                    ///< of the catalogue, planted where it can show; empty: none
  Log log = {};                              ///< steps at debug, what ranks send at trace
};

/// The ranks of a replay, as threads or as the processes of mpirun.
class ReplayRun {
 public:
  /// @param job  nullptr: threads
  /// @throws Error  if model, strategy and batch do not go together or are too large, with the reason
  ReplayRun(ReplayOrder, MpiJob* job = nullptr);

  /// All steps.
  /// @param tell  called on the first rank after each of them
  /// @throws Error  if a file cannot be read or written, or a rank is lost; the dump is then left unfinished
  void run(const std::function<void(std::int64_t step, const StepResult&)>& tell);

  const Model& model() const { return model_; }
  const StepSettings& settings() const { return order_.settings; }
  /// Of the strategy's own modes, in which it is another function than a single device.
  std::vector<std::string> other_functions() const;
  /// Every loss is finite, and every gradient but those of steps that were skipped.
  bool is_finite() const { return finite_; }
  /// What was asked for and is not in the dump, in sentences.
  std::vector<std::string> unmet() const;

 private:
  bool is_first() const { return job_ == nullptr || job_->rank() == 0; }
  Manifest manifest() const;
  std::string producer() const;
  void check_strategy(const char* option, const Parallel&, const StepSettings&) const;
  Modes modes_of() const;
  void open_files();
  Sources sources() const;
  std::vector<int> senders() const;
  void steps(Communicator&, const Log&, const std::function<void(std::int64_t, const StepResult&)>& tell);

  ReplayOrder order_;
  MpiJob* const job_;
  const Model model_;
  std::unique_ptr<AssayDumpWriter> dump_;
  bool finite_ = true;
};

}  // namespace assay::align
