#include "dumps.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/io/shrunk.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "conversion.h"
#include "shared_options.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

// A dump with its tensors as they are on one device.
class OpenDump {
 public:
  OpenDump(const std::string& path, const std::string& rules, const std::string& dtype_hint,
           const std::string& raw)
      : dump_(open_dump(path, open_options(dtype_hint, raw))) {
    const Rules given = load_rules(rules);
    apply_layout(*dump_, given.layout());
    for (const LogicalTensor& t : logical_tensors(*dump_))
      if (!given.ignored(paths_of(t.id))) tensors_.push_back(t);
  }

  const Dump& dump() const { return *dump_; }

  nb::list tensors() const {
    nb::list all;
    for (const LogicalTensor& t : tensors_) {
      const Record& r = dump_->records[t.records.front()];
      nb::dict d;
      d["name"] = to_string(t.id);
      d["dtype"] = std::string(name(t.dtype));
      d["shape"] = nb::tuple(nb::cast(t.shape));
      d["step"] = t.id.step;
      d["micro_batch"] = t.id.micro_batch;
      d["phase"] = std::string(name(t.id.phase));
      d["module"] = t.id.module;
      d["slot"] = t.id.slot;
      d["arg"] = t.id.arg;
      d["call"] = t.id.call;
      d["op"] = r.op;
      d["attributes"] = t.attributes;
      d["parts"] = t.records.size();
      d["has_values"] = r.has_bits;
      all.append(d);
    }
    return all;
  }

  Tensor read(std::size_t index) const {
    const nb::gil_scoped_release release;
    const LogicalTensor& tensor = tensors_.at(index);
    if (!dump_->records[tensor.records.front()].has_bits)
      throw Error("{}: only its statistics were recorded; record its values", to_string(tensor.id));
    // A copy: the file's own memory is not to be written, and may go.
    const Tensor mapped = read_whole(*dump_, tensor);
    Tensor own(mapped.dtype(), mapped.shape(), {mapped.bytes().begin(), mapped.bytes().end()});
    check_not_shrunk(dump_->path.string());
    return own;
  }

 private:
  std::unique_ptr<Dump> dump_;
  std::vector<LogicalTensor> tensors_;
};

Converted convert_dump(const std::string& input, const std::string& output, const std::string& to,
                       const std::string& rules, const std::string& dtype_hint, const std::string& raw) {
  const nb::gil_scoped_release release;
  Conversion c;
  c.input = input;
  c.output = output;
  c.to = to;
  c.rules = rules;
  c.dtype_hint = dtype_hint;
  c.raw = raw;
  return convert(c);
}

nb::object tolerance(const std::string& dtype, std::optional<std::int64_t> count, const std::string& policy) {
  const Policy found = load_policy(policy);
  const auto type = parse_dtype(dtype);
  if (!type) throw Error("{}: is no dtype; expected a torch name such as bfloat16", dtype);
  if (count && *count < 0) throw Error("count {}: expected a number >= 0", *count);
  const auto rows = found.rows_of(*type);
  if (rows.empty())
    throw Error("{} has no row for {}; expected another policy or dtype", found.name, name(*type));
  const Row* row = count ? found.find(*type, *count) : &rows.front();
  return nb::make_tuple(row->atol, row->rtol, row->count, row->source);
}

}  // namespace

void bind_dumps(nb::module_& m) {
  nb::class_<OpenDump>(m, "OpenDump")
      .def(nb::init<const std::string&, const std::string&, const std::string&, const std::string&>(),
           nb::arg("path"), nb::arg("rules"), nb::arg("dtype_hint"), nb::arg("raw"),
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("format", [](const OpenDump& d) { return d.dump().format; })
      .def_prop_ro("world_size", [](const OpenDump& d) { return d.dump().world_size; })
      .def_prop_ro("mesh",
                   [](const OpenDump& d) {
                     nb::dict mesh;
                     const Mesh& m = d.dump().mesh;
                     for (std::size_t i = 0; i < m.dims.size(); ++i) mesh[nb::cast(m.dims[i])] = m.shape[i];
                     return mesh;
                   })
      .def_prop_ro("notes", [](const OpenDump& d) { return d.dump().notes; })
      .def_prop_ro("left_out", [](const OpenDump& d) { return d.dump().left_out; })
      .def_prop_ro("unreadable", [](const OpenDump& d) { return d.dump().unreadable; })
      .def("tensors", &OpenDump::tensors)
      .def("read", &OpenDump::read);
  nb::class_<Converted>(m, "Converted")
      .def_ro("tensors", &Converted::tensors)
      .def_ro("notes", &Converted::notes)
      .def_ro("left_out", &Converted::left_out)
      .def_ro("unreadable", &Converted::unreadable);
  m.def("convert", &convert_dump);
  m.def("tolerance", &tolerance);
}

}  // namespace assay::python
