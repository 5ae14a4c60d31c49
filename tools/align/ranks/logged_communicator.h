#pragma once

#include <string>
#include <vector>

#include "assay/align/ranks/communicator.h"
#include "assay/golden/log.h"

namespace assay::align {

/// A communicator that logs, at trace, with whom its rank exchanges tensors, and under which name.
class LoggedCommunicator : public Communicator {
 public:
  /// @param log  names the rank
  LoggedCommunicator(Communicator& carrier, Log log) : carrier_(carrier), log_(std::move(log)) {}
  int rank() const override { return carrier_.rank(); }
  int size() const override { return carrier_.size(); }
  std::vector<Tensor> all_to_all(const std::vector<int>& group, const std::string& what,
                                 const std::vector<Tensor>& parts) override;
  void send(int to, const std::string& what, const Tensor&) override;
  Tensor receive(int from, const std::string& what) override;

 private:
  Communicator& carrier_;
  const Log log_;
};

}  // namespace assay::align
