#include <vector>

#include "driver.h"
#include "objects.h"

namespace assay {
namespace {

[[noreturn]] void damaged(const std::string& name) {
  throw Error("dataset '{}': cannot be read: the file is damaged", name);
}

struct Extents {
  hsize_t at[H5S_MAX_RANK] = {};
  int rank = 0;
};

Extents extents_of(hid_t dataset, const std::string& name) {
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  Extents extents;
  extents.rank = space.is_open() ? H5Sget_simple_extent_dims(space, extents.at, nullptr) : -1;
  if (extents.rank < 0) damaged(name);
  return extents;
}

// In the type of the file: the library must not convert.
void describe_fill(hid_t dataset, hid_t plist, const std::string& name, MessageWriter& out) {
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
  H5D_fill_value_t defined = H5D_FILL_VALUE_ERROR;
  const std::size_t size = H5Tget_size(type);
  if (size == 0 || size > 64 || H5Pfill_value_defined(plist, &defined) < 0) damaged(name);
  std::string value(size, '\0');
  if (defined != H5D_FILL_VALUE_UNDEFINED && H5Pget_fill_value(plist, type, value.data()) < 0) damaged(name);
  out.text(value);
}

void describe_filters(hid_t plist, const std::string& name, MessageWriter& out) {
  const int filters = H5Pget_nfilters(plist);
  if (filters < 0) damaged(name);
  out.number(filters);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, parameters[32] = {};  // the longest list of a filter that is known here has 20
    std::size_t count = std::size(parameters);
    char text[64] = {};
    const H5Z_filter_t filter = H5Pget_filter2(plist, static_cast<unsigned>(i), &flags, &count, parameters,
                                               sizeof text, text, nullptr);
    if (filter < 0) damaged(name);
    out.number(filter);
    out.text(std::string(text, strnlen(text, sizeof text)));
    out.number(count > 0 ? parameters[0] : 0);
  }
}

void describe_places(hid_t dataset, const Extents& shape, const Extents& chunk, const std::string& name,
                     MessageWriter& out) {
  std::uint64_t count = 1;
  for (int d = 0; d < shape.rank; ++d) {
    if (chunk.at[d] == 0) damaged(name);
    const std::uint64_t along = shape.at[d] / chunk.at[d] + (shape.at[d] % chunk.at[d] == 0 ? 0 : 1);
    if (__builtin_mul_overflow(count, along, &count)) count = hdf5_none;
  }
  if (count > hdf5_max_chunks) {
    throw Error("dataset '{}': has more than {} chunks: write it in larger ones (h5repack -l)", name,
                hdf5_max_chunks);
  }
  out.number(count);
  hsize_t corner[H5S_MAX_RANK] = {};
  PlacesOnly places;
  hsize_t found = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    hsize_t stored = 0;
    std::uint32_t skipped = 0;
    PlacesOnly::Place place{hdf5_none, 0};
    // An error for chunks that are not stored, too.
    if (H5Dget_chunk_storage_size(dataset, corner, &stored) >= 0 && stored != 0) {
      char nothing = 0;
      if (H5Dread_chunk(dataset, H5P_DEFAULT, corner, &skipped, &nothing) < 0) damaged(name);
      const auto read = places.take();
      if (!read || read->size != stored) damaged(name);
      place = *read;
      ++found;
    }
    out.number(place.offset);
    out.number(place.size);
    out.number(skipped);
    for (int d = shape.rank; d-- > 0;) {
      corner[d] += chunk.at[d];
      if (corner[d] < shape.at[d]) break;
      corner[d] = 0;
    }
  }
  // None but the missing ones may have failed; to ask for each whether it is stored would walk over all.
  hsize_t expected = 0;
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  if (H5Dget_num_chunks(dataset, space, &expected) < 0 || expected != found) damaged(name);
}

void describe_selection(hid_t space, int rank, const std::string& name, MessageWriter& out) {
  const H5S_sel_type kind = space < 0 ? H5S_SEL_ERROR : H5Sget_select_type(space);
  hsize_t start[H5S_MAX_RANK] = {}, stride[H5S_MAX_RANK] = {}, count[H5S_MAX_RANK] = {},
          block[H5S_MAX_RANK] = {};
  if (kind == H5S_SEL_ERROR) damaged(name);
  if (kind == H5S_SEL_ALL) {
    out.number(Hdf5Selection::all);
  } else if (kind == H5S_SEL_HYPERSLABS && H5Sis_regular_hyperslab(space) > 0 &&
             (rank < 0 || H5Sget_simple_extent_ndims(space) == rank) &&
             H5Sget_regular_hyperslab(space, start, stride, count, block) >= 0) {
    out.number(Hdf5Selection::regular);
    const int dims = H5Sget_simple_extent_ndims(space);
    out.number(dims);
    for (int d = 0; d < dims; ++d) {
      for (const hsize_t number : {start[d], stride[d], count[d], block[d]}) out.number(number);
    }
  } else {
    out.number(Hdf5Selection::other);
  }
}

std::string text_of(std::size_t size, auto&& get) {
  std::string text(size + 1, '\0');
  get(text.data(), text.size());
  text.resize(size);
  return text;
}

}  // namespace

void describe_chunks(hid_t file, const std::string& name, MessageWriter& out) {
  const Hdf5Handle dataset = open_dataset(file, name);
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!plist.is_open()) damaged(name);
  describe_fill(dataset, plist, name, out);
  const Extents shape = extents_of(dataset, name);
  Extents chunk;
  chunk.rank = H5Pget_layout(plist) == H5D_CHUNKED ? H5Pget_chunk(plist, H5S_MAX_RANK, chunk.at) : 0;
  out.number(chunk.rank < 0 ? 0 : chunk.rank);
  if (chunk.rank <= 0) return;
  if (chunk.rank != shape.rank) damaged(name);
  for (int d = 0; d < chunk.rank; ++d) out.number(chunk.at[d]);
  unsigned options = 0;
  if (H5Pget_chunk_opts(plist, &options) < 0) damaged(name);
  out.number((options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0 ? 1 : 0);
  describe_filters(plist, name, out);
  describe_places(dataset, shape, chunk, name, out);
}

void describe_sources(hid_t file, const std::string& name, MessageWriter& out) {
  const Hdf5Handle dataset = open_dataset(file, name);
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!plist.is_open() || H5Pget_layout(plist) != H5D_VIRTUAL) damaged(name);
  describe_fill(dataset, plist, name, out);
  const int rank = extents_of(dataset, name).rank;
  std::size_t count = 0;
  if (H5Pget_virtual_count(plist, &count) < 0) damaged(name);
  if (count > hdf5_max_sources) throw Error("dataset '{}': has more than {} sources", name, hdf5_max_sources);
  out.number(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ssize_t file_size = H5Pget_virtual_filename(plist, i, nullptr, 0);
    const ssize_t name_size = H5Pget_virtual_dsetname(plist, i, nullptr, 0);
    if (file_size < 0 || name_size < 0) damaged(name);
    out.text(text_of(static_cast<std::size_t>(file_size),
                     [&](char* text, std::size_t size) { H5Pget_virtual_filename(plist, i, text, size); }));
    out.text(text_of(static_cast<std::size_t>(name_size),
                     [&](char* text, std::size_t size) { H5Pget_virtual_dsetname(plist, i, text, size); }));
    const Hdf5Handle target(H5Pget_virtual_vspace(plist, i), H5Sclose);
    const Hdf5Handle source(H5Pget_virtual_srcspace(plist, i), H5Sclose);
    describe_selection(target, rank, name, out);
    describe_selection(source, -1, name, out);
  }
}

void read_elements(hid_t file, const std::string& name, MessageWriter& out) {
  const Hdf5Handle dataset = open_dataset(file, name);
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose), space(H5Dget_space(dataset), H5Sclose);
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
  // The two that would lead the library to other files.
  if (!plist.is_open() || H5Pget_external_count(plist) != 0 || H5Pget_layout(plist) == H5D_VIRTUAL ||
      !type.is_open() || !dtype_of(type)) {
    damaged(name);
  }
  std::uint64_t size = H5Tget_size(type);
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0 || __builtin_mul_overflow(size, static_cast<std::uint64_t>(count), &size)) damaged(name);
  const std::size_t head = out.bytes().size();
  out.bytes().resize(head + size);
  if (size != 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.bytes().data() + head) < 0) {
    throw Error(
        "dataset '{}': cannot be read: it is damaged, or compressed by a filter that this build of HDF5 "
        "lacks "
        "(h5repack -f NONE removes filters)",
        name);
  }
}

void read_text(hid_t file, const std::string& name, MessageWriter& out) {
  const Hdf5Handle dataset = open_dataset(file, name);
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!plist.is_open() || H5Pget_external_count(plist) != 0 || H5Pget_layout(plist) == H5D_VIRTUAL ||
      H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1) {
    throw Error("dataset '{}': holds {}, expected one text", name, type_text(type));
  }
  if (H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text) < 0) damaged(name);
    out.bytes() += text == nullptr ? "" : text;
    H5free_memory(text);
    return;
  }
  std::string text(H5Tget_size(type), '\0');
  if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) damaged(name);
  out.bytes() += text.substr(0, text.find('\0'));
}

}  // namespace assay
