// Faults in a replay, each in one operator, that no tolerance from end to end can see.
#include <gmock/gmock.h>

#include <set>

#include "../dumps/scratch.h"
#include "assay/align/arithmetic/arithmetic.h"
#include "assay/align/arithmetic/fp8_matmul.h"
#include "assay/align/step/recorder.h"
#include "assay/compare/diff.h"
#include "expected.h"

namespace assay::align::isolation_test {
namespace {

// What is wrong: this result of this operator, there.
struct Fault {
  std::string module, op, output;
};

// Scales results before they are stored, as a kernel does.
class Faulty : public Arithmetic {
 public:
  Faulty(Precision precision, std::vector<Fault> faults, double factor)
      : right_(arithmetic(precision)), precision_(precision), faults_(std::move(faults)), factor_(factor) {}
  DType storage() const override { return right_->storage(); }
  Tensor add(std::span<const Tensor> open, ReduceOrder order) const override {
    return right_->add(open, order);
  }
  Tensor close(const Tensor& open) const override { return right_->close(open); }
  Tensor open(const Tensor& closed) const override { return right_->open(closed); }
  std::size_t leading() const override { return right_->leading(); }

  std::vector<NamedTensor> compute(const std::string& module, const Operator& op,
                                   std::span<const NamedTensor> inputs,
                                   const Attributes& attributes) const override {
    std::vector<NamedTensor> results = right_->compute(module, op, inputs, attributes);
    for (const Fault& fault : faults_) {
      if (fault.module != module || fault.op != op.name) continue;
      for (NamedTensor& y : results) {
        if (y.name == fault.output) y.tensor = scaled(op, inputs, attributes, y);
      }
    }
    return results;
  }

 private:
  Tensor scaled(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& attributes,
                const NamedTensor& y) const {
    std::vector<NamedTensor> taken(inputs.begin(), inputs.end());
    const bool is_product = op.name == "linear" || op.name == "grouped_matmul";
    const bool narrows = precision_ == Precision::bf16 && is_product;
    for (NamedTensor& x : taken) {
      if (narrows && is_float(x.tensor.dtype()))
        x.tensor = Tensor::from_values(DType::bfloat16, x.tensor.shape(), x.tensor.values());
    }
    const std::vector<NamedTensor> results = precision_ == Precision::fp8 && is_product
                                                 ? fp8_matmul(op, taken, attributes)
                                                 : compute_golden(op, taken, attributes, Level::report);
    std::vector<double> values = output_named(results, y.name).values();
    for (double& v : values) v *= factor_;
    return Tensor::from_values(y.tensor.dtype(), y.tensor.shape(), values);
  }

  std::shared_ptr<const Arithmetic> right_;
  Precision precision_;
  std::vector<Fault> faults_;
  double factor_;
};

// One micro-batch forward and backward, recorded.
void record(const std::filesystem::path& to, const std::shared_ptr<const Arithmetic>& computes) {
  Model model = load_model("telechat3-105b-tiny");
  model.layers = 3;
  const Batch batch = {1, 64};
  AssayDumpWriter writer(to, manifest_of({}, "{}"));
  run_ranks(1, [&](Communicator& alone) {
    RecordSink sink(&writer, alone);
    const Mesh mesh({}, 0);
    Recorder recorder(sink, mesh, {});
    std::map<std::string, Tensor> parameters;
    const auto parameter = [&](const Machine::NamedParameter& p) {
      const std::vector<double> values = initial_parameter(p.name, p.whole).values();
      return parameters[p.name] = Tensor::from_values(computes->storage(), p.whole, values);
    };
    Tape tape(Ranks(alone, mesh, computes), parameter,
              [&](const std::string& name) { return initial_indices(name, batch, model.vocabulary, 0); });
    const std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
    const std::map<std::string, ExpertRows> rows;
    recorder.begin(0, 0, tape, rows);
    recorder.forward(tape);
    std::vector<Tape::Seed> seeds;
    for (const Loss& loss : losses)
      seeds.push_back({loss.value, Tensor::from_values(computes->storage(), {}, std::vector{loss.weight})});
    tape.backward(seeds, [&](const Machine::Node& node, const std::vector<NamedTensor>& of_outputs,
                             const std::vector<NamedTensor>& of_inputs) {
      recorder.backward(tape, node, of_outputs, of_inputs);
    });
    for (const auto& [name, value] : parameters) {
      PlannedParameter planned;
      planned.whole = value.shape();
      recorder.parameter({Phase::forward, "param"}, name, planned, value);
    }
  });
  writer.finish();
}

std::set<std::string> created(const Report& report) {
  std::set<std::string> names;
  for (const Finding& f : report.findings) {
    if (f.origin && f.origin->kind == Origin::Kind::created)
      names.insert(f.id.module + " " + f.id.slot + " " + f.id.arg);
  }
  return names;
}

Report isolated(const std::filesystem::path& actual, const std::filesystem::path& reference) {
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  return diff(*open_dump(actual), *open_dump(reference), options);
}

struct Case {
  Precision precision;
  double factor;
};

class Isolation : public testing::TestWithParam<Case> {
 protected:
  std::filesystem::path path(const char* name) const { return scratch_.path() / name; }

 private:
  Scratch scratch_;
};

TEST_P(Isolation, FindsEachFaultyOperatorAndNothingElse) {
  const auto [precision, factor] = GetParam();
  const std::vector<Fault> faults = {
      {"model.layers.0.self_attn.q_a_proj", "linear", "y"},
      {"model.layers.2.self_attn.o_proj", "linear", "y"},
      {"model.layers.1.input_layernorm", "rms_norm", "y"},
      {"model.layers.2.self_attn", "attention", "out"},
      {"model.layers.1.mlp.shared_experts", "swiglu", "y"},
      {"model.layers.2.mlp.experts.*.down_proj", "grouped_matmul", "y"},
      {"model.layers.0.self_attn.o_proj", "linear", "grad_x"},
      {"model.layers.0.post_attention_layernorm", "rms_norm", "grad_x"},
  };
  record(path("clean"), arithmetic(precision));
  // What is right in fp8 is known from a reference in fp8 only.
  record(path("reference"), arithmetic(precision == Precision::fp8 ? precision : Precision::fp64));
  record(path("faulty"), std::make_shared<Faulty>(precision, faults, factor));
  EXPECT_THAT(created(isolated(path("clean"), path("reference"))), testing::IsEmpty());
  const Report report = isolated(path("faulty"), path("clean"));
  std::set<std::string> expected;
  for (const Fault& f : faults)
    expected.insert(f.module + (f.output.starts_with("grad_") ? " grad_input " + f.output.substr(5)
                                                              : " output " + f.output));
  EXPECT_EQ(created(report), expected);
  for (const Finding& f : report.findings) {
    if (!f.origin || f.origin->kind != Origin::Kind::created) continue;
    EXPECT_EQ(f.verdict, Verdict::failed) << f.name;
    ASSERT_FALSE(f.diagnoses.empty()) << f.name << ": " << f.origin->reason;
    EXPECT_EQ(f.diagnoses.front().cause, Cause::factor) << f.name << ": " << sentence(f.diagnoses.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Isolation,
                         testing::Values(Case{Precision::fp32, 1.00001}, Case{Precision::bf16, 1.001},
                                         Case{Precision::fp8, 1.001}),
                         [](const auto& info) { return std::string(name(info.param.precision)); });

}  // namespace
}  // namespace assay::align::isolation_test
