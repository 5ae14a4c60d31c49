#include "assay/align/ranks/logged_communicator.h"

#include <fmt/ranges.h>

namespace assay::align {

std::vector<Tensor> LoggedCommunicator::all_to_all(const std::vector<int>& group, const std::string& what,
                                                   const std::vector<Tensor>& parts) {
  log_.trace("{} among ranks {}", what, fmt::join(group, " "));
  return carrier_.all_to_all(group, what, parts);
}

void LoggedCommunicator::send(int to, const std::string& what, const Tensor& tensor) {
  log_.trace("sends {} to rank {}", what, to);
  carrier_.send(to, what, tensor);
}

Tensor LoggedCommunicator::receive(int from, const std::string& what) {
  log_.trace("receives {} from rank {}", what, from);
  return carrier_.receive(from, what);
}

}  // namespace assay::align
