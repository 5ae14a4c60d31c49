#pragma once

#include <map>
#include <string>

#include "assay/align/given/given_steps.h"
#include "assay/align/given/given_tokens.h"

namespace assay::align {

/// The experts that the routers of a recorded replay have chosen, from its first step on.
class GivenRouting {
 public:
  /// Throws Error if a choice is missing, or is not one of top_k experts for each token.
  GivenRouting(const std::string& path, const Model&, const Batches&);
  /// [tokens, top_k]. From any thread.
  Tensor of(const std::string& module, const MicroBatch&) const;

 private:
  const GivenDump given_;
  std::map<std::string, GivenSteps> routers_;  ///< by module
};

}  // namespace assay::align
