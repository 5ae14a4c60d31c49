// Swap (docs/semantics.md D11). Between forward and backward the activations of a micro-batch lie outside of
// the device (in a file, for there is no other memory here), byte for byte. Parameters stay.
#include "assay/align/strategies/swap.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "assay/golden/error.h"

namespace assay::align {

void SwapSpace::take(Tape& tape) {
  file_.reset(std::tmpfile());
  if (!file_) throw Error("swap: no temporary file: {}", std::strerror(errno));
  std::set<std::size_t> stay;
  for (const Machine::NamedParameter& p : tape.parameters()) stay.insert(p.value.id);
  std::vector<Tensor>& held = tape.held();
  for (std::size_t id = 0; id < held.size(); ++id) {
    if (stay.contains(id) || held[id].bytes().empty()) continue;
    const std::span<const std::byte> bytes = held[id].bytes();
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
      throw Error("swap: cannot write {} bytes: {}", bytes.size(), std::strerror(errno));
    tensors_.push_back({id, held[id].dtype(), held[id].shape(), bytes.size()});
    held[id] = {};
  }
  if (std::fflush(file_.get()) != 0) throw Error("swap: cannot write: {}", std::strerror(errno));
}

void SwapSpace::give_back(Tape& tape) {
  std::rewind(file_.get());
  for (const Swapped& t : tensors_) {
    std::vector<std::byte> bytes(t.bytes);
    if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
      throw Error("swap: cannot read {} bytes back: {}", bytes.size(), std::strerror(errno));
    tape.held()[t.id] = Tensor(t.dtype, t.shape, std::move(bytes));
  }
  tensors_.clear();
  file_.reset();
}

}  // namespace assay::align
