// assay._core: the C++ libraries as Python sees them. What is kind to users stands in the package's .py
// files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "assay/compare/calls/case_writer.h"
#include "assay/compare/calls/prove.h"
#include "assay/compare/calls/stated_accumulator.h"
#include "assay/compare/check.h"
#include "assay/compare/pairs/judge.h"
#include "assay/compare/result/version.h"
#include "assay/compare/score.h"
#include "assay/golden/bound.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/generate.h"
#include "assay/operators/engine/golden.h"
#include "computing.h"
#include "declarations.h"
#include "diff.h"
#include "dumps.h"
#include "orders.h"
#include "program.h"
#include "recording.h"
#include "reports.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

std::vector<NamedTensor> tensors_of(const Named& named) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back({name, tensor});
  return tensors;
}

Named named(std::vector<NamedTensor> tensors) {
  Named all;
  for (NamedTensor& t : tensors) all.emplace_back(std::move(t.name), std::move(t.tensor));
  return all;
}

DType dtype_named(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (!dtype) throw Error("'{}' is no dtype; expected a torch name such as bfloat16", text);
  return *dtype;
}

ErrorModel device_of(const std::string& accumulator, const std::optional<std::string>& intermediate,
                     const std::string& arithmetic) {
  const DType d = dtype_named(arithmetic);
  ErrorModel device{unit_roundoff(d), min_subnormal(d)};
  if (!accumulator.empty()) device.accumulator = parse_accumulator(stated_accumulator(accumulator));
  if (intermediate) device.stored_roundoff = unit_roundoff(dtype_named(*intermediate));
  return device;
}

Named golden(const std::string& op, const Named& inputs, nb::dict attributes, const std::string& level) {
  const Attributes given = attributes_of(attributes);
  const Computing computing;
  return named(compute_golden(find_operator(op), tensors_of(inputs), given, parse_level(level)));
}

Named bound(const std::string& op, const Named& inputs, nb::dict attributes, const std::string& accumulator,
            const std::optional<std::string>& intermediate, const std::string& arithmetic,
            const Named& errors) {
  const Attributes given = attributes_of(attributes);
  const Computing computing;
  InputErrors of_inputs;
  for (const auto& [name, error] : errors) of_inputs[name] = error.values();
  return named(compute_bound(find_operator(op), tensors_of(inputs), given,
                             device_of(accumulator, intermediate, arithmetic), {}, of_inputs));
}

// Functions that are no operators, by aten's names.
const std::map<std::string, Bound (*)(const Bound&), std::less<>> functions = {
    {"sin", [](const Bound& b) { return sin(b); }},     {"cos", [](const Bound& b) { return cos(b); }},
    {"erf", [](const Bound& b) { return erf(b); }},     {"erfc", [](const Bound& b) { return erfc(b); }},
    {"expm1", [](const Bound& b) { return expm1(b); }}, {"log1p", [](const Bound& b) { return log1p(b); }},
    {"floor", [](const Bound& b) { return floor(b); }}};

Tensor bound_of_function(const std::string& function, const Tensor& x, const Tensor& error) {
  const std::vector<double> values = x.values(), errors = error.values();
  std::vector<double> made;
  for (std::size_t i = 0; i < values.size(); ++i)
    made.push_back(functions.at(function)(Bound(values[i], errors.at(i))).error);
  return {x.shape(), std::span<const double>(made)};
}

// Outputs whose golden values and allowed errors somebody else has computed.
Report judge_by_bound(const Named& actual, const Named& golden, const Named& allowed,
                      const std::string& source) {
  const nb::gil_scoped_release release;
  const Policy derived = load_policy("derived");
  Report report;
  report.verb = "check";
  report.actual = "the kernel's outputs";
  report.reference = "the reference in float64";
  report.policies.push_back({derived.name, derived.table_sha256});
  for (std::size_t i = 0; i < actual.size(); ++i) {
    Finding& f = report.findings.emplace_back();
    f.name = f.id.module = actual[i].first;
    f.id.slot = "output";
    f.id.arg = actual[i].first;
    const std::vector<double> bound = allowed.at(i).second.values();
    Expectation e;
    e.policy = &derived;
    e.row_dtype = actual[i].second.dtype();
    e.bound = bound;
    e.bound_source = source;
    e.map_errors = i == 0;
    judge(f, actual[i].second, golden.at(i).second, e);
  }
  return report;
}

CheckOptions options_of(const std::vector<std::string>& tolerances, const std::string& accumulator,
                        const std::optional<std::string>& intermediate) {
  CheckOptions options;
  options.policies = policies_of(tolerances);
  options.accumulator = stated_accumulator(accumulator);
  if (intermediate) options.intermediate = dtype_named(*intermediate);
  return options;
}

Report judge_call(const std::string& op, const Named& inputs, const Named& outputs, nb::dict attributes,
                  const std::vector<std::string>& tolerances, const std::string& level,
                  const std::string& accumulator, const std::optional<std::string>& intermediate, bool whole,
                  bool causes, bool prove, int error_maps) {
  const MadeCall call{&find_operator(op), tensors_of(inputs), sources_of(outputs), attributes_of(attributes)};
  const Computing computing;
  CheckOptions options = options_of(tolerances, accumulator, intermediate);
  options.threads = computing.threads();
  options.level = parse_level(level);
  if (options.level == Level::bound)
    throw Error("level 'bound' is of errors; expected report, fp64 or certified, whose values can judge");
  options.whole = whole;
  options.causes = causes;
  options.prove = prove;
  options.error_maps = error_maps;
  return check(call, options);
}

double score_of(const std::string& op, const Named& inputs, const Named& outputs, nb::dict attributes,
                const std::vector<std::string>& tolerances, const std::string& accumulator,
                const std::optional<std::string>& intermediate) {
  const MadeCall call{&find_operator(op), tensors_of(inputs), sources_of(outputs), attributes_of(attributes)};
  const Computing computing;
  return score(call, options_of(tolerances, accumulator, intermediate));
}

// (fault, output, whether it has nothing of the call, actual, golden), where it is no excuse.
nb::list wrong_outputs(const std::string& op, const Named& inputs, nb::dict attributes,
                       const std::string& dtype) {
  MadeCall call{&find_operator(op), tensors_of(inputs), {}, attributes_of(attributes)};
  const DType stored = dtype_named(dtype);
  std::vector<WrongOutput> all;
  {
    const nb::gil_scoped_release release;
    const auto golden = compute_golden(*call.op, call.inputs, call.attributes, Level::fp64);
    Case c = as_case(call);
    for (const NamedTensor& t : golden) {
      if (is_float(t.tensor.dtype())) c.outputs.push_back({t.name, "", stored, t.tensor.shape()});
    }
    all = trivial_outputs(c, golden);
    std::ranges::move(faulty_outputs(c, golden), std::back_inserter(all));
  }
  nb::list list;
  for (WrongOutput& w : all) {
    if (w.excuse.empty())
      list.append(nb::make_tuple(nb::str(w.fault.data(), w.fault.size()), w.output, w.is_trivial, w.actual,
                                 w.golden));
  }
  return list;
}

void save_case(const std::string& folder, const std::string& name, const std::string& op, const Named& inputs,
               const Named& outputs, nb::dict attributes) {
  const NewCase made{&find_operator(op),  name, attributes_of(attributes), tensors_of(inputs),
                     tensors_of(outputs), true};
  const nb::gil_scoped_release release;
  write_case(made, folder);
}

Named generate(const std::string& op, const std::string& sizes, nb::dict attributes,
               const std::vector<std::string>& leave_out, const std::string& fill, const std::string& dtype,
               std::uint64_t seed) {
  std::string left_out;
  for (const std::string& name : leave_out) left_out += (left_out.empty() ? "" : ",") + name;
  CallShape call = parse_call({sizes, "", left_out});
  call.attributes = attributes_of(attributes);
  // float64 holds all dtypes, and every library has it.
  std::vector<NamedTensor> made =
      generate_inputs(find_operator(op), call, parse_fill(fill), dtype_named(dtype), seed);
  for (NamedTensor& t : made) {
    if (is_float(t.tensor.dtype()))
      t.tensor = Tensor::from_values(DType::float64, t.tensor.shape(), t.tensor.values());
  }
  return named(std::move(made));
}

int command(std::vector<std::string> words) {
  const nb::gil_scoped_release release;
  // As the system has them: Python would notice a Ctrl-C when the command is done, and ignores closed pipes.
  for (const int signal : {SIGINT, SIGPIPE}) std::signal(signal, SIG_DFL);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return run_program(pointers);
}

}  // namespace
}  // namespace assay::python

NB_MODULE(_core, m) {
  using namespace assay;
  using namespace assay::python;
  m.attr("version") = std::string(version);
  nb::object error = nb::steal(PyErr_NewException("assay._core.Error", PyExc_ValueError, nullptr));
  m.attr("Error") = error;
  // Not nb::exception: a path in the text may be no UTF-8.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& problem) {
          const nb::object text = nb::steal(text_of(problem.what()));
          PyErr_SetObject(static_cast<PyObject*>(type), text.ptr());
        }
      },
      error.ptr());

  nb::class_<Tensor>(m, "Tensor")
      .def(nb::new_([](nb::handle array, const std::optional<std::string>& dtype) {
             return tensor_of(array, dtype ? std::optional(dtype_named(*dtype)) : std::nullopt);
           }),
           nb::arg("array").none(), nb::arg("dtype") = nb::none())
      .def_static(
          "of_values",
          [](const std::string& dtype, const Shape& shape, const std::vector<double>& values) {
            if (static_cast<std::int64_t>(values.size()) != element_count(shape))
              throw Error("{} values for shape {}; expected {}", values.size(), to_string(shape),
                          element_count(shape));
            return Tensor::from_values(dtype_named(dtype), shape, values);
          },
          nb::arg("dtype"), nb::arg("shape"), nb::arg("values"))
      .def_prop_ro("shape", [](const Tensor& t) { return nb::tuple(nb::cast(t.shape())); })
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(name(t.dtype())); })
      .def("values", &Tensor::values)
      .def("bits",
           [](const Tensor& t) {
             const std::size_t size = size_of(t.dtype());
             const DType as = size == 8   ? DType::uint64
                              : size == 4 ? DType::uint32
                              : size == 2 ? DType::uint16
                                          : DType::uint8;
             return Tensor(as, t.shape(), t.bytes(), std::make_shared<const Tensor>(t));
           })
      .def("__dlpack__", [](const Tensor& t, nb::kwargs) { return to_dlpack(t); })
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); });

  bind_reports(m);
  bind_dumps(m);
  bind_diff(m);
  bind_recording(m);
  bind_orders(m);
  m.def("operator_of_class", &operator_of_class);

  m.def("operator_names", [] {
    std::vector<std::string> names;
    for (const Operator* op : operators()) names.emplace_back(op->name);
    return names;
  });
  m.def("describe", [](const std::string& op) { return description(find_operator(op)); });
  m.def("policy_names", [] {
    std::vector<std::string> names;
    for (const std::string_view n : policy_names()) names.emplace_back(n);
    return names;
  });
  m.def("golden", &golden);
  m.def("bound", &bound);
  nb::list names;
  for (const auto& [name, function] : functions) names.append(name);
  m.attr("functions") = nb::tuple(names);
  m.def("bound_of_function", &bound_of_function);
  m.def("judge_by_bound", &judge_by_bound);
  m.def("judge", &judge_call);
  m.def("score", &score_of);
  m.def("wrong_outputs", &wrong_outputs);
  m.def("write_case", &save_case);
  m.def("generate", &generate);
  m.def("set_threads", [](int threads) {
    if (threads < 1) throw Error("{} threads; expected at least 1", threads);
    threads_of_calls = threads;
  });
  m.def("command", &command);
  m.def("threads", [] { return threads_of_calls; });
}
