#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/relation.h"

namespace assay {

/// Whether a module lies inside another; all do inside "".
bool is_within(std::string_view module, std::string_view scope);

/// A value of one step and micro-batch that later ones may be made of.
struct EarlierValue {
  Name name;
  const LogicalTensor* tensor = nullptr;
  std::string scope;      ///< the module in which it is known; "": everywhere
  bool is_inner = false;  ///< the input of the module `scope`: known nowhere else
  /// Of what it contains (EarlierValues::hash_of).
  std::optional<std::uint64_t> hash = {};
};

/// The values before a tensor, found by what they contain.
class EarlierValues {
 public:
  using Hash = std::uint64_t;
  EarlierValues(const SideValues& side, const RecordedCalls& calls) : side_(side), calls_(calls) {}
  /// Of what a tensor contains. Nothing for contents that do not show which tensor it is.
  static std::optional<Hash> hash_of(const std::vector<double>& values);
  static bool has_two_values(const std::vector<double>&);
  void clear();
  /// Values may go on in one of these, by a cast.
  void expect(DType dtype) { dtypes_.insert(dtype); }
  void add(const Name& name, const LogicalTensor& t, std::string scope, bool is_inner);
  /// One that no operator takes: it may be among the rows that a value is put together of.
  void add_parameter(const Name& name, const LogicalTensor& t);

  const EarlierValue& operator[](std::size_t i) const { return candidates_[i]; }
  const std::vector<EarlierValue>& all() const { return candidates_; }
  /// -1: it is not known there. The higher, the nearer.
  int rank(std::size_t candidate, const LogicalTensor& target) const;
  /// What values have in common that come into question for the same argument.
  struct Kind {
    Shape shape;
    std::string arg;
    std::string result_of;  ///< what the operator that makes it calls it; "": not known
    auto operator<=>(const Kind&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };
  using Takes = std::function<bool(const Kind&)>;
  /// Goes through those that are known there, in the order in which they come into question, until `f`
  /// returns false.
  void for_each_near(const LogicalTensor&, const Takes&, const std::function<bool(std::size_t)>& f) const;
  bool is_any_near(const LogicalTensor&, const Takes&) const;
  /// As an output.
  std::optional<std::size_t> find(const LogicalTensor&) const;
  const Kind& kind_of(std::size_t candidate) const { return *kinds_[candidate]; }

  /// The value with all its elements, under any shape.
  std::optional<Name> copied(const LogicalTensor&) const;
  /// Whether a tensor of one number is that result, wherever it was recorded.
  /// @param tried  so many results come into question
  bool is_the_number(const LogicalTensor&, const Name& result, std::size_t tried) const;
  /// The candidate's tensor, and those known with the same elements.
  std::vector<const LogicalTensor*> same_as(std::size_t candidate) const;
  /// A relation of columns, if each of its columns is one of a value.
  std::optional<Relation> of_columns(const LogicalTensor&, const SideTensor&) const;
  /// The same, if several of its rows belong to one token: [tokens heads, channels], and their columns are.
  std::optional<Relation> of_columns_of_heads(const LogicalTensor&, const SideTensor&) const;
  /// The same, if each of its rows along the last dimension is one of a value, or of a parameter: a slice or
  /// a join along another dimension. Which rows these are may depend on the data: experts' come first.
  std::optional<Relation> of_joined_rows(const LogicalTensor&, const SideTensor&) const;
  /// The same where no loops count the rows: data decided which of one value's they are, and in which order.
  std::optional<Relation> of_chosen_rows(const LogicalTensor&, const SideTensor&) const;
  /// Values that have all of its rows (along the last dimension), and which rows these are.
  std::map<std::size_t, std::vector<std::int64_t>> with_rows(const SideTensor&) const;

 private:
  struct Place {
    std::size_t candidate = 0;  ///< of a column: its table
    std::int64_t at = 0;
  };
  using Places = std::unordered_map<Hash, std::vector<Place>>;
  struct TableOf {
    std::size_t candidate = 0;
    Relation::Table table;
    bool is_of_rows = false;  ///< comes into question for joined rows only
  };
  static std::vector<std::string_view> scopes_around(const LogicalTensor&);
  static Hash mixed(Hash h, double v);
  static Hash row_hash(const SideTensor& t, std::int64_t row);
  // or_transposed: with its last two dimensions exchanged, too: keys, as scores are made with them.
  static std::vector<Relation::Table> tables_of(const Shape& shape, bool or_transposed);
  static std::vector<Relation::Table> without_twins(const std::vector<Relation::Table>&, const Shape&);
  // Each column is a row along the last dimension: what slices and joins along the others.
  static Relation::Table table_of_rows(const Shape& shape);
  static std::vector<Hash> column_hashes(const SideTensor& t, const Relation::Table& table,
                                         std::int64_t rows);
  void add_columns(std::size_t candidate, const SideTensor& t, const Relation::Table& table,
                   bool is_of_rows = false);
  std::optional<Relation> of_columns(const LogicalTensor&, const SideTensor&, const Relation::Table&,
                                     bool are_rows) const;
  std::optional<Place> best_column(const Places& known, Hash hash, const std::optional<Place>& last,
                                   const std::vector<std::size_t>& used,
                                   const std::set<std::pair<std::size_t, std::int64_t>>& taken,
                                   const LogicalTensor& t, bool are_rows, std::int64_t by_loops) const;
  static constexpr std::int64_t no_place = -1;
  /// @param lead  of the target: its dimensions but the last
  static std::vector<std::int64_t> places_by_loops(const Places&, const std::vector<Hash>&,
                                                   const Shape& lead);

  /// A column of fewer elements says too little about where it comes from.
  static constexpr std::int64_t fewest_rows = 4;
  static constexpr std::size_t most_sources = 64;

  const SideValues& side_;
  const RecordedCalls& calls_;
  std::set<DType> dtypes_;
  std::vector<EarlierValue> candidates_;
  using Kinds = std::map<Kind, std::vector<std::size_t>>;
  std::map<std::string, Kinds, std::less<>> by_scope_;
  std::vector<const Kind*> kinds_;  ///< of the candidates
  std::map<const LogicalTensor*, std::size_t> outputs_;
  std::vector<TableOf> tables_;
  Places whole_;
  std::map<std::int64_t, Places> columns_, rows_;  ///< by the number of rows, by the width
};

}  // namespace assay
