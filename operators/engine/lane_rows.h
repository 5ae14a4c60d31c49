#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

/// A call whose rows are computed for themselves, several at a time (Operator::run_lanes), so that nothing is
/// as large as the call: golden values in float64, and what of a device's error the quick error model tells.
class LaneRows {
 public:
  /// Returns nothing for operators without run_lanes, fewer than two rows, and inputs that are no floats.
  /// @param device  that of no accumulator of its own
  /// @throws Error  as compute_golden
  static std::optional<LaneRows> of(const Operator&, std::span<const NamedTensor> inputs, const Attributes&,
                                    const ErrorModel& device);

  struct Output {
    const Arg* arg;
    Shape shape;
    std::int64_t row;  ///< elements of a row; 0: a sum over the rows
  };
  std::span<const Output> outputs() const { return outputs_; }
  std::int64_t rows() const { return rows_; }
  /// Rows that are worth a thread, at least.
  std::int64_t rows_of_block() const;

  struct Made {
    std::vector<double> values, errors;
    std::vector<double> squares;  ///< of the terms of a sum over the rows
  };
  /// What computing takes room for; kept, so that it is made once.
  struct Room {
    std::tuple<Tensors<BoundLanes<2>>, Tensors<BoundLanes<4>>, Tensors<BoundLanes<8>>> tensors;
    std::int64_t placed = 0;  // rows of a lane that they are made for
    std::vector<double> decoded;
    std::vector<Made> made;
  };
  /// Of each output these rows, or the sum over them. An error that nothing is known of is 0.
  /// @return        in the room, until it is used again
  /// @throws Error  unless it begins at a multiple of rows_of_block(): bits depend on what is computed
  /// together
  std::span<Made> compute(std::int64_t begin, std::int64_t end, Room&) const;
  /// Adds sums over the rows that follow; completes them when the last are in.
  static void add(Made& sum, const Made& next);
  void complete(Made& sum) const;

 private:
  struct Input {
    const Arg* arg;
    Tensor tensor;
    std::int64_t row;  // 0: the same for all rows
  };
  template <int N>
  void place(Tensors<BoundLanes<N>>&, const Dims&) const;
  template <int N>
  void compute_in_lanes(LaneRuns::Run<N>, std::int64_t begin, std::int64_t end, Room&) const;

  const Operator* op_ = nullptr;
  Attributes attributes_;
  Dims dims_;
  ErrorModel device_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::int64_t rows_ = 0, together_ = 2;  // rows that are computed at a time, of all lanes
  int lanes_ = 2;
};

}  // namespace assay
