#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/placement/movement.h"
#include "assay/operators/engine/golden.h"

namespace assay::align {

/// A tensor of the step, known to the machine that gave it: what this rank holds of it.
struct Value {
  std::size_t id = 0;
  Shape shape = {};
  MeshPlacement placement = {};
};

struct NamedValue {
  std::string name;
  Value value;
};

/// What a model is run on by one rank: its forward pass is written once, over calls of golden operators and
/// movements between ranks; one machine only takes down shapes and placements, another computes and can go
/// backward. Both check that placements go together.
class Machine {
 public:
  explicit Machine(const Mesh& mesh) : mesh_(mesh) {}
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  const Mesh& mesh() const { return mesh_; }

  /// A parameter, the same for the same name. Names are those of Hugging Face's modeling code of DeepSeek-V3
  /// and Qwen3-MoE; of experts, whose matrices are one tensor [experts, out, in], "*" stands for the number
  /// of each.
  /// @param shape  of the whole; this rank has its piece of it
  Value parameter(const std::string& name, const Shape& shape, const std::vector<Sharding>& = {});
  /// What this rank has of integers that the step is given: "tokens", "targets".
  Value indices(const std::string& name, const Shape&, const std::vector<Sharding>& = {});
  /// The same under another shape, in C order; without a gradient.
  Value view(const Value&, const Shape&);

  using Integers = std::vector<std::int64_t>;
  using Formula = std::function<Integers(const std::vector<Integers>&)>;
  /// Integers that follow from others. Where only shapes are known, `shape` is the guess.
  /// @param real  whether they are used as numbers, not as indices
  Value derive(const std::vector<Value>& inputs, const Shape& shape, const MeshPlacement&, const Formula&,
               bool real = false);

  /// One of the integers of the step, for an attribute; the guess where only shapes are known.
  std::int64_t number(const Value& scalar, std::int64_t guess) const;

  /// All outputs of the operator that are not gradients.
  /// @param module    what it belongs to: "model.layers.0.self_attn.q_b_proj"
  /// @param declared  placements of the outputs where data and not shapes say them
  std::vector<NamedValue> call_all(const std::string& module, std::string_view op,
                                   const std::vector<NamedValue>& inputs, const Attributes&,
                                   const std::vector<Sharding>& declared = {});
  /// The first output.
  Value call(const std::string& module, std::string_view op, const std::vector<NamedValue>& inputs,
             const Attributes& attributes = {}, const std::vector<Sharding>& declared = {}) {
    return call_all(module, op, inputs, attributes, declared).front().value;
  }

  /// Says what the calls from node `first` on are together, for those who watch: a strategy's steps, whose
  /// modules have a '/' in their names, make up an operator of the model. It stands before them, so that on
  /// the way back all is known.
  void declare(std::size_t first, const std::string& module, std::string_view op,
               const std::vector<NamedValue>& inputs, const Attributes&,
               const std::vector<NamedValue>& outputs);

  /// Nothing where the axis has one rank.
  Value move(const std::string& module, const Movement&, const Value&);
  /// The same tensor, typed for other axes of the same ranks.
  Value retype(const std::string& module, const Value&, const MeshPlacement&);
  /// Rows for each rank of the node in turn, from each in turn; backward the other way.
  /// @param give, take  how many: indices, one per rank of the node
  Value exchange_rows(const std::string& module, const Value& rows, const Value& give, const Value& take);

  /// Counts, summed over the micro-batches that so many neighbours along dp work on at the same time.
  Value sum_of_neighbours(const std::string& module, const Value& counts, std::int64_t ranks);

  /// What has been done.
  struct Node {
    enum class Kind : std::uint8_t {
      call,      ///< of an operator
      whole,     ///< what the calls behind it are together: computes nothing
      movement,  ///< between ranks
      retype,
      exchange,  ///< of rows
    };
    Kind kind = Kind::call;
    std::string module;
    const Operator* op = nullptr;  ///< of a call, and of a whole
    Attributes attributes = {};
    std::optional<Movement> movement = {};
    std::vector<NamedValue> inputs = {}, outputs = {};

    bool is_of(std::string_view name) const { return op != nullptr && op->name == name; }
    /// A step of what is declared as a whole.
    bool is_inside() const { return module.find('/') != std::string::npos; }
  };
  /// In order; once nothing more is declared they stay where they are.
  const std::deque<Node>& nodes() const { return nodes_; }

  struct NamedParameter {
    std::string name;
    Value value;
    Shape whole;
    std::vector<Sharding> shardings;
  };
  /// In the order of their first use.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

  /// How the gradient of each value is placed, by id, if the gradients of these are replicated scalars, or as
  /// the values are.
  /// @throws Error  if somewhere gradients are added up that are placed differently
  std::vector<std::optional<MeshPlacement>> gradient_placements(const std::vector<Value>& of) const;

 protected:
  /// What the machine knows of a value beside shape and placement, behind the last; ids count up.
  virtual void hold_parameter(const NamedParameter&) {}
  virtual Shape hold_indices(const std::string& name, const Shape& shape) = 0;
  virtual void hold_view(const Value& of, const Shape&) { (void)of; }
  virtual Shape hold_derived(const std::vector<Value>& inputs, const Shape& shape, const Formula&,
                             bool real) = 0;
  virtual void hold_sum(const std::string& module, const Value& counts, const std::vector<int>& group) {
    (void)module, (void)counts, (void)group;
  }
  /// Shapes of the outputs.
  virtual std::vector<NamedValue> hold_call(const Node&) = 0;
  virtual Shape hold_moved(const Node&) = 0;
  virtual std::optional<std::int64_t> known(const Value&) const { return std::nullopt; }
  /// The placement is known now.
  virtual void placed(const Value&) {}

  Value add(const Shape&, const MeshPlacement& = {});

 private:
  Value finish(Node, const Shape&, const MeshPlacement&);
  using Placements = std::vector<std::optional<MeshPlacement>>;
  void place_gradients_of(const Node&, Placements&) const;
  void place_gradients_of_call(const Node&, Placements&) const;
  MeshPlacement back(const Node&, MeshPlacement) const;

  const Mesh mesh_;
  std::size_t values_ = 0;
  std::deque<Node> nodes_;
  std::vector<NamedParameter> parameters_;
  std::map<std::string, std::size_t, std::less<>> known_;  ///< parameters by name
};

/// One of the outputs of a call. Throws Error if it is not among them.
const Value& value_named(const std::vector<NamedValue>&, std::string_view name);

/// The output that a gradient is of: grad_y of y, and where there is no y (a loss) the first.
const Value& output_of(const std::vector<NamedValue>& outputs, const Arg& gradient);

/// The piece of the whole that a rank holds.
Shape local_shape(Shape whole, const std::vector<Sharding>&, const Mesh&, const std::string& name);

}  // namespace assay::align
