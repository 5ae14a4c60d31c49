#include "group.h"

#include <bit>
#include <cstring>

#include "bytes.h"

namespace assay {
namespace {

struct SymbolTable {
  std::uint64_t tree = 0, heap = 0;
};

std::optional<Bytes> at(std::span<const std::byte> file, std::uint64_t address) {
  if (address >= file.size() || std::endian::native != std::endian::little) return std::nullopt;
  return Bytes(file.subspan(address));
}

std::optional<Bytes> signed_at(std::span<const std::byte> file, std::uint64_t address,
                               const char* signature) {
  auto bytes = at(file, address);
  if (!bytes) return bytes;
  const auto found = bytes->take(4);
  if (bytes->failed() || std::memcmp(found.data(), signature, 4) != 0) return std::nullopt;
  return bytes;
}

// From the header of the group, version 1.
std::optional<SymbolTable> table_of(std::span<const std::byte> file, std::uint64_t address) {
  constexpr unsigned space = 1, datatype = 3, continuation = 16, table = 17;
  auto bytes = at(file, address);
  if (!bytes || bytes->take<std::uint8_t>() != 1) return std::nullopt;
  bytes->take<std::uint8_t>();
  const auto count = bytes->take<std::uint16_t>();
  bytes->take<std::uint32_t>();  // how many links lead here
  const auto size = bytes->take<std::uint32_t>();
  bytes->take<std::uint32_t>();
  Bytes messages(bytes->take(size));
  std::optional<SymbolTable> found;
  for (unsigned i = 0; i < count; ++i) {
    const auto type = messages.take<std::uint16_t>(), length = messages.take<std::uint16_t>();
    const auto flags = messages.take<std::uint8_t>();
    messages.take(3);
    Bytes content(messages.take(length));
    if (bytes->failed() || messages.failed() || type == space || type == datatype || type == continuation)
      return std::nullopt;
    if (type != table) continue;
    if (found || flags > 1) return std::nullopt;
    found = SymbolTable{};
    found->tree = content.take<std::uint64_t>();
    found->heap = content.take<std::uint64_t>();
    if (content.failed()) return std::nullopt;
  }
  return found;
}

class Group {
 public:
  Group(std::span<const std::byte> file, std::vector<PlainLink>& links) : file_(file), links_(links) {}

  bool read(const SymbolTable& table) { return find_names(table.heap) && read_tree(table.tree, -1); }

 private:
  bool find_names(std::uint64_t heap) {
    auto bytes = signed_at(file_, heap, "HEAP");
    if (!bytes) return false;
    const auto version = bytes->take<std::uint8_t>();
    bytes->take(3);
    const auto size = bytes->take<std::uint64_t>();
    bytes->take<std::uint64_t>();  // where it has room
    const auto address = bytes->take<std::uint64_t>();
    if (bytes->failed() || version != 0 || address > file_.size() || size > file_.size() - address)
      return false;
    names_ = file_.subspan(address, size);
    return true;
  }

  /// @param parent_level  -1: of the root
  bool read_tree(std::uint64_t address, int parent_level) {
    auto bytes = signed_at(file_, address, "TREE");
    // Nodes do not share bytes: more than this are read twice.
    if (!bytes || ++nodes_ > file_.size() / 24) return false;
    const auto kind = bytes->take<std::uint8_t>();
    const int level = bytes->take<std::uint8_t>();
    const auto count = bytes->take<std::uint16_t>();
    bytes->take(16);  // siblings
    if (kind != 0 || (parent_level >= 0 && level != parent_level - 1)) return false;
    for (unsigned i = 0; i < count; ++i) {
      bytes->take<std::uint64_t>();  // a name before all of the child
      const auto child = bytes->take<std::uint64_t>();
      if (bytes->failed() || !(level == 0 ? read_node(child) : read_tree(child, level))) return false;
    }
    return !bytes->failed();
  }

  bool read_node(std::uint64_t address) {
    auto bytes = signed_at(file_, address, "SNOD");
    if (!bytes || ++nodes_ > file_.size() / 24) return false;
    const auto version = bytes->take<std::uint8_t>();
    bytes->take<std::uint8_t>();
    const auto count = bytes->take<std::uint16_t>();
    if (version != 1) return false;
    for (unsigned i = 0; i < count; ++i) {
      const auto name = bytes->take<std::uint64_t>();
      auto object = bytes->take<std::uint64_t>();
      const auto kind = bytes->take<std::uint32_t>();
      bytes->take(20);
      constexpr std::uint32_t group = 1, soft_link = 2;
      if (bytes->failed() || kind > soft_link || name >= names_.size()) return false;
      if (kind == soft_link) object = hdf5_none;
      if (kind <= group && object >= file_.size()) return false;
      const auto text = names_.subspan(name);
      const void* end = std::memchr(text.data(), 0, text.size());
      if (end == nullptr || end == text.data()) return false;
      links_.push_back({reinterpret_cast<const char*>(text.data()), object});
      if (links_.size() > file_.size() / 40) return false;
    }
    return true;
  }

  std::span<const std::byte> file_, names_;
  std::vector<PlainLink>& links_;
  std::uint64_t nodes_ = 0;
};

}  // namespace

bool is_plain_group(std::span<const std::byte> file, std::uint64_t address) {
  return table_of(file, address).has_value();
}

std::optional<std::vector<PlainLink>> read_group(std::span<const std::byte> file, std::uint64_t address) {
  const auto table = table_of(file, address);
  std::vector<PlainLink> links;
  if (!table || !Group(file, links).read(*table)) return std::nullopt;
  return links;
}

}  // namespace assay
