#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "assay/dumps/assay_dump_writer.h"
#include "assay/dumps/dump.h"
#include "assay/golden/error.h"
#include "output.h"
#include "terminal.h"
#include "verbs.h"

namespace assay {

int run(const ConvertVerb& verb) {
  const auto input = open_dump(verb.input, {parse_dtype_option("--dtype-hint", verb.dtype_hint)});
  const auto with_bits = std::ranges::count_if(input->records, &Record::has_bits);
  const auto without_bits = static_cast<std::int64_t>(input->records.size()) - with_bits;
  if (with_bits == 0 && without_bits != 0) {
    throw Error(
        "{}: none of its {} tensors has values, only statistics or checksums: there is nothing to convert",
        verb.input, without_bits);
  }
  AssayDumpWriter writer(verb.output, {input->world_size, input->mesh, input->producer});
  {
    Progress progress("converting");
    for (std::size_t i = 0; i < input->records.size(); ++i) {
      progress.show(i, input->records.size(), input->records[i].id.module);
      if (input->records[i].has_bits) writer.add(input->records[i], input->read(i));
    }
  }
  writer.finish();
  for (const std::string& note : input->notes) fmt::print("note: {}\n", printable(note));
  for (const std::string& what : input->left_out) fmt::print("left out: {}\n", printable(what));
  if (without_bits != 0)
    fmt::print("left out: {} tensors of which only statistics or checksums were recorded\n",
               grouped(without_bits));
  fmt::print("wrote {} tensors of {} to {}\n", grouped(with_bits), printable(input->path.string()),
             printable(verb.output));
  return 0;
}

}  // namespace assay
