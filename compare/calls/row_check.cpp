#include "assay/compare/calls/row_check.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "assay/compare/calls/call.h"
#include "assay/compare/measure/block.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/lane_rows.h"

namespace assay {
namespace {

// Elements of an input: of fewer, the whole of what is allowed costs little and says more.
constexpr std::int64_t elements_of_large = 1 << 18;

// What the elements of an output tell that one block of rows has.
struct RowsPart {
  Partial partial;
  BoundTrust trust;
  ScaleSums scale;
};

class RowsOutput {
 public:
  RowsOutput(const Case& c, const std::string& output, const TensorSource& made,
             const LaneRows::Output& golden, std::size_t index, const Device& device)
      : name(output), actual(made), index(index), row(golden.row), device_(device) {
    CallVariant variant;
    variant.attributes = c.attributes;
    scale = Call(*c.op, c.inputs, name, actual.whole(), device).scale_test(variant);
  }

  /// @param values  room for the actual ones
  RowsPart judge(LaneRows::Made& made, std::int64_t begin, std::vector<double>& values) const {
    const Tensor window = actual.window(begin, static_cast<std::int64_t>(made.values.size()));
    values.resize(made.values.size());
    decode(window.dtype(), window.bytes(), values);
    const double own = with_error_of_golden(device_.arithmetic);
    for (double& e : made.errors) e *= own;
    allow_store(window.dtype(), device_.arithmetic, made.values, made.errors);
    RowsPart part;
    part.partial = BlockPass(window.dtype(), DType::float64, {0, 0, made.errors})
                       .run(window.bytes(), std::as_bytes(std::span(made.values)), 0);
    move_to(part.partial, begin);
    part.trust = {values, made.values, made.errors};
    part.scale = {values, made.values, made.errors, scale.columns, begin};
    return part;
  }

  std::string name;
  TensorSource actual;
  std::size_t index;  // among the outputs of the rows
  std::int64_t row;
  ScaleTest scale;

 private:
  Device device_;
};

// Float32 arithmetic in any order, and nothing narrow in between.
Device device_of_rows() {
  return Device::of(DType::float32);
}

std::vector<RowsOutput> outputs_by_rows(const Case& c, const LaneRows& rows, const MadeOutputs& outputs) {
  std::vector<RowsOutput> all;
  for (const auto& [name, made] : outputs) {
    const auto golden = std::ranges::find(rows.outputs(), name, [](auto& o) { return o.arg->name; });
    if (golden == rows.outputs().end() || golden->arg->exact != Exact::no || golden->arg->raw) continue;
    const DType dtype = made.dtype();
    if (!is_float(dtype) || !format_of(dtype).has_nan || dtype == DType::float64 ||
        made.shape() != golden->shape)
      continue;
    all.emplace_back(c, name, made, *golden, static_cast<std::size_t>(golden - rows.outputs().begin()),
                     device_of_rows());
  }
  return all;
}

// The golden values of some rows, whenever they are asked for.
TensorSource golden_by_rows(const std::shared_ptr<const LaneRows>& rows, std::size_t index) {
  const LaneRows::Output& output = rows->outputs()[index];
  const auto fill = [rows, index, row = output.row](std::int64_t begin, std::span<std::byte> out) {
    const auto count = static_cast<std::int64_t>(out.size() / sizeof(double));
    const std::int64_t step = rows->rows_of_block();
    LaneRows::Room room;
    for (std::int64_t at = begin / row / step * step; at * row < begin + count; at += step) {
      const auto made = rows->compute(at, std::min(at + step, rows->rows()), room);
      const auto bytes = std::as_bytes(std::span(made[index].values));
      const std::int64_t from = std::max(begin, at * row),
                         to = std::min(begin + count, std::min(at + step, rows->rows()) * row);
      std::ranges::copy(bytes.subspan(static_cast<std::size_t>(from - at * row) * sizeof(double),
                                      static_cast<std::size_t>(to - from) * sizeof(double)),
                        out.begin() + (from - begin) * static_cast<std::int64_t>(sizeof(double)));
    }
  };
  return TensorSource(DType::float64, output.shape, TensorSource::Fill(fill));
}

}  // namespace

bool may_judge_rows(const Case& c, const CheckOptions& options) {
  const auto is_large = [](const NamedTensor& t) { return t.tensor.size() >= elements_of_large; };
  return c.op->run_lanes.two != nullptr && std::ranges::any_of(c.inputs, is_large) &&
         options.policies.size() == 1 && options.policies.front().rule == Rule::derived &&
         options.level == Level::fp64 && options.accumulator.empty() && !options.intermediate;
}

std::map<std::string, WithinRows, std::less<>> within_rows(const Case& c, const MadeOutputs& made_outputs,
                                                           const CheckOptions& options) {
  std::map<std::string, WithinRows, std::less<>> within;
  if (!may_judge_rows(c, options)) return within;
  auto found = LaneRows::of(*c.op, c.inputs, c.attributes, device_of_rows().error_model());
  if (!found) return within;
  const auto rows = std::make_shared<const LaneRows>(std::move(*found));
  const std::vector<RowsOutput> outputs = outputs_by_rows(c, *rows, made_outputs);
  if (outputs.empty()) return within;

  const std::int64_t step = rows->rows_of_block(), blocks = (rows->rows() + step - 1) / step;
  std::vector<std::vector<RowsPart>> parts(static_cast<std::size_t>(blocks));
  std::vector<std::vector<LaneRows::Made>> sums(parts.size());
  const std::int64_t blocks_of_room = std::clamp<std::int64_t>(blocks / 32, 1, 4);  // some for each thread
  in_parallel(blocks, blocks_of_room, [&](std::int64_t first, std::int64_t end) {
    LaneRows::Room room;
    std::vector<double> values;
    for (std::int64_t block = first; block < end; ++block) {
      const std::int64_t begin = block * step;
      const auto made = rows->compute(begin, std::min(begin + step, rows->rows()), room);
      const auto at = static_cast<std::size_t>(block);
      for (const RowsOutput& output : outputs) {
        LaneRows::Made& of_output = made[output.index];
        if (output.row > 0)
          parts[at].push_back(output.judge(of_output, begin * output.row, values));
        else
          sums[at].push_back(std::move(of_output));
      }
    }
  });

  std::size_t of_rows = 0, of_sums = 0;
  std::vector<double> values;
  for (const RowsOutput& output : outputs) {
    RowsPart total;
    TensorSource golden;
    if (output.row > 0) {
      for (const std::vector<RowsPart>& block : parts) {
        merge_into(total.partial, block[of_rows].partial);
        total.trust.add(block[of_rows].trust);
        total.scale.add(block[of_rows].scale);
      }
      ++of_rows;
      golden = golden_by_rows(rows, output.index);
    } else {
      LaneRows::Made sum = std::move(sums.front()[of_sums]);
      for (std::size_t block = 1; block < sums.size(); ++block) LaneRows::add(sum, sums[block][of_sums]);
      ++of_sums;
      rows->complete(sum);
      golden = Tensor(output.actual.shape(), std::span<const double>(sum.values));
      total = output.judge(sum, 0, values);
    }
    if (total.partial.metrics.over > 0) continue;
    const auto excess = shared_scale_error(output.scale, total.scale);
    if (excess && !excess->within()) continue;
    Metrics metrics = metrics_of(std::move(total.partial), output.actual, golden);
    within.emplace(output.name, WithinRows{golden, {std::move(metrics), total.trust}});
  }
  return within;
}

}  // namespace assay
