// The files that a process writes. Bytes of datasets are not sent here: who has them puts them where they
// belong.
#include "files.h"

#include <map>
#include <vector>

#include "assay/golden/dtype.h"
#include "assay/golden/error.h"
#include "library.h"

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
    case DType::float4_e2m1fn:
    case DType::uint8:
      break;
  }
  return H5Tcopy(H5T_STD_U8LE);
}

hid_t create(const std::string& path) {
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Groups of the new kind: thousands of links at no cost. Data of a page and more is aligned for vector
  // loads.
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110);
  H5Pset_alignment(access, 4096, 64);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  if (file < 0) throw Error("cannot be created");
  return file;
}

std::uint64_t add_dataset(hid_t file, const std::string& name, DType dtype,
                          const std::vector<hsize_t>& extents) {
  if (extents.size() > H5S_MAX_RANK)
    throw Error("{} has {} dimensions, HDF5 allows {}", name, extents.size(), H5S_MAX_RANK);
  const Hdf5Handle space(extents.empty()
                             ? H5Screate(H5S_SCALAR)
                             : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                         H5Sclose);
  // Without times, equal dumps are equal files.
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string parent = name.substr(0, slash);
    if (H5Lexists(file, parent.c_str(), H5P_DEFAULT) > 0) continue;
    const Hdf5Handle timeless(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    H5Pset_obj_track_times(timeless, false);
    const Hdf5Handle group(H5Gcreate2(file, parent.c_str(), H5P_DEFAULT, timeless, H5P_DEFAULT), H5Gclose);
  }
  const Hdf5Handle how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(how, false);
  // Its place is known at once, and the library itself writes nothing there.
  H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
  const Hdf5Handle type(open_type(dtype), H5Tclose);
  const Hdf5Handle dataset(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, how, H5P_DEFAULT),
                           H5Dclose);
  if (!dataset.is_open()) throw Error("'{}' cannot be made: it is there already, or the disk is full", name);
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset != HADDR_UNDEF) return offset;
  if (H5Sget_simple_extent_npoints(space) == 0) return 0;  // there is nothing to put anywhere
  throw Error("'{}' has got no place in the file", name);
}

void close(hid_t file) {
  if (H5Fclose(file) < 0) throw Error("cannot be written to the end; is the disk full?");
}

}  // namespace

void serve_writer(MessageReader order, MessageWriter& out) {
  static std::map<std::uint64_t, hid_t> files;
  const auto what = order.choice(Hdf5Order::close);
  const std::uint64_t number = order.number();
  const std::string name = order.text();
  if (what == Hdf5Order::create) {
    files[number] = create(name);
    return;
  }
  const hid_t file = files.at(number);
  if (what == Hdf5Order::close) {
    files.erase(number);
    return close(file);
  }
  const auto dtype = static_cast<DType>(order.number());
  std::vector<hsize_t> extents(order.number());
  for (hsize_t& extent : extents) extent = order.number();
  out.number(add_dataset(file, name, dtype, extents));
}

}  // namespace assay
