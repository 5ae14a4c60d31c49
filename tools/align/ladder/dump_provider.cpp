#include <fmt/format.h>

#include "assay/align/ladder/provider.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// Files that somebody recorded: nothing runs.
class DumpProvider : public Provider {
 public:
  explicit DumpProvider(std::string path) : path_(std::move(path)) {}

  RunResult run(const RunOrder& order) override {
    RunResult result;
    result.dump = filled_in(path_, order);
    if (!std::filesystem::exists(result.dump)) {
      result.state = RunResult::State::no_dump;
      result.problem = fmt::format("there is no {}", result.dump.string());
    }
    return result;
  }

  std::string objection(const Rung& rung) const override {
    const std::filesystem::path path = filled_in(path_, {rung, {}});
    return std::filesystem::exists(path)
               ? ""
               : fmt::format("no dump was recorded of it: there is no {}", path.string());
  }
  std::string content(const Rung&) const override { return ""; }
  bool depends_on_name() const override { return path_.find("{stage}") != std::string::npos; }
  bool makes_dumps() const override { return false; }
  bool runs_beside() const override { return true; }
  std::string text() const override { return path_; }

 private:
  const std::string path_;
};

}  // namespace

std::unique_ptr<Provider> dump_provider(std::string path) {
  return std::make_unique<DumpProvider>(std::move(path));
}

}  // namespace assay::align
