#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "assay/compare/flow/relations.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Hash = std::uint64_t;

// splitmix64: Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195.
Hash mixed(Hash h, double v) {
  h += 0x9e3779b97f4a7c15 + std::bit_cast<Hash>(v == 0 ? 0.0 : v);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

bool is_within(std::string_view module, std::string_view scope) {
  return scope.empty() ||
         (module.size() > scope.size() && module.starts_with(scope) && module[scope.size()] == '.');
}

std::string parent(const std::string& module) {
  const auto dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

// A value that later ones may be made of.
struct Candidate {
  Name name;
  const LogicalTensor* tensor = nullptr;
  std::string scope;      // the module in which it is known; "": everywhere
  bool is_inner = false;  // the input of the module `scope`: known nowhere else
};

struct Place {
  std::size_t candidate = 0;
  std::int64_t at = 0;  // of a column or a row
};
using Places = std::unordered_map<Hash, std::vector<Place>>;

class Search {
 public:
  Search(const SideValues& side, const RecordedCalls& calls, const Makes& makes)
      : side_(side), calls_(calls), makes_(makes) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const LogicalTensor*>> frames;
    for (const LogicalTensor& t : side.tensors()) {
      if (t.id.phase == Phase::forward && t.id.slot == "param" && side.find(t.id) == &t)
        parameters_[t.id.step].push_back(&t);
      if (t.id.phase != Phase::forward || t.id.micro_batch < 0 || side.find(t.id) != &t) continue;
      if (t.id.slot == "loss" && is_float(t.dtype) && element_count(t.shape) == 1)
        losses_[name_of(t.id)].push_back(&t);
      if (t.id.slot == "input" || t.id.slot == "output") {
        frames[{t.id.step, t.id.micro_batch}].push_back(&t);
        modules_.insert(t.id.module);
        if (t.id.slot == "output") with_outputs_.insert(t.id.module);
        if (is_float(t.dtype)) dtypes_.insert(t.dtype);
      }
    }
    for (auto& [key, frame] : frames) {
      std::ranges::stable_sort(frame, {}, &LogicalTensor::seq);
      if (std::ranges::any_of(frame, [&](const LogicalTensor* t) { return is_new(*t); })) search(frame);
    }
  }
  Relations take() {
    for (const auto& [name, all] : losses_) find_total(name, all);
    for (auto& [target, r] : found_.made) {
      if (r.kind == Relation::Kind::combine) complete(target, r);
    }
    return std::move(found_);
  }

 private:
  bool is_new(const LogicalTensor& t) const {
    const auto tried = tries_.find(name_of(t.id));
    return is_float(t.dtype) && (tried == tries_.end() || tried->second < most_tries);
  }
  // What one micro-batch does not tell (two experts with the same tokens) another may.
  bool is_sought(const Name& name) { return tries_[name]++ < most_tries; }
  void settle(const Name& name) { tries_[name] = most_tries; }
  bool is_composite(const std::string& module) const {
    const auto next = modules_.upper_bound(module + ".");
    return next != modules_.end() && next->starts_with(module + ".");
  }
  // The nearest module around it with a result of its own.
  std::string scope_of(const std::string& module) const {
    for (std::string m = parent(module); !m.empty(); m = parent(m)) {
      if (with_outputs_.contains(m)) return m;
    }
    return "";
  }

  void search(const std::vector<const LogicalTensor*>& frame) {
    candidates_.clear();
    indices_.clear();
    tables_.clear();
    whole_.clear();
    columns_.clear();
    rows_.clear();
    for (const LogicalTensor* t : frame) {
      if (!is_float(t->dtype)) {
        indices_.push_back(t);
        continue;
      }
      // A tensor that cannot be read is no source; the comparison itself says so.
      (void)trouble_in([&] { t->id.slot == "input" ? take_input(*t) : take_output(*t); });
    }
  }

  void take_input(const LogicalTensor& t) {
    const Name name = name_of(t.id);
    const bool is_known = !is_sought(name);
    const bool composite = is_composite(t.id.module);
    Name value = name;
    value.slot = "value";
    if (is_known) {
      if (found_.made.contains(value)) add(value, t, scope_of(t.id.module), false);
    } else if (const auto source = copied(t)) {
      found_.made[name] = {.sources = {*source}};
      found_.uses[*source].push_back({name, true, 0});
      settle(name);
    } else {
      if (auto made = relation(t)) {
        keep(value, std::move(*made));
        settle(name);
      }
      if (found_.made.try_emplace(name, Relation{.sources = {value}}).second)
        found_.uses[value].push_back({name, true, 0});
      add(value, t, scope_of(t.id.module), false);
    }
    if (composite) add(name, t, t.id.module, true);
  }

  void take_output(const LogicalTensor& t) {
    const Name name = name_of(t.id);
    if (is_sought(name)) {
      std::optional<Relation> made;
      if (is_of_operator(t)) {
        settle(name);
      } else if (const auto source = copied(t)) {
        made = Relation{.sources = {*source}};
      } else {
        made = relation(t);
      }
      if (made) {
        keep(name, std::move(*made));
        settle(name);
      }
    }
    add(name, t, scope_of(t.id.module), false);
    // What a call makes for itself, it uses.
    if (calls_.is_own_input(t)) {
      Name input = name;
      input.slot = "input";
      auto& uses = found_.uses[name];
      if (std::ranges::find(uses, input, &Use::target) == uses.end()) uses.push_back({input, true, 0});
    }
  }

  void keep(const Name& target, Relation r) {
    for (std::size_t s = 0; s < r.sources.size(); ++s)
      found_.uses[r.sources[s]].push_back({target, false, s});
    found_.made[target] = std::move(r);
  }

  // With all inputs, or with those that can be borrowed from values before it.
  bool is_of_operator(const LogicalTensor& t) {
    const auto made_by = calls_.producers(t);
    if (made_by.size() != 1) return !made_by.empty();
    const RecordedCall& call = made_by.front();
    std::vector<const Arg*> absent;
    bool lacks = false, has_input = false;
    for (const Arg& arg : call.op->args) {
      if (arg.role != Role::input) continue;
      const bool is_there = is_given(call, arg);
      has_input = has_input || is_there;
      if (is_there) continue;
      lacks = lacks || !arg.optional;
      absent.push_back(&arg);
    }
    if (lacks_parameter(call)) return borrows_parameter(call, t);
    if (absent.empty() || (!lacks && has_input)) return true;
    // Two calls that were recorded as one, as rope of q and of k: each input has the name of its result.
    const auto results = std::ranges::count_if(calls_.around(t), [&](const LogicalTensor* other) {
      return other->id.slot == "output" && other->id.phase == Phase::forward && is_float(other->dtype);
    });
    const bool has_twins = results > 1 && absent.size() == 1 && !call.op->fused_by_name;
    for (const auto& given : borrowable(absent, t)) {
      RecordedCall whole = call;
      for (const auto& [arg, c] : given)
        whole.inputs.push_back({std::string(arg->name), candidates_[c].tensor});
      if (!makes_(whole, t)) continue;
      for (const auto& [arg, c] : given) {
        Name input = name_of(t.id);
        input.slot = "input";
        input.arg = has_twins ? t.id.arg : std::string(arg->name);
        const Name& source = candidates_[c].name;
        found_.borrowed.push_back({input, source});
        found_.made[input] = {.sources = {source}};
        found_.uses[source].push_back({input, true, 0});
      }
      return true;
    }
    return false;
  }

  static bool is_given(const RecordedCall& call, const Arg& arg) {
    return std::ranges::find(call.inputs, arg.name, &RecordedCall::Input::name) != call.inputs.end();
  }
  static const Arg* lacks_parameter(const RecordedCall& call) {
    const auto lacking = std::ranges::find_if(call.op->args, [&](const Arg& arg) {
      return arg.role == Role::param && !arg.optional && !is_given(call, arg);
    });
    return lacking == call.op->args.end() ? nullptr : &*lacking;
  }

  // One of another module: a tied embedding.
  bool borrows_parameter(const RecordedCall& call, const LogicalTensor& t) {
    const Arg& arg = *lacks_parameter(call);
    for (const LogicalTensor* param : parameters_[t.id.step]) {
      if (t.shape.empty() || std::ranges::find(param->shape, t.shape.back()) == param->shape.end()) continue;
      RecordedCall whole = call;
      whole.inputs.push_back({std::string(arg.name), param});
      if (!makes_(whole, t)) continue;
      Name input = name_of(t.id);
      input.slot = "input";
      input.arg = arg.name;
      found_.borrowed.push_back({input, name_of(param->id)});
      return true;
    }
    return false;
  }

  using Given = std::vector<std::pair<const Arg*, std::size_t>>;

  // Values that are called as the arguments are, in the nearest module, the fewest arguments first; for a
  // lone input any value, the latest first.
  std::vector<Given> borrowable(const std::vector<const Arg*>& absent, const LogicalTensor& t) const {
    constexpr std::size_t most = 8, most_arguments = 6;
    Given named;
    for (const Arg* arg : absent) {
      std::optional<std::size_t> best;
      for (std::size_t c = 0; c < candidates_.size(); ++c) {
        if (candidates_[c].name.arg == arg->name && rank(c, t) >= 1 &&
            (!best || rank(c, t) >= rank(*best, t)))
          best = c;
      }
      if (best && named.size() < most_arguments) named.emplace_back(arg, *best);
    }
    const auto is_required = [](const Arg* arg) { return !arg->optional; };
    const auto required = static_cast<std::size_t>(std::ranges::count_if(absent, is_required));
    std::vector<Given> all;
    for (std::uint32_t subset = 1; subset < 1U << named.size(); ++subset) {
      Given given;
      for (std::size_t k = 0; k < named.size(); ++k) {
        if ((subset >> k & 1U) != 0) given.push_back(named[k]);
      }
      const auto in_it = std::ranges::count_if(given, [&](const auto& g) { return is_required(g.first); });
      if (static_cast<std::size_t>(in_it) == required) all.push_back(std::move(given));
    }
    std::ranges::stable_sort(all, {}, &Given::size);
    if (required > 1) return all;
    const auto lone = std::ranges::find_if(absent, is_required);
    const Arg* arg = lone != absent.end() ? *lone : absent.front();
    const std::vector<std::size_t> latest = near(t, [](const LogicalTensor&) { return true; });
    for (std::size_t i = 0; i < std::min(most, latest.size()); ++i) all.push_back({{arg, latest[i]}});
    return all;
  }

  // -1: it is not known there. Inner modules first; what another module keeps to itself last.
  int rank(std::size_t candidate, const LogicalTensor& target) const {
    const Candidate& c = candidates_[candidate];
    const bool inside =
        is_within(target.id.module, c.scope) || (target.id.slot == "output" && target.id.module == c.scope);
    if (!inside) return c.is_inner ? -1 : 0;
    return 1 + static_cast<int>(std::ranges::count(c.scope, '.')) + (c.scope.empty() ? 0 : 1);
  }

  // In the order in which they come into question: known here, the latest first.
  std::vector<std::size_t> near(const LogicalTensor& t,
                                const std::function<bool(const LogicalTensor&)>& fits) const {
    std::vector<std::size_t> order;
    for (std::size_t c = candidates_.size(); c-- > 0;) {
      if (rank(c, t) >= 1 && fits(*candidates_[c].tensor)) order.push_back(c);
    }
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t c) { return rank(c, t); });
    return order;
  }

  void add(const Name& name, const LogicalTensor& t, std::string scope, bool is_inner) {
    const auto tensor = side_.read(t);
    const std::size_t at = candidates_.size();
    candidates_.push_back({name, &t, std::move(scope), is_inner});
    if (const auto hash = hash_of(tensor->values)) whole_[*hash].push_back({at, 0});
    // As it is after a cast.
    for (const DType narrow : dtypes_) {
      if (unit_roundoff(narrow) <= unit_roundoff(tensor->dtype)) continue;
      std::vector<double> values = tensor->values;
      for (double& v : values) v = round_to(narrow, v);
      if (const auto hash = hash_of(values)) whole_[*hash].push_back({at, 0});
    }
    for (const Relation::Table& table : tables_of(tensor->shape)) add_columns(at, *tensor, table);
    if (tensor->shape.size() >= 2) {
      const auto width = static_cast<std::size_t>(tensor->shape.back());
      for (std::size_t r = 0; width > 0 && r < tensor->values.size() / width; ++r) {
        Hash h = 0;
        for (std::size_t j = 0; j < width; ++j) h = mixed(h, tensor->values[r * width + j]);
        rows_[tensor->shape.back()][h].push_back({at, static_cast<std::int64_t>(r)});
      }
    }
  }

  // One number, or the same number everywhere (zeros, ones), does not show which value it is. Within a module
  // a number that is no integer does, as far as it is the same in all micro-batches.
  static std::optional<Hash> hash_of(const std::vector<double>& values) {
    if (values.empty() || (values.size() == 1 && values.front() == std::round(values.front()))) return {};
    if (values.size() == 1) return mixed(1, values.front());
    Hash h = values.size();
    bool is_uniform = true;
    for (const double v : values) {
      h = mixed(h, v);
      is_uniform = is_uniform && v == values.front();
    }
    return is_uniform ? std::nullopt : std::optional(h);
  }

  // As it lies, and with two neighbouring dimensions exchanged ([b, s, h, d] and [b, h, s, d]); the first one
  // or more count tokens.
  static std::vector<Relation::Table> tables_of(const Shape& shape) {
    std::vector<Relation::Table> tables;
    const std::size_t dims = shape.size();
    if (dims < 2 || dims > 5) return tables;
    std::vector<Shape> orders(1);
    for (std::size_t d = 0; d < dims; ++d) orders.front().push_back(static_cast<std::int64_t>(d));
    for (std::size_t d = 0; dims > 2 && d + 2 < dims; ++d) {
      orders.push_back(orders.front());
      std::swap(orders.back()[d], orders.back()[d + 1]);
    }
    for (const Shape& order : orders) {
      for (std::size_t lead = 1; lead < dims; ++lead) {
        const bool moves =
            order == orders.front() ||
            !std::ranges::equal(std::span(order).first(lead), std::span(orders.front()).first(lead));
        if (moves) tables.push_back({order, lead});
      }
    }
    return tables;
  }

  struct TableOf {
    std::size_t candidate = 0;
    Relation::Table table;
  };

  void add_columns(std::size_t candidate, const SideTensor& t, const Relation::Table& table) {
    const std::int64_t rows = rows_in(t.shape, table).value_or(0);
    if (rows < fewest_rows || t.values.empty()) return;
    const std::vector<Hash> hashes = column_hashes(t, table, rows);
    tables_.push_back({candidate, table});
    for (std::size_t j = 0; j < hashes.size(); ++j)
      columns_[rows][hashes[j]].push_back({tables_.size() - 1, static_cast<std::int64_t>(j)});
  }

  static std::vector<Hash> column_hashes(const SideTensor& t, const Relation::Table& table,
                                         std::int64_t rows) {
    const std::vector<std::int64_t> at = positions(t.shape, table);
    const std::size_t width = t.values.size() / static_cast<std::size_t>(rows);
    std::vector<Hash> hashes(width, 0);
    for (std::size_t i = 0; i < at.size(); ++i)
      hashes[i % width] = mixed(hashes[i % width], t.values[static_cast<std::size_t>(at[i])]);
    return hashes;
  }

  std::optional<Name> copied(const LogicalTensor& t) const {
    const auto tensor = side_.read(t);
    const auto hash = hash_of(tensor->values);
    if (!hash) return {};
    const auto found = whole_.find(*hash);
    if (found == whole_.end()) return {};
    std::optional<std::size_t> best;
    for (const Place& p : found->second) {
      if (tensor->values.size() == 1 && candidates_[p.candidate].name.module != t.id.module) continue;
      if (rank(p.candidate, t) >= 0 && (!best || rank(p.candidate, t) >= rank(*best, t))) best = p.candidate;
    }
    return best ? std::optional(candidates_[*best].name) : std::nullopt;
  }

  std::optional<Relation> relation(const LogicalTensor& t) {
    const auto tensor = side_.read(t);
    if (auto r = of_columns(t, *tensor)) return r;
    if (auto r = of_rows(t, *tensor)) return r;
    if (t.id.slot == "output") {
      if (auto r = of_experts(t, *tensor)) return r;
    }
    return of_terms(t, *tensor);
  }

  std::optional<Relation> of_columns(const LogicalTensor& t, const SideTensor& tensor) const {
    for (const Relation::Table& table : tables_of(tensor.shape)) {
      const std::int64_t rows = rows_in(tensor.shape, table).value_or(0);
      const auto known = columns_.find(rows);
      if (rows < fewest_rows || known == columns_.end() || tensor.values.empty()) continue;
      Relation r{.kind = Relation::Kind::columns, .table = table};
      std::vector<std::size_t> used;  // tables
      std::optional<Place> last;
      for (const Hash hash : column_hashes(tensor, table, rows)) {
        const auto place = best_column(known->second, hash, last, used, t);
        if (!place) {
          used.clear();
          break;
        }
        last = place;
        auto source = std::ranges::find(used, place->candidate);
        if (source == used.end()) source = used.insert(used.end(), place->candidate);
        r.columns.push_back({static_cast<std::size_t>(source - used.begin()), place->at});
      }
      if (used.empty() || used.size() > most_sources) continue;
      for (const std::size_t u : used) {
        r.sources.push_back(candidates_[tables_[u].candidate].name);
        r.tables.push_back(tables_[u].table);
      }
      return r;
    }
    return {};
  }

  // The column after the last one where it may be; else one of a source that is used already; else the
  // nearest.
  std::optional<Place> best_column(const Places& known, Hash hash, const std::optional<Place>& last,
                                   const std::vector<std::size_t>& used, const LogicalTensor& t) const {
    const auto found = known.find(hash);
    if (found == known.end()) return {};
    std::optional<Place> best;
    int best_rank = -1;
    for (const Place& p : found->second) {
      int r = rank(tables_[p.candidate].candidate, t);
      if (r < 0) continue;
      if (std::ranges::find(used, p.candidate) != used.end()) r += 1000;
      if (last && last->candidate == p.candidate && p.at == last->at + 1) r += 2000;
      if (r >= best_rank) {
        best = p;
        best_rank = r;
      }
    }
    return best;
  }

  std::optional<Relation> of_rows(const LogicalTensor& t, const SideTensor& tensor) {
    if (tensor.shape.size() < 2) return {};
    const auto known = rows_.find(tensor.shape.back());
    if (known == rows_.end()) return {};
    const auto width = static_cast<std::size_t>(tensor.shape.back());
    std::map<std::size_t, std::vector<std::int64_t>> taken;  // by candidate
    for (std::size_t r = 0; r < tensor.values.size() / width; ++r) {
      Hash h = 0;
      for (std::size_t j = 0; j < width; ++j) h = mixed(h, tensor.values[r * width + j]);
      const auto found = known->second.find(h);
      if (found == known->second.end()) return {};
      for (const Place& p : found->second) {
        auto& rows = taken[p.candidate];
        if (rows.size() == r) rows.push_back(p.at);
      }
    }
    const std::size_t all = tensor.values.size() / width;
    std::optional<Relation> best;
    int best_rank = -1;
    for (const auto& [candidate, rows] : taken) {
      if (rows.size() != all || rank(candidate, t) <= best_rank) continue;
      const auto tokens =
          element_count(candidates_[candidate].tensor->shape) / static_cast<std::int64_t>(width);
      // The latest first: token numbers are an index, too.
      for (std::size_t k = indices_.size(); k-- > 0;) {
        const auto choice = choice_of(*indices_[k], tokens, rows, number_in(t.id.module));
        if (!choice) continue;
        best = Relation{.kind = Relation::Kind::rows,
                        .sources = {candidates_[candidate].name, name_of(indices_[k]->id)},
                        .choice = *choice};
        best_rank = rank(candidate, t);
        break;
      }
    }
    if (best) experts_[name_of(best->sources[1])][parent(t.id.module)] = best->choice;
    return best;
  }

  // "layers.1.experts.7.fc1": 7.
  static std::int64_t number_in(const std::string& module) {
    const auto end = module.find_last_of("0123456789");
    if (end == std::string::npos) return -1;
    const auto begin = module.find_last_not_of("0123456789", end);
    return std::stoll(
        module.substr(begin == std::string::npos ? 0 : begin + 1, std::min<std::size_t>(end - begin, 9)));
  }

  // The number that is in the index of exactly these tokens. Of two with the same tokens the one that the
  // module has in its name.
  std::optional<std::int64_t> choice_of(const LogicalTensor& index, std::int64_t tokens,
                                        const std::vector<std::int64_t>& rows, std::int64_t own) const {
    if (tokens == 0 || index.shape.empty() || element_count(index.shape) % tokens != 0) return {};
    const auto values = side_.read(index)->values;
    const std::size_t k = values.size() / static_cast<std::size_t>(tokens);
    if (k == 0 || k > most_choices || rows.empty()) return {};
    std::map<double, std::vector<std::int64_t>> of_choice;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::size_t j = 0; j < k; ++j) {
        auto& list = of_choice[values[static_cast<std::size_t>(token) * k + j]];
        if (list.empty() || list.back() != token) list.push_back(token);
      }
    }
    std::optional<std::int64_t> choice;
    bool is_ambiguous = false;
    for (const auto& [c, list] : of_choice) {
      if (list != rows) continue;
      if (std::llround(c) == own) return own;
      is_ambiguous = choice.has_value();  // another micro-batch tells them apart
      choice = std::llround(c);
    }
    return is_ambiguous ? std::nullopt : choice;
  }

  // The results of experts, weighted and added up for each token.
  std::optional<Relation> of_experts(const LogicalTensor& t, const SideTensor& tensor) const {
    for (const auto& [index, modules] : experts_) {
      const LogicalTensor* choices = side_.find(at(index, t.id.step, t.id.micro_batch));
      if (choices == nullptr || tensor.shape.empty()) continue;
      Relation r{.kind = Relation::Kind::combine, .sources = {index, index}};
      for (const auto& [module, choice] : modules) {
        const auto result = std::find_if(candidates_.rbegin(), candidates_.rend(), [&](const Candidate& c) {
          return c.name.slot == "output" && is_within(c.name.module, module) && !c.tensor->shape.empty() &&
                 c.tensor->shape.back() == tensor.shape.back();
        });
        if (result == candidates_.rend()) continue;
        r.sources.push_back(result->name);
        r.choices.push_back(choice);
      }
      if (r.choices.empty()) continue;
      for (const Candidate& weights : candidates_) {
        if (element_count(weights.tensor->shape) != element_count(choices->shape)) continue;
        r.sources[1] = weights.name;
        if (holds(r, t, tensor)) return r;
      }
      r.is_weighted = false;
      if (holds(r, t, tensor)) return r;
    }
    return {};
  }

  // A loss is the sum over its tokens, perhaps masked, in all micro-batches. Values of the same module only:
  // few numbers prove little.
  void find_total(const Name& loss, const std::vector<const LogicalTensor*>& all) {
    std::vector<Name> values;
    for (const LogicalTensor& t : side_.tensors()) {
      if (t.id.phase != Phase::forward || t.id.module != loss.module || t.id.micro_batch < 0 ||
          !is_float(t.dtype) || (t.id.slot != "input" && t.id.slot != "output"))
        continue;
      if (std::ranges::find(values, name_of(t.id)) == values.end()) values.push_back(name_of(t.id));
    }
    const auto holds_everywhere = [&](const Relation& r) {
      double bits = 0;
      for (const LogicalTensor* t : all) {
        const auto tensor = side_.read(*t);
        const auto made = evaluate(r, t->shape, reader(*t));
        if (!made) return false;
        const double error = made->error[0] + unit_roundoff(tensor->dtype) * std::abs(made->values[0]);
        if (!(std::abs(made->values[0] - tensor->values[0]) <= error) || error == 0) return false;
        bits += std::log2(std::abs(made->values[0]) / error);
      }
      return bits > proof_bits;
    };
    for (std::size_t a = 0; a < std::min(most_terms, values.size()); ++a) {
      Relation r{.kind = Relation::Kind::total, .sources = {values[a]}};
      for (std::size_t b = a; b < std::min(most_terms, values.size()); ++b) {
        if (b > a) r.sources = {values[a], values[b]};
        bool holds = false;
        (void)trouble_in([&] { holds = holds_everywhere(r); });
        if (!holds) continue;
        found_.made[loss] = r;
        return;
      }
    }
  }

  ReadSource reader(const LogicalTensor& t) const {
    return [this, &t](const Name& name) -> std::shared_ptr<const SideTensor> {
      const LogicalTensor* source = side_.find(at(record_of(name), t.id.step, t.id.micro_batch));
      return source == nullptr ? nullptr : side_.read(*source);
    };
  }

  // Experts that got no token where the relation was found.
  void complete(const Name& target, Relation& r) {
    const auto& modules = experts_[r.sources.front()];
    const Name result = r.sources[2];
    const auto own =
        std::ranges::find_if(modules, [&](const auto& m) { return is_within(result.module, m.first); });
    if (own == modules.end()) return;
    for (const auto& [module, choice] : modules) {
      if (std::ranges::find(r.choices, choice) != r.choices.end()) continue;
      Name name = result;
      name.module = module + result.module.substr(own->first.size());
      r.sources.push_back(name);
      r.choices.push_back(choice);
      found_.uses[name].push_back({target, false, r.sources.size() - 1});
    }
  }

  bool holds(const Relation& r, const LogicalTensor& t, const SideTensor& tensor) const {
    const auto made = evaluate(r, tensor.shape, reader(t));
    return made && explains(*made, tensor);
  }

  // All elements within the roundings, and so near that it is no accident.
  static bool explains(const Expected& made, const SideTensor& tensor) {
    const double u = unit_roundoff(tensor.dtype);
    double bits = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const double allowed =
          made.of(i) + u * (std::abs(made.values[i]) + made.of(i)) + min_subnormal(tensor.dtype);
      if (!(std::abs(made.values[i] - tensor.values[i]) <= allowed)) return false;
      if (made.size(i) > allowed) bits += std::log2(made.size(i) / allowed);
    }
    return proves(bits, 0);
  }

  // Of two or three values of its size, each of which counts.
  std::optional<Relation> of_terms(const LogicalTensor& t, const SideTensor& tensor) const {
    if (tensor.values.size() < 8) return {};
    const auto fits = [&](const LogicalTensor& c) {
      return element_count(c.shape) == element_count(t.shape);
    };
    std::vector<std::size_t> order = near(t, fits);
    if (order.size() > most_terms) order.resize(most_terms);
    std::vector<std::shared_ptr<const SideTensor>> values;
    for (const std::size_t c : order) values.push_back(side_.read(*candidates_[c].tensor));
    for (std::size_t a = 0; a < order.size(); ++a) {
      for (std::size_t b = a + 1; b < order.size(); ++b) {
        if (add_up(tensor, {values[a].get(), values[b].get()})) return sum({order[a], order[b]});
      }
    }
    for (std::size_t a = 0; a < order.size(); ++a) {
      for (std::size_t b = a + 1; b < order.size(); ++b) {
        for (std::size_t c = b + 1; c < order.size(); ++c) {
          if (add_up(tensor, {values[a].get(), values[b].get(), values[c].get()}))
            return sum({order[a], order[b], order[c]});
        }
      }
    }
    return {};
  }

  Relation sum(const std::vector<std::size_t>& terms) const {
    Relation r{.kind = Relation::Kind::sum};
    for (const std::size_t c : terms) r.sources.push_back(candidates_[c].name);
    return r;
  }

  // Each term must be seen in the sum: what it moves beyond the roundings proves that it is there.
  static bool add_up(const SideTensor& total, const std::vector<const SideTensor*>& terms) {
    std::vector<double> bits(terms.size(), 0);
    double u = unit_roundoff(total.dtype);
    for (const SideTensor* t : terms) u = std::max(u, unit_roundoff(t->dtype));
    for (std::size_t i = 0; i < total.values.size(); ++i) {
      double sum = 0, magnitude = 0;
      for (const SideTensor* t : terms) {
        sum += t->values[i];
        magnitude += t->magnitude.empty() ? std::abs(t->values[i]) : t->addends * t->magnitude[i];
      }
      const double allowed = 2 * u * magnitude + min_subnormal(total.dtype);
      if (!(std::abs(sum - total.values[i]) <= allowed)) return false;
      for (std::size_t k = 0; k < terms.size(); ++k) {
        const double size = std::abs(terms[k]->values[i]);
        if (size > allowed) bits[k] += std::log2(size / allowed);
      }
    }
    // Chosen among so many values: docs/design.md of evidence.
    const double parameters = std::log2(static_cast<double>(most_terms)) * static_cast<double>(terms.size());
    return std::ranges::all_of(bits, [&](double b) { return proves(b, parameters); });
  }

  // A column of fewer elements says too little about where it comes from.
  static constexpr std::int64_t fewest_rows = 4;
  static constexpr int most_tries = 3;
  static constexpr std::size_t most_sources = 64, most_choices = 64;
  static constexpr std::size_t most_terms = 12;  // the nearest: 12 choose 3 sums of three

  const SideValues& side_;
  const RecordedCalls& calls_;
  const Makes& makes_;
  std::map<std::int64_t, std::vector<const LogicalTensor*>> parameters_;  // by step
  std::set<std::string> modules_, with_outputs_;
  std::set<DType> dtypes_;
  std::map<Name, std::vector<const LogicalTensor*>> losses_;  // numbers, in all micro-batches
  std::map<Name, int> tries_;
  Relations found_;
  std::map<Name, std::map<std::string, std::int64_t>> experts_;  // by index: the choice of each module

  std::vector<Candidate> candidates_;
  std::vector<const LogicalTensor*> indices_;
  std::vector<TableOf> tables_;
  Places whole_;
  std::map<std::int64_t, Places> columns_, rows_;  // by the number of rows, by the width
};

}  // namespace

Relations find_relations(const SideValues& side, const RecordedCalls& calls, const Makes& makes) {
  return Search(side, calls, makes).take();
}

}  // namespace assay
