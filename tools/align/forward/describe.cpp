#include "assay/align/forward/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/compare/report/folds.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// The layer's number of a name apart: "model.layers.12.mlp" is 12 of "model.layers.*.mlp". -1: none.
struct Numbered {
  std::string before, after;
  int number = -1;
};
Numbered numbered(std::string_view name) {
  constexpr std::string_view mark = "layers.";
  const std::size_t at = name.find(mark);
  if (at == std::string_view::npos) return {std::string(name), "", -1};
  const std::size_t begin = at + mark.size(), end = std::min(name.find('.', begin), name.size());
  return {std::string(name.substr(0, begin)), std::string(name.substr(end)),
          std::stoi(std::string(name.substr(begin, end - begin)))};
}

// Lines that differ only in the number of their layer, as one.
class Folded {
 public:
  void add(const std::string& name, const std::string& rest) {
    Numbered n = numbered(name);
    const auto same = [&](const Line& l) {
      return l.name.before == n.before && l.name.after == n.after && l.rest == rest &&
             (n.number < 0) == l.numbers.empty();
    };
    auto at = std::ranges::find_if(lines_, same);
    if (at == lines_.end()) at = lines_.insert(at, {n, rest, {}});
    if (n.number >= 0) at->numbers.insert(n.number);
  }
  std::string text() const {
    std::vector<std::string> names;
    std::size_t width = 0;
    for (const Line& l : lines_) {
      names.push_back(l.name.before + runs(l.numbers, l.numbers.size()) + l.name.after);
      width = std::max(width, names.back().size());
    }
    std::string out;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      out += fmt::format("  {:<{}}  {}\n", names[i], width, lines_[i].rest);
    return out;
  }

 private:
  struct Line {
    Numbered name;
    std::string rest;
    std::set<int> numbers;
  };
  std::vector<Line> lines_;
};

// 104613945344 as "104.6 billion"
std::string count_text(std::int64_t count) {
  constexpr std::pair<double, std::string_view> units[] = {
      {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
  for (const auto& [unit, name] : units) {
    if (static_cast<double>(count) >= unit)
      return fmt::format("{:.1f} {}", static_cast<double>(count) / unit, name);
  }
  return std::to_string(count);
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string headline(const Model& m, const std::vector<Parameter>& all) {
  std::int64_t size = 0, met = 0, further = 0;
  for (const Parameter& p : all) {
    const bool predicts_further = numbered(p.name).number >= m.layers;
    (predicts_further ? further : size) += p.size;
    if (!predicts_further) met += p.met_by_token;
  }
  const Model::Attention& a = m.attention;
  const std::int64_t with_experts = m.moe.experts > 0 ? m.layers - m.dense_layers : 0;
  std::string out = fmt::format("{}: {} parameters, of which a token meets {}\n", printable(m.name),
                                count_text(size), count_text(met));
  out += fmt::format("  {} layers, {} of them with experts; hidden {}, vocabulary {}\n", m.layers,
                     with_experts, m.hidden, m.vocabulary);
  out += a.kind == AttentionKind::mla
             ? fmt::format("  MLA, {} heads of {} + {} and {}; ranks {} and {}\n", a.heads, a.nope_dim,
                           a.rope_dim, a.value_dim, a.q_rank, a.kv_rank)
             : fmt::format("  GQA, {} heads of {}, {} of keys and values\n", a.heads, a.head_dim, a.kv_heads);
  if (with_experts > 0)
    out += fmt::format("  {} experts of {}, {} of a token, {} shared\n", m.moe.experts, m.moe.ffn,
                       m.moe.top_k, m.moe.shared_experts);
  if (further > 0)
    out += fmt::format("  {} more, with {} parameters, for multi-token prediction\n", m.losses.mtp_depth,
                       count_text(further));
  return out + fmt::format("  source: {}\n", m.source.empty() ? "not said" : printable(m.source));
}

// The factor of 1 + |golden|, or absolute and relative.
std::string tolerance(const Row* row) {
  if (row == nullptr) return "(no rule)";
  return row->atol == row->rtol ? fmt::format("({:.3g})", row->atol)
                                : fmt::format("({:.3g} {:.3g})", row->atol, row->rtol);
}

std::string legend(const Description& d) {
  return fmt::format(
      "operators of the forward pass and its backward, for {} x {} tokens: what they give, the terms behind\n"
      "one element, and in brackets what {} allows in {}: t of |actual - golden| <= t (1 + |golden|), or\n"
      "absolute and relative",
      d.batch.sequences, d.batch.length, printable(d.policy.name), name(d.dtype));
}

}  // namespace

std::string describe(const Model& model, const Description& d) {
  if (d.policy.rule != Rule::atol_rtol)
    throw Error("{}: has no table of tolerances by dtype and count; expected one such as telechat3",
                printable(d.policy.name));
  const std::vector<Parameter> all = parameters(model);
  Folded list;
  for (const Parameter& p : all)
    list.add(p.name, fmt::format("{:<20} {}", shape_text(p.shape), count_text(p.size)));
  Folded calls;
  for (const ModuleCall& call : forward_calls(model, d.batch)) {
    std::string outputs;
    for (const Accumulation& a : accumulations(call))
      outputs += fmt::format("  {} {} {}", a.output, a.count, tolerance(d.policy.find(d.dtype, a.count)));
    if (!outputs.empty()) calls.add(call.module, fmt::format("{:<14}{}", call.op->name, outputs));
  }
  return fmt::format("{}\nparameters\n{}\n{}\n{}", headline(model, all), list.text(), legend(d),
                     calls.text());
}

}  // namespace assay::align
