#include "driver.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace assay {
namespace {

struct MemoryFile {
  H5FD_t base;  // first: the library knows nothing else
  haddr_t end_of_addresses = 0;
};

std::span<const std::byte> bytes;
MemoryFile* opened = nullptr;
bool places_only = false;
int places = 0;
PlacesOnly::Place place;

// The names of other files (links, virtual sources) come here too, and end here.
H5FD_t* open_file(const char*, unsigned flags, hid_t, haddr_t) {
  if (opened != nullptr || (flags & H5F_ACC_RDWR) != 0) return nullptr;
  opened = new MemoryFile{};
  return &opened->base;
}

herr_t close_file(H5FD_t* file) {
  delete reinterpret_cast<MemoryFile*>(file);
  opened = nullptr;
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) *flags = 0;
  return 0;
}

haddr_t get_eoa(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const MemoryFile*>(file)->end_of_addresses;
}

herr_t set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  reinterpret_cast<MemoryFile*>(file)->end_of_addresses = address;
  return 0;
}

haddr_t get_eof(const H5FD_t*, H5FD_mem_t) {
  return bytes.size();
}

herr_t read(H5FD_t*, H5FD_mem_t type, hid_t, haddr_t offset, size_t size, void* target) {
  if (places_only && type == H5FD_MEM_DRAW) {
    ++places;
    place = {offset, size};
    return 0;
  }
  if (offset > bytes.size() || size > bytes.size() - offset) return -1;
  std::memcpy(target, bytes.data() + offset, size);
  return 0;
}

herr_t write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) {
  return -1;
}

}  // namespace

hid_t use_only(std::span<const std::byte> file) {
  bytes = file;
  static H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 2)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED);  // the first of those for private use
#endif
  driver.name = "assay";
  driver.maxaddr = std::numeric_limits<haddr_t>::max() / 2;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_eoa;
  driver.set_eoa = set_eoa;
  driver.get_eof = get_eof;
  driver.read = read;
  driver.write = write;
  constexpr H5FD_mem_t map[] = H5FD_FLMAP_SINGLE;
  std::memcpy(driver.fl_map, map, sizeof map);
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_driver(access, H5FDregister(&driver), nullptr);
  return access;
}

std::span<const std::byte> addressed_bytes() {
  return bytes.first(opened == nullptr ? 0 : std::min<std::size_t>(opened->end_of_addresses, bytes.size()));
}

PlacesOnly::PlacesOnly() {
  places_only = true;
  places = 0;
}

PlacesOnly::~PlacesOnly() {
  places_only = false;
}

std::optional<PlacesOnly::Place> PlacesOnly::take() {
  const bool one = places == 1;
  places = 0;
  return one ? std::optional(place) : std::nullopt;
}

}  // namespace assay
