#include "assay/operators/engine/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "assay/compare/calls/case_writer.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "output.h"
#include "verb.h"

namespace assay {
namespace {

struct GenerateVerb {
  std::string op;
  std::vector<std::string> sizes, attributes;
  std::string leave_out, output;
  std::string dtype = "float32", fill = "random";
  unsigned long long seed = 1;
  bool golden = false;
};

// The operator's first example that has all extents the user gives: it fills in the others, and says which
// optional inputs go together.
CallShape starting_from(const Operator& op, const std::vector<std::string>& sizes, std::string& shown) {
  std::set<std::string> letters;
  for (const Example& example : op.examples) {
    CallShape call = parse_call(example);
    const auto has = [&](const std::string& size) {
      letters.insert(size.substr(0, size.find('=')));
      return call.sizes.contains(size.substr(0, size.find('=')));
    };
    if (!std::ranges::all_of(sizes, has)) continue;
    shown = fmt::format("{}{}{}", example.sizes, example.attributes.empty() ? "" : " ", example.attributes);
    return call;
  }
  std::set<std::string> known;
  for (const Example& example : op.examples) {
    for (const auto& [letter, extents] : parse_call(example).sizes) known.insert(letter);
  }
  throw Error("{} has no call with the extents {}; it has {} (see 'assay ops {}')", op.name,
              fmt::join(letters, ", "), fmt::join(known, ", "), op.name);
}

void overwrite(CallShape& call, const Operator& op, const GenerateVerb& verb) {
  for (const std::string& size : verb.sizes) {
    if (size.find('=') == std::string::npos) {
      throw Error("'{}': expected an extent like K=4096 or N=2x3", size);
    }
    const CallShape given = parse_call({size});
    for (const auto& [letter, extents] : given.sizes) call.sizes[letter] = extents;
  }
  for (const std::string& text : verb.attributes) {
    const CallShape given = parse_call({"", text});
    for (const auto& [name, value] : given.attributes.values()) call.attributes.set(name, value);
  }
  if (verb.leave_out.empty()) return;
  call.leave_out = parse_call({"", "", verb.leave_out}).leave_out;
  for (const std::string& name : call.leave_out) {
    if (!input_arg(op, name).optional)
      throw Error("--leave-out {}: {} needs it; expected optional inputs", name, op.name);
  }
}

// What a kernel in this dtype is to hand over.
NamedTensor as_stored(const Operator& op, const NamedTensor& golden, DType dtype,
                      const Attributes& attributes) {
  if (!is_float(golden.tensor.dtype())) return golden;
  const bool converts = output_arg(op, golden.name).exact == Exact::bits && attributes.has("to");
  const auto to = converts ? parse_dtype(attributes.text("to")) : std::nullopt;
  return {golden.name,
          Tensor::from_values(to.value_or(dtype), golden.tensor.shape(), golden.tensor.values())};
}

void declare(GenerateVerb& verb, Options& options) {
  options.option("op", verb.op, "operator or alias").required().holds("OP");
  options.option("size", verb.sizes, "extents by letter (assay ops OP); the rest from an example")
      .holds("DIM=N");
  options.option("--attr", verb.attributes, "an attribute").holds("K=V");
  options.option("--leave-out", verb.leave_out, "optional inputs that are not made, comma-separated")
      .holds("NAMES");
  options.option("--dtype", verb.dtype, "of inputs and outputs").holds("T");
  options.option("--fill", verb.fill, "random, integer (nothing is rounded) or special (NaN, Inf, extremes)");
  options.option("--seed", verb.seed, "another seed, other numbers, on every machine alike")
      .holds("N")
      .within(0ULL, 1ULL << 53);
  options.flag("--golden", verb.golden, "write golden outputs too");
  options.option("-o,--output", verb.output, "a new folder").required().holds("DIR");
}

int run(const GenerateVerb& verb, const Options&) {
  const Operator& op = find_operator(verb.op);
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype || !is_float(*dtype)) {
    throw Error("--dtype {}: is no floating dtype; expected a torch name such as bfloat16", verb.dtype);
  }
  expect_new_folder(verb.output);
  std::string example;
  CallShape call = starting_from(op, verb.sizes, example);
  overwrite(call, op, verb);

  NewCase made{&op, fmt::format("{}_seed{}", verb.fill, verb.seed), call.attributes, {}, {}, verb.golden};
  made.inputs = generate_inputs(op, call, parse_fill(verb.fill), *dtype, verb.seed);
  const auto golden = compute_golden(op, made.inputs, call.attributes, Level::fp64);
  if (golden.empty())
    throw Error("{} makes no outputs from these extents; expected a call to judge", op.name);
  for (const NamedTensor& t : golden) {
    made.outputs.push_back(as_stored(op, t, *dtype, complete_attributes(op, call.attributes)));
  }
  write_case(made, verb.output);

  fmt::print("{}/{}  (from the example {})\n", op.name, made.name, example);
  for (const NamedTensor& t : made.inputs)
    fmt::print("  input  {:<16} {} {}\n", t.name, name(t.tensor.dtype()), to_string(t.tensor.shape()));
  for (const NamedTensor& t : made.outputs)
    fmt::print("  output {:<16} {} {}\n", t.name, name(t.tensor.dtype()), to_string(t.tensor.shape()));
  fmt::print("written to {}{}\n", printable(verb.output),
             verb.golden ? "" : "; now let the kernel write the outputs there, or judge them with --actual");
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb generate = {
    "generate", "make an operator case: inputs from a seed, the outputs declared",
    "assay generate matmul M=128 K=4096 N=64 --dtype bfloat16 -o case", declared<GenerateVerb>};
}

}  // namespace assay
