#include <string>
#include <vector>

#include "assay/config/compare.h"
#include "output.h"
#include "verb.h"

namespace assay {
namespace {

struct ConfigVerb {
  std::string a, b;
  std::vector<std::string> accepted;
  bool json = false, all = false;
};

void declare(ConfigVerb& verb, Options& options) {
  options.option("a", verb.a, "a configuration: a file, or a folder of them").holds("A").required();
  options.option("b", verb.b, "another, in the words of the same framework or of another one")
      .holds("B")
      .required();
  options
      .option("--accept", verb.accepted,
              "a key that may differ, as the report calls it; * for any characters")
      .holds("KEY");
  options.flag("--all", verb.all, "all that one side alone states");
  options.flag("--json", verb.json, "as JSON");
}

int run(const ConfigVerb& verb, const Options&) {
  const config::Comparison c = compare(config::open_side(verb.a), config::open_side(verb.b), verb.accepted);
  write_text("-", verb.json ? to_json(c) : to_text(c, verb.all));
  return c.differs() ? 1 : 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb config = {"config", "compare two configurations of training before anything runs",
                                "assay config train.sh config.json", declared<ConfigVerb>};
}

}  // namespace assay
