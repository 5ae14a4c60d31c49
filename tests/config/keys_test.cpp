// The table of keys: names once each, defaults that can be read, and each reading with what it needs.
#include "assay/config/key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace assay::config::keys_test {
namespace {

TEST(Keys, EachHasANameOfItsOwnAndSaysWhatItDoes) {
  std::set<std::string_view> names;
  for (const Key& key : keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.does.empty()) << key.name;
    EXPECT_FALSE(key.names.empty()) << key.name;
    EXPECT_FALSE(key.does.ends_with('.')) << key.name;
  }
  EXPECT_GT(names.size(), 100U);
}

TEST(Keys, DefaultsThatReferToAKeyHaveOne) {
  for (const Key& key : keys()) {
    for (const Name& name : key.names) {
      if (!name.otherwise.starts_with('=')) continue;
      const auto other = std::ranges::find(keys(), name.otherwise.substr(1), &Key::name);
      EXPECT_NE(other, keys().end()) << key.name;
    }
  }
}

TEST(Keys, AFrameworkHasOneDefaultOfAKey) {
  for (const Key& key : keys()) {
    std::map<Framework, int> defaults;
    for (const Name& name : key.names) defaults[name.framework] += name.otherwise.empty() ? 0 : 1;
    for (const auto& [framework, count] : defaults)
      EXPECT_LE(count, 1) << key.name << " in " << row_of(framework).name;
  }
}

TEST(Keys, ReadingsHaveTheirArguments) {
  for (const Key& key : keys()) {
    for (const Name& name : key.names) {
      using enum Reading::Kind;
      const bool needs = name.reading.kind == map || name.reading.kind == implied ||
                         name.reading.kind == word || name.reading.kind == times || name.reading.kind == over;
      EXPECT_EQ(needs, !name.reading.argument.empty()) << key.name << " " << name.path;
    }
  }
}

}  // namespace
}  // namespace assay::config::keys_test
