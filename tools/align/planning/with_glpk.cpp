// With GLPK: branch and cut over the simplex method.
#include "assay/align/planning/integer_program.h"

#include <glpk.h>

#include <cmath>
#include <limits>
#include <memory>

namespace assay::align {
namespace {

// How far a search is: it ends by a number of nodes and not of seconds, so that it ends the same anywhere.
struct Progress {
  const int most_nodes;
  double gap = std::numeric_limits<double>::infinity();
};

void follow(glp_tree* tree, void* given) {
  auto& progress = *static_cast<Progress*>(given);
  int nodes = 0;
  glp_ios_tree_size(tree, nullptr, nullptr, &nodes);
  progress.gap = glp_ios_mip_gap(tree);
  if (nodes > progress.most_nodes) glp_ios_terminate(tree);
}

int kind_of_bounds(double low, double high) {
  const bool below = std::isfinite(low), above = std::isfinite(high);
  if (below && above) return low == high ? GLP_FX : GLP_DB;
  return below ? GLP_LO : above ? GLP_UP : GLP_FR;
}

}  // namespace

std::optional<IntegerProgram::Solution> IntegerProgram::solve(double gap, int most_nodes) const {
  const std::unique_ptr<glp_prob, void (*)(glp_prob*)> problem(glp_create_prob(), glp_delete_prob);
  glp_prob* const p = problem.get();
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(p, GLP_MIN);
  const auto columns = static_cast<int>(variables_.size()), rows = static_cast<int>(rows_.size());
  glp_add_cols(p, columns);
  for (int c = 0; c < columns; ++c) {  // GLPK counts from 1
    const Variable& v = variables_[static_cast<std::size_t>(c)];
    glp_set_col_bnds(p, c + 1, kind_of_bounds(v.low, v.high), v.low, v.high);
    glp_set_obj_coef(p, c + 1, v.cost);
    glp_set_col_kind(p, c + 1, v.is_integer ? GLP_IV : GLP_CV);
  }
  if (rows > 0) glp_add_rows(p, rows);
  for (int r = 0; r < rows; ++r) {
    const Row& row = rows_[static_cast<std::size_t>(r)];
    glp_set_row_bnds(p, r + 1, kind_of_bounds(row.low, row.high), row.low, row.high);
    std::vector<int> indices = {0};
    std::vector<double> coefficients = {0};
    for (const auto& [variable, coefficient] : row.terms) {
      indices.push_back(variable + 1);
      coefficients.push_back(coefficient);
    }
    glp_set_mat_row(p, r + 1, static_cast<int>(row.terms.size()), indices.data(), coefficients.data());
  }
  glp_iocp options;
  glp_init_iocp(&options);
  options.presolve = options.fp_heur = options.mir_cuts = options.gmi_cuts = GLP_ON;
  options.mip_gap = gap;
  Progress progress = {most_nodes};
  options.cb_func = follow;
  options.cb_info = &progress;
  glp_intopt(p, &options);
  const int status = glp_mip_status(p);
  if (status != GLP_OPT && status != GLP_FEAS) return std::nullopt;
  Solution s;
  s.cost = glp_mip_obj_val(p);
  s.gap = status == GLP_OPT ? 0 : progress.gap;
  for (int c = 0; c < columns; ++c) {
    const double value = glp_mip_col_val(p, c + 1);
    s.values.push_back(variables_[static_cast<std::size_t>(c)].is_integer ? std::round(value) : value);
  }
  return s;
}

}  // namespace assay::align
