#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "assay/dumps/dump.h"
#include "assay/dumps/file.h"

namespace assay {

// The readers behind open_dump, one per format and file. Each throws Error if the content is damaged. A
// tensor that has no name in its file (npy, or one tensor in a .pt) gets an empty one; the caller knows what
// to call it.

std::unique_ptr<Dump> open_npy(std::shared_ptr<const MappedFile>, const OpenOptions&);
std::unique_ptr<Dump> open_npz(std::shared_ptr<const MappedFile>, const OpenOptions&);
std::unique_ptr<Dump> open_safetensors(std::shared_ptr<const MappedFile>, const OpenOptions&);
std::unique_ptr<Dump> open_pt(std::shared_ptr<const MappedFile>, const OpenOptions&);
std::unique_ptr<Dump> open_hdf5(std::shared_ptr<const MappedFile>, const OpenOptions&);
std::unique_ptr<Dump> open_assay_dump(const std::filesystem::path& folder);
std::unique_ptr<Dump> open_msprobe(const std::filesystem::path& folder, const OpenOptions&);
/// Any other folder: the readable files below it, each named by its path without the extension.
std::unique_ptr<Dump> open_folder(const std::filesystem::path& folder, const OpenOptions&);

/// One file of the formats above, recognised by its first bytes; nullptr if none fits.
std::unique_ptr<Dump> open_file(std::shared_ptr<const MappedFile>, const OpenOptions&);

}  // namespace assay
