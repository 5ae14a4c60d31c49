#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// How the tensors of a call fit the declaration: names, shapes by letters. bind_dims (golden.h) is made of
/// these.
namespace assay {

struct NamedTensor;

/// One comma-separated part of Arg::shape: "N", "N*" or "1".
struct Part {
  std::string_view letter;
  bool starred = false;
  bool literal = false;
};

std::vector<Part> parts_of(std::string_view shape);

bool is_list(const Arg&);
bool is_given(const Arg&);
bool holds_indices(const Arg&);
/// The 3 of "grad_3" in "grad_#"; 0 for the name itself of what is no list; nothing if `name` is not of
/// `arg`.
std::optional<std::int64_t> member_number(const Arg& arg, std::string_view name);
bool names(const Arg& arg, std::string_view name);

/// The declared shape, as the attributes change it.
std::string_view shape_letters(const Operator&, const Arg&, const Attributes&);
/// The shape that letters and dims make. Throws Error if it has more than 2^63 elements.
Shape expand(std::string_view letters, const Dims&);
/// The extents of a View of it: one for each letter.
std::vector<std::int64_t> extents_of(std::string_view letters, const Dims&);
/// The outputs that the operator fills when it is given these inputs. Not those of lists, which it makes.
std::vector<const Arg*> outputs_made(const Operator&, std::span<const NamedTensor> inputs);

}  // namespace assay
