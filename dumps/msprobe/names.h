#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// "a.b.c" -> a, b, c: msprobe and MindSpore put names together with dots.
std::vector<std::string_view> dotted_parts(std::string_view);

/// An entry of dump.json or debug.json by its name: "Module.layers.0.attn_norm.Norm.forward.0".
struct MsprobeName {
  enum class Kind : std::uint8_t { forward, backward, grad, debug, other };
  Kind kind = Kind::other;
  std::string module;  ///< without a module's class: platforms name classes differently
  std::string stem;    ///< the common part of all calls of this module or API
  /// The module's class, "RMSNorm", or the API as its framework calls it, "torch.nn.functional.linear"; empty
  /// where neither is known.
  std::string op;
  std::int64_t call = 0;
  bool is_module = false;  ///< else an API, or a free name
};
/// Modules count calls behind the direction ("Module.a.b.Class.forward.0"), APIs before it
/// ("Functional.linear.0.forward"), older parameters_grad not at all. Other names are their own module.
MsprobeName parse_msprobe_name(std::string_view);

/// "step12" -> 12, and "rank3" or "rank" -> 3 or 0; nothing for other names or numbers with leading zeros.
std::optional<std::int64_t> msprobe_step(std::string_view folder);
std::optional<std::int64_t> msprobe_rank(std::string_view folder);
/// "proc4711": a process that knew no rank.
bool is_msprobe_process(std::string_view folder);

/// "x_grad_float32_0.npy", as debugger.save names files in MindSpore's graph mode.
struct SavedVariable {
  std::string name;
  DType dtype = DType::float32;
  std::int64_t count = 0;
};
std::optional<SavedVariable> parse_saved_variable(std::string_view file);

/// Counts the calls of one rank in one step so that recomputing changes no number. Entries are given in order
/// of appearance.
class CallNumbers {
 public:
  /// Call it for every entry before asking for the first number.
  void add(const MsprobeName&, bool is_recomputed, std::int64_t micro_batch);
  /// Backward calls of a module count in the order of its forward calls; those of APIs, and of a module that
  /// is recomputed and runs backward as its second call, in order of appearance, as in msprobe's own compare.
  /// Forward calls count among themselves, and so do recomputed ones. In a micro-batch (not -1) all counts
  /// start at 0.
  std::int64_t number(const MsprobeName&, bool is_recomputed, std::int64_t micro_batch);

 private:
  std::map<std::string, std::vector<std::int64_t>> recomputed_;  ///< forward calls, by stem
  std::map<std::pair<std::string, std::int64_t>, std::set<std::int64_t>>
      backward_;  ///< of modules, by stem and micro-batch
  std::map<std::tuple<std::string, MsprobeName::Kind, bool, std::int64_t>, std::int64_t> seen_;
};

}  // namespace assay
