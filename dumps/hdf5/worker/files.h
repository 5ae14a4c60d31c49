#pragma once

#include "assay/dumps/hdf5/message.h"

namespace assay {

/// Does what the order (Hdf5Order) says, and adds what it asks for to the answer. Throws Error where the
/// library or the disk refuses.
void serve_writer(MessageReader order, MessageWriter& out);

}  // namespace assay
