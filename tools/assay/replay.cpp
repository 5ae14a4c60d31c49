#include <fmt/format.h>

#include "assay/align/describe.h"
#include "assay/golden/error.h"
#include "verbs.h"

namespace assay {

int run(const ReplayVerb& verb) {
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype) throw Error("--dtype {}: is no dtype; expected a torch name such as bfloat16", verb.dtype);
  const Description d{{verb.sequences, verb.length}, load_policy(verb.tolerance), *dtype};
  fmt::print("{}", describe(load_model(verb.model), d));
  return 0;
}

}  // namespace assay
