#include <fmt/format.h>

#include <cstdio>

#include "assay/compare/result/printable.h"
#include "conversion.h"
#include "shared_options.h"
#include "terminal.h"
#include "verb.h"

namespace assay {
namespace {

struct ConvertVerb : Conversion {};

void declare(ConvertVerb& verb, Options& options) {
  options.option("in", verb.input, "file or folder").required().holds("IN");
  options.option("out", verb.output, "what to make: x.safetensors, x.npy, x.h5, or else a folder")
      .required()
      .holds("OUT");
  options
      .option("--to", verb.to,
              "assay-dump, safetensors, npy (a folder), hdf5 or sketch; default: by OUT's name")
      .one_of({written_formats.begin(), written_formats.end()})
      .holds("F");
  add_dtype_hint(options, verb.dtype_hint);
  add_raw(options, verb.raw);
  add_rules(options, verb.rules);
}

int run(const ConvertVerb& verb, const Options&) {
  const Converted done = convert(verb);
  for (const std::string& note : done.notes) fmt::print("note: {}\n", printable(note));
  for (const std::string& what : done.left_out) fmt::print("left out: {}\n", printable(what));
  fmt::print("wrote {} tensors of {} to {}\n", grouped(static_cast<std::int64_t>(done.tensors)),
             printable(verb.input), printable(verb.output));
  for (const std::string& what : done.unreadable)
    fmt::print(stderr, "assay: not converted: {}\n", printable(what));
  return done.unreadable.empty() ? 0 : 2;
}

}  // namespace

namespace verbs {
extern constexpr Verb convert = {
    "convert", "rewrite any readable dump as assay-dump, safetensors, npy, HDF5 or sketches",
    "assay convert run run.safetensors", declared<ConvertVerb>};
}

}  // namespace assay
