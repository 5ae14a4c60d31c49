#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "driver.h"
#include "group.h"
#include "header.h"
#include "objects.h"

namespace assay {
namespace {

constexpr std::size_t max_links = 20'000'000;
// Twice what a dump's names may have (max_name_length): the reader says so; this only ends a deep nesting.
constexpr std::size_t max_path = 8192;

std::string where(const std::string& name) {
  return "dataset '" + name + "'";
}

// Contiguous data needs no property list, which takes longer than all other questions together.
Hdf5Storage storage_of(hid_t dataset, std::uint64_t& offset) {
  const haddr_t address = H5Dget_offset(dataset);
  // In a file with a user block, the library adds its size to the address of what was never written, too.
  if (address != HADDR_UNDEF && H5Dget_storage_size(dataset) != 0) {
    offset = address;
    return Hdf5Storage::in_file;
  }
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!plist.is_open() || H5Pget_external_count(plist) != 0) return Hdf5Storage::elsewhere;
  switch (H5Pget_layout(plist)) {
    case H5D_COMPACT:
      return Hdf5Storage::packed;
    case H5D_CONTIGUOUS:
      return Hdf5Storage::filled;
    case H5D_CHUNKED:
      return Hdf5Storage::chunked;
    case H5D_VIRTUAL:
      return Hdf5Storage::virtual_;
    default:
      return Hdf5Storage::elsewhere;
  }
}

void describe(hid_t dataset, const std::string& name, MessageWriter& out) {
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  if (!type.is_open() || !space.is_open())
    throw Error("{}: cannot be read: the file is damaged", where(name));
  const std::optional<DType> dtype = dtype_of(type);
  const H5S_class_t space_class = H5Sget_simple_extent_type(space);
  hsize_t extents[H5S_MAX_RANK] = {};
  const int rank = space_class == H5S_SIMPLE ? H5Sget_simple_extent_dims(space, extents, nullptr) : 0;
  const bool has_numbers = dtype && space_class != H5S_NULL;
  if (rank < 0) throw Error("{}: cannot be read: the file is damaged", where(name));
  std::uint64_t offset = hdf5_none;
  const Hdf5Storage storage = storage_of(dataset, offset);
  out.number(Hdf5Item::dataset);
  out.text(name);
  out.number(has_numbers ? static_cast<std::uint64_t>(*dtype) : hdf5_none);
  out.text(has_numbers ? "" : dtype ? "no data" : type_text(type));
  out.number(H5Tget_size(type) > 1 && H5Tget_order(type) == H5T_ORDER_BE ? 1 : 0);
  out.number(rank);
  for (int d = 0; d < rank; ++d) out.number(extents[d]);
  out.number(storage);
  out.number(offset);
  // Of chunks it would take a walk over all; whoever reads them learns it from their places.
  const bool is_known = storage != Hdf5Storage::in_file && storage != Hdf5Storage::chunked;
  out.number(is_known ? H5Dget_storage_size(dataset) : 0);
}

void describe(const PlainDataset& plain, const std::string& name, MessageWriter& out) {
  out.number(Hdf5Item::dataset);
  out.text(name);
  out.number(plain.dtype);
  out.text("");
  out.number(plain.big_endian ? 1 : 0);
  out.number(plain.rank);
  for (int d = 0; d < plain.rank; ++d) out.number(plain.extents[d]);
  out.number(plain.offset == hdf5_none ? Hdf5Storage::chunked : Hdf5Storage::in_file);
  out.number(plain.offset);
  out.number(0);
}

// Nothing unless objects lie where the links say, and the fields are as wide as read_header expects.
std::span<const std::byte> plain_bytes(hid_t file) {
  const Hdf5Handle plist(H5Fget_create_plist(file), H5Pclose);
  hsize_t user_block = 0;
  std::size_t address = 0, length = 0;
  const bool is_plain = H5Pget_userblock(plist, &user_block) >= 0 && user_block == 0 &&
                        H5Pget_sizes(plist, &address, &length) >= 0 && address == 8 && length == 8;
  return is_plain ? addressed_bytes() : std::span<const std::byte>();
}

void say(Hdf5Item item, const std::string& text, MessageWriter& out) {
  out.number(item);
  out.text(text);
}

struct Link {
  std::string name;
  H5L_type_t type = H5L_TYPE_ERROR;
  haddr_t address = HADDR_UNDEF;  ///< of a hard one
};
struct Links {
  std::vector<Link> found;
};

// No exception may pass through the library.
extern "C" herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  try {
    const bool is_hard = info->type == H5L_TYPE_HARD;
    static_cast<Links*>(links)->found.push_back({name, info->type, is_hard ? info->u.address : HADDR_UNDEF});
    return 0;
  } catch (...) {
    return -1;
  }
}

class Listing {
 public:
  Listing(hid_t file, MessageWriter& out) : file_(file), bytes_(plain_bytes(file)), out_(out) {}

  void run() {
    H5O_info_t root{};
    if (H5Oget_info2(file_, &root, H5O_INFO_BASIC) < 0)
      throw Error("its root group cannot be read: the file is damaged");
    seen_ = {root.addr};
    list_group({"", root.addr});
    while (!groups_.empty()) {
      const Group group = std::move(groups_.back());
      groups_.pop_back();
      leave_out_if_damaged([&] { list_group(group); });
    }
  }

 private:
  struct Group {
    std::string name;
    haddr_t address;
  };

  // One damaged object does not hide the others.
  template <class Work>
  void leave_out_if_damaged(Work&& work) {
    try {
      work();
    } catch (const Error& problem) {
      say(Hdf5Item::left_out, problem.what(), out_);
    }
  }

  void list_group(const Group& listed) {
    const std::string& parent = listed.name;
    Links links;
    const auto plain = read_group(bytes_, listed.address);
    const Hdf5Handle group(plain ? -1 : H5Gopen2(file_, parent.empty() ? "/" : parent.c_str(), H5P_DEFAULT),
                           H5Gclose);
    if (plain) {
      for (const PlainLink& link : *plain) {
        const bool is_hard = link.address != hdf5_none;
        links.found.push_back({link.name, is_hard ? H5L_TYPE_HARD : H5L_TYPE_SOFT, link.address});
      }
    } else if (!group.is_open() ||
               H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_link, &links) < 0) {
      throw Error("group '/{}' cannot be read: the file is damaged", parent);
    }
    links_ += links.found.size();
    if (links_ > max_links) throw Error("more than {} links", max_links);
    // The library would open the first of two equal names twice, and never show the second.
    std::sort(links.found.begin(), links.found.end(),
              [](const Link& a, const Link& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(links.found.begin(), links.found.end(),
                                          [](const Link& a, const Link& b) { return a.name == b.name; });
    if (twice != links.found.end())
      throw Error("'{}' stands twice in group '/{}': the file is damaged", twice->name, parent);
    for (const Link& link : links.found) {
      const std::string name = parent.empty() ? link.name : parent + "/" + link.name;
      leave_out_if_damaged([&] { list_link(group, link, name); });
    }
  }

  void list_link(hid_t group, const Link& link, const std::string& name) {
    if (name.size() > max_path) throw Error("an object's name has {} characters: '{}'", name.size(), name);
    if (link.type == H5L_TYPE_SOFT) {
      // What it leads to within the file has a name of its own, and is listed under that.
      return say(Hdf5Item::note, where(name) + ": a soft link, not followed", out_);
    }
    if (link.type != H5L_TYPE_HARD) throw Error("{}: a link out of the file, not followed", where(name));
    if (!seen_.emplace(link.address).second)
      return say(Hdf5Item::note, where(name) + ": a second name of an object; left out", out_);
    if (const auto plain = read_header(bytes_, link.address)) return describe(*plain, name, out_);
    if (is_plain_group(bytes_, link.address)) return groups_.push_back({name, link.address});
    const bool is_open = group >= 0;
    const Hdf5Handle object(
        H5Oopen(is_open ? group : file_, (is_open ? link.name : name).c_str(), H5P_DEFAULT), H5Oclose);
    H5O_info_t info{};
    if (!object.is_open() || H5Oget_info2(object, &info, H5O_INFO_BASIC) < 0)
      throw Error("object '{}' cannot be read: the file is damaged", name);
    if (info.type == H5O_TYPE_GROUP) {
      groups_.push_back({name, link.address});
    } else if (info.type == H5O_TYPE_DATASET) {
      describe(object, name, out_);
    }
  }

  hid_t file_;
  std::span<const std::byte> bytes_;
  MessageWriter& out_;
  // Groups can contain themselves, and an object may have several names; its address tells.
  std::unordered_set<haddr_t> seen_;
  std::vector<Group> groups_;
  std::size_t links_ = 0;
};

}  // namespace

Hdf5Handle open_dataset(hid_t file, const std::string& name) {
  // Each step of the path must be a hard link: the others lead to other files, or to nothing.
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = name.find('/', slash + 1);
    H5L_info_t link{};
    if (H5Lget_info(file, name.substr(0, slash).c_str(), &link, H5P_DEFAULT) < 0 ||
        link.type != H5L_TYPE_HARD) {
      throw Error("{}: is not in the file", where(name));
    }
  }
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (dataset < 0) throw Error("{}: cannot be opened: the file is damaged", where(name));
  return {dataset, H5Dclose};
}

void list(hid_t file, const std::string& name, MessageWriter& out) {
  if (name.empty()) {
    Listing(file, out).run();
  } else {
    describe(open_dataset(file, name), name, out);
  }
}

}  // namespace assay
