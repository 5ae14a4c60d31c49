#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "assay/dumps/io/file.h"
#include "assay/dumps/record/dump.h"

namespace assay {

// The readers behind open_dump, one per format, each with the test that recognises its content. A test reads
// as little as possible; a reader throws Error for damaged content. A tensor without a name in its file (npy,
// or one tensor in a .pt) gets an empty name, which the caller replaces.

bool fits_npy(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_npy(std::shared_ptr<const MappedFile>, const OpenOptions&);

bool fits_hdf5(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_hdf5(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// Throws Error for a damaged zip archive, which could be a .pt or an npz.
bool fits_pt(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_pt(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// Any zip archive: to be asked after fits_pt.
bool fits_npz(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_npz(std::shared_ptr<const MappedFile>, const OpenOptions&);

bool fits_safetensors(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_safetensors(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// An index of Hugging Face's (x.safetensors.index.json) over the files beside it.
bool fits_safetensors_index(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_safetensors_index(std::shared_ptr<const MappedFile>, const OpenOptions&);
/// A folder with such an index, or with the shards of torch.distributed.checkpoint.
bool fits_safetensors_folder(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_safetensors_folder(const std::filesystem::path& folder, const OpenOptions&);

bool fits_gguf(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_gguf(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// The listing of `assay inspect --json`: records without values, with the results of --stats and --hash.
bool fits_inspect_listing(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_inspect_listing(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// A baseline of `assay baseline accept`: checksums and norms.
bool fits_fingerprint(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_fingerprint(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// What PyTorch's DebugMode prints of a run with DebugMode.log_tensor_hashes(): records without values.
bool fits_debug_mode(const std::shared_ptr<const MappedFile>&);
std::unique_ptr<Dump> open_debug_mode(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// The array of OpenOptions::raw. Throws Error if the file has another size.
std::unique_ptr<Dump> open_raw(std::shared_ptr<const MappedFile>, const OpenOptions&);

bool fits_assay_dump(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_assay_dump(const std::filesystem::path& folder, const OpenOptions&);

bool fits_msprobe(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& folder, const OpenOptions&);

/// A PyTorch distributed checkpoint, also as Megatron writes it.
bool fits_dcp(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_dcp(const std::filesystem::path& folder, const OpenOptions&);

/// A universal checkpoint. ZeRO shards are recognised, and refused when opened.
bool fits_deepspeed(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_deepspeed(const std::filesystem::path& folder, const OpenOptions&);

bool fits_mindspore(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_mindspore(const std::filesystem::path& folder, const OpenOptions&);

/// Any other folder: the readable files below it, each named by its path without the extension.
std::unique_ptr<Dump> open_folder(const std::filesystem::path& folder, const OpenOptions&);

/// A format of single files.
struct FileFormat {
  std::string_view name;
  std::string_view extensions[3];  ///< of files to open in a folder; unused ones are empty
  bool (*fits)(const std::shared_ptr<const MappedFile>&);
  std::unique_ptr<Dump> (*open)(std::shared_ptr<const MappedFile>, const OpenOptions&);
};
/// The formats, in the order of their tests.
std::span<const FileFormat> file_formats();
/// Opens one file by its content; nullptr if no format fits.
std::unique_ptr<Dump> open_file(std::shared_ptr<const MappedFile>, const OpenOptions&);

/// Returns the record of a tensor in a file without further information: a whole tensor on rank 0.
Record plain_record(std::string name, DType dtype, Shape shape, std::size_t seq);
/// Returns the dtype of a stored type under OpenOptions::dtype_hint: the hint if the file could not have
/// named it, else `stored`.
DType hinted(DType stored, std::optional<DType> hint);
/// Reads the tensor in a file as the record of the dump describes it. MindSpore widens dtypes that numpy
/// lacks to float32; `may_be_widened` files are narrowed again, which must be exact. Throws Error ("<where>:
/// ..") if dtype or shape differ from those of the record, which came from `source`.
Tensor as_recorded(Tensor stored, bool may_be_widened, const Record&, std::string_view where,
                   std::string_view source);
/// Parses forward, backward or optimizer. Throws Error ("<where>: ..") for any other text.
Phase parse_phase(std::string_view, std::string_view where);
/// Whether the bytes of `file` at `at` are `magic`.
bool has_magic(const MappedFile& file, std::string_view magic, std::size_t at = 0);
/// Throws Error ("<where>: ...") if a name in the record is longer than max_name_length.
void check_names(const Record&, std::string_view where);

}  // namespace assay
