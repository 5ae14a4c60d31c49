#include "assay/dumps/io/pages.h"

#include <sys/mman.h>

#include "assay/golden/error.h"

namespace assay {

Pages allocate_pages(std::uint64_t size, std::string_view where) {
  if (size == 0) return {};
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw Error("{}: needs {} bytes, more than there is memory", where, size);
  ::madvise(address, size, MADV_HUGEPAGE);  // a wish: 512 times fewer first touches
  std::shared_ptr<void> owner(address, [size](void* begin) { ::munmap(begin, size); });
  return {{static_cast<std::byte*>(address), size}, std::move(owner)};
}

}  // namespace assay
