#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/relations.h"

namespace assay {

/// Relations that index data decide: the rows of a value that go to an expert, and the sum of the experts'
/// results for each token.
class ExpertRelations {
 public:
  ExpertRelations(const SideValues& side, const EarlierValues& candidates)
      : side_(side), candidates_(candidates) {}
  /// Of the present step and micro-batch.
  void take_indices(std::vector<const LogicalTensor*> indices) { indices_ = std::move(indices); }
  void add_index(const LogicalTensor& index) { indices_.push_back(&index); }

  /// The latest index of these numbers; nullptr if there is none, or if so few of them may agree by accident.
  const LogicalTensor* index_as(const LogicalTensor&) const;
  /// The numbers of the latest index, counted.
  std::optional<Relation> counts(const LogicalTensor&) const;
  std::optional<Relation> of_rows(const LogicalTensor&, const SideTensor&);
  std::optional<Relation> of_experts(const LogicalTensor&, const SideTensor&) const;
  /// A piece of an earlier value, behind those that the calls before were given of it.
  std::optional<Relation> of_stretch(const LogicalTensor&, const SideTensor&) const;
  /// What several calls within the module made, one behind the other.
  std::optional<Relation> of_joined(const LogicalTensor&, const SideTensor&) const;
  /// Rows of an earlier value that an index adds up.
  std::optional<Relation> of_scattered(const LogicalTensor&, const SideTensor&) const;
  /// Adds experts that got no token where the relation was found.
  void complete(const Name& target, Relation&, std::map<Name, std::vector<Use>>& uses) const;

 private:
  bool numbers(const LogicalTensor& index, const SideTensor& source,
               const std::vector<std::int64_t>& rows) const;
  static std::int64_t number_in(const std::string& module);
  std::optional<std::int64_t> choice_of(const LogicalTensor& index, std::int64_t tokens,
                                        const std::vector<std::int64_t>& rows, std::int64_t own) const;
  static constexpr std::size_t most_choices = 64;
  static constexpr std::size_t most_values = 12;  // the nearest that may have been added up, as of a sum

  const SideValues& side_;
  const EarlierValues& candidates_;
  std::vector<const LogicalTensor*> indices_;
  std::map<Name, std::map<std::string, std::int64_t>> experts_;  ///< by index: the choice of each module
};

}  // namespace assay
