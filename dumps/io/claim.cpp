#include "assay/dumps/io/claim.h"

namespace assay {

void check_claim(std::uint64_t claimed, std::uint64_t stored, std::string_view where) {
  if (claimed > max_claim && claimed / max_expansion >= stored) {
    throw Error(
        "{}: claims {} bytes, but {} are stored; more than {} bytes and {} times what is stored are not "
        "believed: save it uncompressed",
        where, claimed, stored, max_claim, max_expansion);
  }
}

std::vector<std::byte> allocate_claim(std::uint64_t claimed, std::uint64_t stored, std::string_view where) {
  check_claim(claimed, stored, where);
  return within_memory(claimed, where, [&] { return std::vector<std::byte>(claimed); });
}

}  // namespace assay
