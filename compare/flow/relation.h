#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/flow/side_values.h"

namespace assay {

/// The record that holds a value: one with the slot "value" was recorded as the input of a module only.
Name record_of(const Name& value);
/// The tensor of that name in a step and micro-batch.
Identity at(const Name&, std::int64_t step, std::int64_t micro_batch);

/// How a value follows from values before it, by moving or adding elements. What an operator
/// computes is a Call.
struct Relation {
  enum class Kind : std::uint8_t {
    copy,     ///< the same elements under any shape, perhaps in another dtype
    columns,  ///< each column (all that belongs to one place behind the token dimensions) is one of a source
    rows,     ///< the rows of one source that an index assigns to `choice`: {source, index}; of every_choice
              ///< those of one choice behind those of the one before, of each_number those that it numbers
    chosen,   ///< rows of a source that a choice took which was not recorded: {source, the target itself}
    scattered,  ///< for each row the sum of those that an index gives its number: {source, index}
    joined,     ///< the rows of all sources, one behind the other
    stretch,  ///< the rows of a source behind those that other pieces of it have: {source, pieces before ..}
    sum,      ///< of up to three, each with its factor; one may be repeated, as positions for each sequence
    product,  ///< element by element, of a part of each of two sources
    total,    ///< one number: the sum of all elements, or of the products with those of a second source
    counts,   ///< how often each number is in an index: tokens of each expert
    combine,  ///< sum over k of weight[t, k] times the row of token t from expert index[t, k]: {index,
              ///< weights, results of the experts ..}
  };
  Kind kind = Kind::copy;
  std::vector<Name> sources = {};
  std::vector<double> factors = {};  ///< of the sources of a sum; empty: 1

  static constexpr std::size_t zeros = static_cast<std::size_t>(-1);
  struct Column {
    std::size_t source = 0;  ///< among sources; zeros: what is beside a slice that was moved
    std::int64_t at = 0;
  };
  std::vector<Column> columns = {};
  /// How a tensor is a table of tokens and columns: its dimensions in another order, the first `lead` of them
  /// count tokens.
  struct Table {
    Shape order;
    std::size_t lead = 0;
  };
  Table table = {};  ///< of the target
  std::int64_t width =
      0;  ///< of columns: the target's rows are cut, or put together, to so many (pieces_of); 0: neither
  std::vector<Table> tables = {};  ///< of each source

  /// The dimensions of a source in the order of the target's, and where along one of these it begins.
  struct Part {
    Shape order;
    std::size_t along = 0;
    std::int64_t from = 0;
  };
  std::vector<Part> parts = {};  ///< of the sources of a product

  static constexpr std::int64_t every_choice = -1, each_number = -2;
  std::int64_t choice = 0;                 ///< of rows
  std::vector<std::int64_t> choices = {};  ///< of each expert of combine
  bool is_weighted = true;                 ///< combine: false, the experts weighted their results themselves

  bool has_whole_rows() const {
    return kind == Kind::scattered || kind == Kind::joined || kind == Kind::stretch;
  }
  bool has_index() const {
    return kind == Kind::rows || kind == Kind::chosen || kind == Kind::scattered || kind == Kind::combine;
  }
  double factor(std::size_t source) const { return factors.empty() ? 1 : factors[source]; }
};

/// Flat positions of a tensor's elements, row by row of the table.
std::vector<std::int64_t> positions(const Shape&, const Relation::Table&);
/// The number of its rows; nothing if the tensor has other dimensions.
std::optional<std::int64_t> rows_in(const Shape&, const Relation::Table&);

/// What is made of values, before it is stored.
struct DerivedValue {
  std::vector<double> values;
  std::vector<double> magnitude;  ///< sum of the magnitudes of all addends; empty: of the values
  std::vector<double> error;      ///< what roundings in between may make; empty: nothing
  double roundoff = 0;            ///< of the coarsest dtype among its sources
  double terms = 1;               ///< that were added up
  bool is_exact = false;          ///< elements were moved, not computed
  bool is_added_up = false;       ///< of recorded values, by additions alone: roundings are independent
  double of(std::size_t i) const { return error.empty() ? 0 : error[i]; }
  double size(std::size_t i) const;
};

/// Reads a source; nothing if it is not there.
using ReadSource = std::function<std::shared_ptr<const SideTensor>(const Name&)>;

/// Returns the sum, added up in any order with a rounding to the coarsest dtype behind each addition.
std::optional<DerivedValue> sum_of(std::vector<DerivedValue> terms);
/// One behind the other until the size is reached; nothing for a size that it does not divide.
std::optional<DerivedValue> repeated(DerivedValue, std::size_t size);
/// The adjoint of that: the sum over all repetitions, in any order.
std::optional<DerivedValue> sum_of_repeated(const DerivedValue&, std::size_t size);
/// A product with a number, which is stored.
DerivedValue times(DerivedValue, double factor);
/// A source as it is. Addends of ranks were added up, with a rounding each.
DerivedValue as_expected(const SideTensor&);

/// Returns what a sum adds up; nothing if a source is missing or does not fit.
/// @param size  of the target
std::optional<std::vector<DerivedValue>> terms_of(const Relation& sum, std::size_t size, const ReadSource&);
/// Returns what the relation makes; nothing if a source is missing or does not fit.
/// @param shape  of the target
std::optional<DerivedValue> evaluate(const Relation&, const Shape& shape, const ReadSource&);

/// Returns what the gradient of the target gives to that source. Nothing if it has none (an index), or
/// something is missing.
/// @param gradient  of the target, whose shape is `target`
/// @param shape     of the source
std::optional<DerivedValue> adjoint(const Relation&, std::size_t source, const DerivedValue& gradient,
                                    const Shape& target, const Shape& shape, const ReadSource&);

/// Reads the sources of a tensor's relation on its side.
ReadSource reader_at(const SideValues&, const Identity& of);
/// Whether the relation makes a tensor: all elements within the roundings, and so near that it is no
/// accident.
bool holds(const SideValues&, const Relation&, const LogicalTensor&);
/// "a.b" of "a.b.c"; "" of a module that is in none.
std::string module_around(const std::string& module);

/// "the sum of a and b", with names for people in that step and micro-batch.
std::string describe(const Relation&, std::int64_t step, std::int64_t micro_batch);

}  // namespace assay
