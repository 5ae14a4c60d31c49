#include "assay/dumps/hdf5.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "assay/dumps/byte_order.h"
#include "assay/dumps/claim.h"
#include "assay/dumps/hdf5_library.h"
#include "assay/dumps/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::size_t max_datasets = 10'000'000;
constexpr std::size_t max_links = 20'000'000;
// A dataset without stored data reads as its fill value, so that a small file can claim any size.
constexpr std::uint64_t max_unstored = std::uint64_t{64} << 20;
constexpr std::uint64_t max_ratio = 1032;

std::mutex& hdf5_mutex() {
  static std::mutex instance;
  return instance;
}

std::optional<DType> integer_type(std::size_t size, bool is_signed) {
  constexpr DType types[2][4] = {{DType::uint8, DType::uint16, DType::uint32, DType::uint64},
                                 {DType::int8, DType::int16, DType::int32, DType::int64}};
  for (std::size_t i = 0; i < 4; ++i) {
    if (size == std::size_t{1} << i) return types[is_signed ? 1 : 0][i];
  }
  return std::nullopt;
}

// By the bits, as HDF5 has no names for bfloat16 and float8.
std::optional<DType> float_type(hid_t type, std::size_t size) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, fraction = 0, fraction_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits) < 0)
    return std::nullopt;
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16,
                            DType::float8_e4m3fn, DType::float8_e5m2}) {
    const FloatFormat& format = format_of(dtype);
    if (size == size_of(dtype) && sign == 8 * size - 1 && fraction == 0 && exponent == fraction_bits &&
        exponent_bits == static_cast<std::size_t>(format.exponent_bits) &&
        fraction_bits == static_cast<std::size_t>(format.fraction_bits) &&
        H5Tget_ebias(type) == static_cast<std::size_t>(format.bias)) {
      return dtype;
    }
  }
  return std::nullopt;
}

// h5py writes numpy booleans as an enumeration over int8.
bool is_boolean_enum(hid_t type) {
  std::int8_t value[8] = {};
  if (H5Tget_nmembers(type) != 2 || H5Tget_size(type) != 1) return false;
  return H5Tenum_valueof(type, "FALSE", value) >= 0 && value[0] == 0 &&
         H5Tenum_valueof(type, "TRUE", value) >= 0 && value[0] == 1;
}

std::optional<DType> dtype_of(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const H5T_class_t type_class = H5Tget_class(type);
  if (type_class == H5T_ENUM) {
    if (is_boolean_enum(type)) return DType::boolean;
    const Hdf5Handle base(H5Tget_super(type), H5Tclose);
    return base.is_open() && H5Tget_class(base) == H5T_INTEGER ? dtype_of(base) : std::nullopt;
  }
  if (type_class != H5T_INTEGER && type_class != H5T_FLOAT && type_class != H5T_BITFIELD) return std::nullopt;
  if (H5Tget_precision(type) != 8 * size || H5Tget_offset(type) != 0) return std::nullopt;
  const H5T_order_t order = H5Tget_order(type);
  if (order != H5T_ORDER_LE && order != H5T_ORDER_BE && size != 1) return std::nullopt;
  if (type_class == H5T_FLOAT) return float_type(type, size);
  return integer_type(size, type_class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2);
}

std::string type_text(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_STRING:
      return "a string";
    case H5T_COMPOUND:
      return "a compound";
    case H5T_OPAQUE:
      return "opaque bytes";
    case H5T_REFERENCE:
      return "a reference";
    case H5T_ARRAY:
      return "an array type";
    case H5T_VLEN:
      return "a variable-length type";
    case H5T_FLOAT:
      return "an unusual float of " + std::to_string(H5Tget_size(type)) + " bytes";
    case H5T_INTEGER:
      return "an unusual integer of " + std::to_string(H5Tget_size(type)) + " bytes";
    default:
      return "an unknown type";
  }
}

std::string where(const MappedFile& file, const std::string& name) {
  return file.path().string() + ": dataset '" + name + "'";
}

Hdf5Handle open_dataset(hid_t file, const MappedFile& mapped, const std::string& name) {
  // Each step of the path must be a hard link: the others lead to other files, or to nothing.
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = name.find('/', slash + 1);
    H5L_info_t link{};
    if (H5Lget_info(file, name.substr(0, slash).c_str(), &link, H5P_DEFAULT) < 0 ||
        link.type != H5L_TYPE_HARD) {
      throw Error("{}: is not in the file", where(mapped, name));
    }
  }
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (dataset < 0) throw Error("{}: cannot be opened: the file is damaged", where(mapped, name));
  return {dataset, H5Dclose};
}

Hdf5File::Dataset describe_open(hid_t dataset, const MappedFile& file, const std::string& name) {
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!type.is_open() || !space.is_open() || !plist.is_open()) {
    throw Error("{}: cannot be read: the file is damaged", where(file, name));
  }
  if (H5Pget_external_count(plist) != 0 || H5Pget_layout(plist) == H5D_VIRTUAL) {
    throw Error("{}: keeps its data in other files, which are never opened: copy it with h5repack",
                where(file, name));
  }
  Hdf5File::Dataset result;
  result.name = name;
  result.dtype = dtype_of(type);
  result.type = result.dtype ? std::string(assay::name(*result.dtype)) : type_text(type);
  result.big_endian = result.dtype && size_of(*result.dtype) > 1 && H5Tget_order(type) == H5T_ORDER_BE;
  const H5S_class_t space_class = H5Sget_simple_extent_type(space);
  hsize_t extents[H5S_MAX_RANK] = {};
  const int rank = space_class == H5S_SIMPLE ? H5Sget_simple_extent_dims(space, extents, nullptr) : 0;
  if (space_class == H5S_NULL) {
    result.dtype.reset();
    result.type = "no data";
  }
  std::uint64_t bytes = H5Tget_size(type);
  for (int d = 0; d < rank; ++d) {
    if (extents[d] > std::uint64_t{std::numeric_limits<std::int64_t>::max()} ||
        __builtin_mul_overflow(bytes, extents[d], &bytes)) {
      throw Error("{}: its shape has more than 2^63 bytes", where(file, name));
    }
    result.shape.push_back(static_cast<std::int64_t>(extents[d]));
  }
  if (bytes > max_unstored && bytes / max_ratio > file.bytes().size()) {
    throw Error("{}: claims {} bytes in a file of {}", where(file, name), bytes, file.bytes().size());
  }
  // A file with holes has any size.
  check_claim(bytes, H5Dget_storage_size(dataset), where(file, name));
  if (H5Pget_layout(plist) == H5D_CONTIGUOUS) {
    const haddr_t offset = H5Dget_offset(dataset);
    if (offset != HADDR_UNDEF) result.offset = offset;
  }
  return result;
}

// The links of one group, by name; an absolute path names every object.
struct Links {
  std::vector<std::pair<std::string, H5L_type_t>> found;
};

extern "C" herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  static_cast<Links*>(links)->found.emplace_back(name, info->type);
  return 0;
}

class Hdf5Dump : public Dump {
 public:
  Hdf5Dump(std::shared_ptr<const MappedFile> file, const OpenOptions& options) : file_(std::move(file)) {
    path = file_.file().path();
    format = "hdf5";
    datasets_ = file_.datasets(notes, left_out);
    for (const Hdf5File::Dataset& dataset : datasets_) {
      records.push_back(plain_record(dataset.name, hinted(*dataset.dtype, options.dtype_hint), dataset.shape,
                                     records.size()));
    }
  }
  Tensor read(std::size_t index) const override {
    return file_.read(datasets_.at(index), records[index].dtype);
  }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + datasets_.at(index).name;
  }

 private:
  Hdf5File file_;
  std::vector<Hdf5File::Dataset> datasets_;
};

}  // namespace

Hdf5Library::Hdf5Library() : lock_(hdf5_mutex()) {
  static const bool ready = [] {
    // Every id is closed by its owner. A file whose disk was full cannot be, and trying again at exit ends in
    // a segmentation fault (1.10.8).
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);
    return true;
  }();
  static_cast<void>(ready);
}

Hdf5File::Hdf5File(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
  const Hdf5Library library;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  handle_ = H5Fopen(file_->path().c_str(), H5F_ACC_RDONLY, access);
  if (handle_ < 0)
    throw Error("{}: the HDF5 library cannot open it: it is truncated or damaged", file_->path().string());
}

Hdf5File::~Hdf5File() {
  const Hdf5Library library;
  H5Fclose(handle_);
}

std::vector<Hdf5File::Dataset> Hdf5File::datasets(std::vector<std::string>& notes,
                                                  std::vector<std::string>& left_out) const {
  const Hdf5Library library;
  std::vector<Dataset> result;
  // Groups can contain themselves, and an object may have several names; its address tells.
  std::set<std::pair<unsigned long, haddr_t>> seen;
  std::vector<std::string> groups = {""};
  std::size_t links = 0;
  while (!groups.empty()) {
    const std::string parent = std::move(groups.back());
    groups.pop_back();
    const Hdf5Handle group(H5Gopen2(handle_, parent.empty() ? "/" : parent.c_str(), H5P_DEFAULT), H5Gclose);
    Links found;
    if (!group.is_open() ||
        H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_link, &found) < 0) {
      throw Error("{}: group '/{}' cannot be read: the file is damaged", file_->path().string(), parent);
    }
    links += found.found.size();
    if (links > max_links) throw Error("{}: more than {} links", file_->path().string(), max_links);
    for (const auto& [link, link_type] : found.found) {
      const std::string name = parent.empty() ? link : parent + "/" + link;
      if (link_type != H5L_TYPE_HARD) {
        left_out.push_back(where(*file_, name) + ": a soft or external link, not followed");
        continue;
      }
      H5O_info_t info{};
      if (H5Oget_info_by_name(group, link.c_str(), &info, H5P_DEFAULT) < 0) {
        throw Error("{}: object '{}' cannot be read: the file is damaged", file_->path().string(), name);
      }
      if (!seen.emplace(info.fileno, info.addr).second) {
        notes.push_back(where(*file_, name) + ": a second name of an object; left out");
      } else if (info.type == H5O_TYPE_GROUP) {
        groups.push_back(name);
      } else if (info.type == H5O_TYPE_DATASET) {
        const Hdf5Handle dataset = open_dataset(handle_, *file_, name);
        Dataset description = describe_open(dataset, *file_, name);
        if (!description.dtype) {
          left_out.push_back(where(*file_, name) + ": holds " + description.type);
        } else {
          result.push_back(std::move(description));
        }
      }
    }
  }
  if (result.size() > max_datasets)
    throw Error("{}: more than {} datasets", file_->path().string(), max_datasets);
  std::sort(result.begin(), result.end(), [](const Dataset& a, const Dataset& b) { return a.name < b.name; });
  return result;
}

Hdf5File::Dataset Hdf5File::describe(const std::string& name) const {
  const Hdf5Library library;
  const std::string relative = name.starts_with('/') ? name.substr(1) : name;
  return describe_open(open_dataset(handle_, *file_, relative), *file_, relative);
}

Tensor Hdf5File::read(const Dataset& dataset) const {
  if (!dataset.dtype)
    throw Error("{}: holds {}, expected numbers", where(*file_, dataset.name), dataset.type);
  return read(dataset, *dataset.dtype);
}

Tensor Hdf5File::read(const Dataset& dataset, DType dtype) const {
  const std::uint64_t size = static_cast<std::uint64_t>(element_count(dataset.shape)) * size_of(dtype);
  if (dataset.offset && !dataset.big_endian) {
    return {dtype, dataset.shape, file_->range(*dataset.offset, size, "dataset '" + dataset.name + "'"),
            file_};
  }
  const Hdf5Library library;
  const Hdf5Handle open = open_dataset(handle_, *file_, dataset.name);
  const Hdf5Handle type(H5Dget_type(open), H5Tclose);
  std::vector<std::byte> bytes = allocate_claim(size, H5Dget_storage_size(open), where(*file_, dataset.name));
  // The type in memory is the one in the file: the library must not convert.
  if (size != 0 && H5Dread(open, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0) {
    throw Error(
        "{}: cannot be read: it is damaged, or compressed by a filter that this build of HDF5 lacks "
        "(h5repack -f NONE removes filters)",
        where(*file_, dataset.name));
  }
  if (dataset.big_endian) bytes = byte_swapped(std::move(bytes), size_of(dtype));
  return {dtype, dataset.shape, std::move(bytes)};
}

std::string Hdf5File::read_text(const std::string& name) const {
  const Dataset dataset = describe(name);
  if (dataset.dtype && size_of(*dataset.dtype) == 1) {
    const Tensor bytes = read(dataset);
    return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
  }
  const Hdf5Library library;
  const Hdf5Handle open = open_dataset(handle_, *file_, dataset.name);
  const Hdf5Handle type(H5Dget_type(open), H5Tclose);
  if (H5Tget_class(type) != H5T_STRING || element_count(dataset.shape) != 1) {
    throw Error("{}: holds {} of shape {}, expected one text", where(*file_, dataset.name), dataset.type,
                to_string(dataset.shape));
  }
  if (H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    if (H5Dread(open, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text) < 0) {
      throw Error("{}: cannot be read: the file is damaged", where(*file_, dataset.name));
    }
    const std::string result = text == nullptr ? "" : text;
    H5free_memory(text);
    return result;
  }
  std::string result(H5Tget_size(type), '\0');
  if (H5Dread(open, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, result.data()) < 0) {
    throw Error("{}: cannot be read: the file is damaged", where(*file_, dataset.name));
  }
  return result.substr(0, result.find('\0'));
}

// A user block pushes the signature to 512, 1024, 2048, ..
bool fits_hdf5(const std::shared_ptr<const MappedFile>& file) {
  constexpr std::string_view magic = "\x89HDF\r\n\x1a\n";
  bool fits = has_magic(*file, magic);
  for (std::size_t at = 512; !fits && at < file->bytes().size(); at *= 2) fits = has_magic(*file, magic, at);
  return fits;
}

std::unique_ptr<Dump> open_hdf5(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<Hdf5Dump>(std::move(file), options);
}

}  // namespace assay
