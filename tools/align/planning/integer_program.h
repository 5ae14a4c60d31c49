#pragma once

#include <optional>
#include <utility>
#include <vector>

namespace assay::align {

/// Minimizes the cost of variables between bounds, under rows low <= sum of coefficients <= high.
class IntegerProgram {
 public:
  /// @return  its number
  int add_integer(double low, double high, double cost) { return add({low, high, cost, true}); }
  int add_real(double low, double high, double cost) { return add({low, high, cost, false}); }
  using Terms = std::vector<std::pair<int, double>>;  ///< variable, coefficient; each variable once
  void add_row(double low, const Terms& terms, double high) { rows_.push_back({low, high, terms}); }

  struct Solution {
    std::vector<double> values;  ///< by number; integers are rounded
    double cost = 0;
    double gap = 0;  ///< no other costs less by more than this part of it
  };
  /// @param gap         with which it is good enough
  /// @param most_nodes  of the search, after which the best one found so far is taken
  /// @return            nothing if there is none, or none was found
  std::optional<Solution> solve(double gap, int most_nodes) const;

 private:
  struct Variable {
    double low, high, cost;
    bool is_integer;
  };
  struct Row {
    double low, high;
    Terms terms;
  };
  int add(const Variable& v) {
    variables_.push_back(v);
    return static_cast<int>(variables_.size()) - 1;
  }

  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

}  // namespace assay::align
