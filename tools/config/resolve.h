#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/config/key.h"
#include "assay/config/side.h"

namespace assay::config {

/// What a side says of a key.
struct Resolved {
  struct Place {
    Value value;
    std::string place;
    Framework framework = Framework::huggingface;
  };
  std::vector<Place> stated;            ///< one for each file that states it
  std::optional<Place> otherwise = {};  ///< the default of who runs it, where nobody states it

  bool is_stated() const { return !stated.empty(); }
  const Place* best() const { return is_stated() ? &stated.front() : otherwise ? &*otherwise : nullptr; }
  /// Its files do not agree.
  bool is_torn() const;
};

/// Reads the keys of one side; knows afterwards which entries no key has asked for.
class Resolver {
 public:
  explicit Resolver(const Side& side) : side_(side) {}

  Resolved operator()(const Key&);
  bool has(Framework) const;
  bool is_used(const Source& source, const std::string& path) const {
    return used_.contains({&source, path});
  }

 private:
  std::optional<Value> read(const Source&, const Name&);
  bool is_met(const Source&, std::string_view needs);
  std::optional<Resolved::Place> default_of(const Key&);
  const Entry* find(const Source&, std::string_view path);

  const Side& side_;
  std::set<std::pair<const Source*, std::string>> used_;
};

}  // namespace assay::config
