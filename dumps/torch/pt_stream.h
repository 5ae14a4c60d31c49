#pragma once

#include <memory>

#include "assay/dumps/io/file.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// torch.save before 1.6, or with _use_new_zipfile_serialization=False: five pickles, then the storages.
bool is_pt_stream(const MappedFile&);
/// The form before 0.1.10: a tar archive. It is recognised, and refused when opened.
bool is_pt_tar(const MappedFile&);
std::unique_ptr<Dump> open_pt_stream(std::shared_ptr<const MappedFile>);

}  // namespace assay
