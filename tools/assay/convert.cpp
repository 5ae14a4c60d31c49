#include <fmt/format.h>

#include <cstdio>

#include "assay/dumps/assay_dump_writer.h"
#include "assay/dumps/dump.h"
#include "output.h"
#include "terminal.h"
#include "verbs.h"

namespace assay {

int run(const ConvertVerb& verb) {
  const auto input = open_dump(verb.input, {parse_dtype_option("--dtype-hint", verb.dtype_hint)});
  AssayDumpWriter writer(verb.output, {input->world_size, input->mesh, input->producer});
  {
    Progress progress("converting");
    for (std::size_t i = 0; i < input->records.size(); ++i) {
      progress.show(i, input->records.size(), input->records[i].id.module);
      writer.add(input->records[i], input->read(i));
    }
  }
  writer.finish();
  for (const std::string& note : input->notes) fmt::print("note: {}\n", printable(note));
  for (const std::string& what : input->left_out) fmt::print("left out: {}\n", printable(what));
  fmt::print("wrote {} tensors of {} to {}\n", grouped(static_cast<std::int64_t>(input->records.size())),
             printable(input->path.string()), printable(verb.output));
  return 0;
}

}  // namespace assay
