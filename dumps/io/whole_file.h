#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>

namespace assay {

/// Writes the parts, one after the other, to a file that appears whole or not at all: under a temporary name
/// beside its place, then renamed. An existing device or pipe is written to directly. Throws Error that names
/// the file if it cannot be written.
void write_whole(const std::filesystem::path&, std::initializer_list<std::span<const std::byte>> parts);
void write_whole(const std::filesystem::path&, std::string_view text);

/// Whether write_whole can make or replace a regular file there, tried without a trace. Throws Error that
/// names the file and the reason if it cannot.
void check_can_write_whole(const std::filesystem::path&);

/// Adds the text at the end of a file, which is made where it is missing: in one piece, and in the kernel's
/// hands when this returns, so that the end of the process does not matter. Throws Error that names the file.
void append_text(const std::filesystem::path&, std::string_view text);

}  // namespace assay
