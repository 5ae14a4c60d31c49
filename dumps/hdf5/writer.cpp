#include "assay/dumps/hdf5/writer.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "assay/dumps/hdf5/library.h"
#include "assay/dumps/io/unfinished.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

hid_t open_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return H5Tcopy(H5T_IEEE_F64LE);
    case DType::float32:
    case DType::tfloat32:
    case DType::hfloat32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case DType::int64:
      return H5Tcopy(H5T_STD_I64LE);
    case DType::int32:
      return H5Tcopy(H5T_STD_I32LE);
    case DType::int16:
      return H5Tcopy(H5T_STD_I16LE);
    case DType::int8:
      return H5Tcopy(H5T_STD_I8LE);
    case DType::uint64:
      return H5Tcopy(H5T_STD_U64LE);
    case DType::uint32:
      return H5Tcopy(H5T_STD_U32LE);
    case DType::bfloat16:
    case DType::uint16:
      return H5Tcopy(H5T_STD_U16LE);
    case DType::float16: {
      // As h5py does; the library has no name for it.
      const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
      H5Tset_fields(half, 15, 10, 5, 0, 10);
      H5Tset_size(half, 2);
      H5Tset_ebias(half, 15);
      return half;
    }
    case DType::boolean: {
      const hid_t flag = H5Tenum_create(H5T_STD_I8LE);
      for (const auto& [word, value] : {std::pair{"FALSE", std::int8_t{0}}, {"TRUE", std::int8_t{1}}})
        H5Tenum_insert(flag, word, &value);
      return flag;
    }
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
    case DType::uint8:
      break;
  }
  return H5Tcopy(H5T_STD_U8LE);
}

}  // namespace

Hdf5Writer::Hdf5Writer(std::filesystem::path path) : path_(std::move(path)) {
  const Hdf5Library library;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Groups of the new kind: thousands of links at no cost. Data of a page and more is aligned for vector
  // loads.
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110);
  H5Pset_alignment(access, 4096, 64);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  // Bits go to the file at once, so that a full disk is seen by the write and not missed by the close.
  H5Pset_sieve_buf_size(access, 0);
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  file_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation, access);
  if (file_ < 0) throw Error("{}: cannot be created", path_.string());
}

Hdf5Writer::~Hdf5Writer() {
  const Hdf5Library library;
  if (file_ >= 0) H5Fclose(file_);
}

std::uint64_t Hdf5Writer::write(const std::string& name, const Tensor& tensor) {
  const Hdf5Library library;
  const Hdf5Handle type(open_type(tensor.dtype()), H5Tclose);
  return write_bytes(name, type, tensor.shape(), tensor.bytes().data());
}

void Hdf5Writer::write_text(const std::string& name, std::string_view text) {
  const Hdf5Library library;
  write_bytes(name, H5T_STD_U8LE, {static_cast<std::int64_t>(text.size())}, text.data());
}

std::uint64_t Hdf5Writer::write_bytes(const std::string& name, std::int64_t type, const Shape& shape,
                                      const void* bytes) {
  if (shape.size() > H5S_MAX_RANK) {
    throw Error("{}: {} has {} dimensions, HDF5 allows {}", path_.string(), name, shape.size(), H5S_MAX_RANK);
  }
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Hdf5Handle space(shape.empty()
                             ? H5Screate(H5S_SCALAR)
                             : H5Screate_simple(static_cast<int>(shape.size()), extents.data(), nullptr),
                         H5Sclose);
  // Without times, equal dumps are equal files.
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string parent = name.substr(0, slash);
    if (H5Lexists(file_, parent.c_str(), H5P_DEFAULT) > 0) continue;
    const Hdf5Handle timeless(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    H5Pset_obj_track_times(timeless, false);
    const Hdf5Handle group(H5Gcreate2(file_, parent.c_str(), H5P_DEFAULT, timeless, H5P_DEFAULT), H5Gclose);
  }
  const Hdf5Handle how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(how, false);
  const Hdf5Handle dataset(H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, how, H5P_DEFAULT),
                           H5Dclose);
  // The type in memory is the one in the file: the library must not convert.
  if (!dataset.is_open() ||
      (element_count(shape) != 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) < 0)) {
    throw Error("{}: '{}' cannot be written; is the disk full?", path_.string(), name);
  }
  const haddr_t offset = H5Dget_offset(dataset);
  return offset == HADDR_UNDEF ? 0 : offset;
}

void Hdf5Writer::close() {
  const Hdf5Library library;
  const herr_t status = H5Fclose(file_);
  file_ = -1;
  if (status < 0) throw Error("{}: cannot be written to the end; is the disk full?", path_.string());
}

void write_hdf5(const std::filesystem::path& path, std::span<const PlainTensor> tensors) {
  std::set<std::string_view> names;
  for (const PlainTensor& tensor : tensors) names.insert(tensor.name);
  for (const PlainTensor& tensor : tensors) {
    check_path_name(tensor.name, path.string());
    for (std::size_t slash = 0; (slash = tensor.name.find('/', slash + 1)) != std::string::npos;) {
      if (!names.contains(std::string_view(tensor.name).substr(0, slash))) continue;
      throw Error("{}: '{}' would be in the group '{}', which is a tensor; convert to safetensors",
                  path.string(), tensor.name, tensor.name.substr(0, slash));
    }
  }
  Unfinished file(path, Unfinished::Kind::file);
  Hdf5Writer writer(file.path());
  for (const PlainTensor& tensor : tensors) writer.write("/" + tensor.name, tensor.read());
  writer.close();
  file.finish();
}

}  // namespace assay
