#pragma once

#include <optional>
#include <string>

#include "assay/dumps/hdf5/message.h"
#include "assay/golden/dtype.h"
#include "library.h"

namespace assay {

// Types. By their bits, as HDF5 has no names for bfloat16 and float8.

/// Positions and numbers of bits; a position counts from the lowest bit.
struct FloatFields {
  std::size_t size, sign, exponent, exponent_bits, fraction, fraction_bits, bias;
};
std::optional<DType> float_type(const FloatFields&);
std::optional<DType> integer_type(std::size_t size, bool is_signed);
/// Nothing for types without a DType here: strings, compounds, ..
std::optional<DType> dtype_of(hid_t type);
/// For messages.
std::string type_text(hid_t type);

// Objects. Error texts do not name the file: the reader does.

/// Throws Error unless `name` leads to a dataset over hard links only.
Hdf5Handle open_dataset(hid_t file, const std::string& name);
/// The answer to Hdf5Question::list.
void list(hid_t file, const std::string& name, MessageWriter&);

// The content of a dataset.

void describe_chunks(hid_t file, const std::string& name, MessageWriter&);
void describe_sources(hid_t file, const std::string& name, MessageWriter&);
void read_elements(hid_t file, const std::string& name, MessageWriter&);
void read_text(hid_t file, const std::string& name, MessageWriter&);

}  // namespace assay
