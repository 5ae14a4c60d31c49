#pragma once

#include <string>

#include "assay/compare/result/cause.h"

/// The sentences of causes that lie in other tensors; cause.cpp has their rows.
namespace assay::sentences {

std::string left(double residual);
std::string partial_sum(const CauseParameters&, double residual);
std::string stale(const CauseParameters&, double residual);
std::string added(const CauseParameters&, double residual);
std::string other_tensor(const CauseParameters&, double residual);
std::string sum_of_pieces(const CauseParameters&, double residual);
std::string left_out(const CauseParameters&, double residual);
std::string missing_term(const CauseParameters&, double residual);
std::string missing_layer(const CauseParameters&, double residual);

}  // namespace assay::sentences
