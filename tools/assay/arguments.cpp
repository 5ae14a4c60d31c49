#include "arguments.h"

#include <memory>

#include "verbs.h"

namespace assay {
namespace {

void add_github_options(CLI::App* verb, OutputOptions& o) {
  auto* github = verb->add_flag("--github", o.github,
                                "annotations on the log and the step summary; default in a GitHub workflow");
  verb->add_flag("--no-github", o.no_github, "none of these")->excludes(github);
}

void add_output_options(CLI::App* verb, OutputOptions& o) {
  verb->add_option("--json", o.json, "write the report as JSON to this file; - is standard output")
      ->type_name("F");
  verb->add_option("--jsonl", o.jsonl, "the same as JSON Lines, one finding a line")->type_name("F");
  verb->add_option("--csv", o.csv, "one row per tensor")->type_name("F");
  verb->add_option("--html", o.html, "one page with pictures, filters and all tensors; needs no network")
      ->type_name("F");
  verb->add_option("--junit", o.junit, "JUnit XML, one test case per step, phase and module")->type_name("F");
  verb->add_option("--markdown", o.markdown, "a summary in Markdown")->type_name("F");
  add_github_options(verb, o);
  verb->add_option("--color", o.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-v,--all", o.all, "show every finding, none folded");
}

CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& what,
                   const std::string& example) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->footer("example:  " + example);
  return verb;
}

void add_ops(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<OpsVerb>();
  CLI::App* verb = add_verb(app, "ops", "list the operators, or describe one", "assay ops rms_norm");
  verb->add_option("name", o->name, "operator or alias")->type_name("NAME");
  auto* markdown = verb->add_flag("--markdown", o->markdown, "as Markdown: OPERATORS.md");
  verb->add_flag("--json", o->json, "as JSON")->excludes(markdown);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_device_options(CLI::App* verb, std::string& accumulator, std::string& intermediate) {
  verb->add_option("--accumulator", accumulator,
                   "how the device adds: float32 (default), bfloat16,tree, hopper, .. (README)")
      ->type_name("A");
  verb->add_option("--intermediate", intermediate,
                   "dtype of what lies between the steps of a kernel: bfloat16 if eager")
      ->type_name("T");
}

void add_raw_option(CLI::App* verb, std::string& raw) {
  verb->add_option("--raw", raw, "what a file of no known format holds, little-endian: float32:4,8")
      ->type_name("T:N,N");
}

void add_golden(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<GoldenVerb>();
  CLI::App* verb = add_verb(app, "golden", "compute golden outputs of operator cases",
                            "assay golden cases/rms_norm/rows_6x33 -o golden");
  verb->add_option("case", o->cases, "folder with case.json, or a folder of such")
      ->required()
      ->type_name("CASE");
  verb->add_option("-o,--output", o->output, "write the case with golden outputs into this folder")
      ->type_name("DIR");
  verb->add_option("--level", o->level,
                   "report (float32), fp64, certified (float32 with proof) or bound (errors)");
  add_device_options(verb, o->accumulator, o->intermediate);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_generate(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<GenerateVerb>();
  CLI::App* verb =
      add_verb(app, "generate", "make an operator case: inputs from a seed, the outputs declared",
               "assay generate matmul M=128 K=4096 N=64 --dtype bfloat16 -o case");
  verb->add_option("op", o->op, "operator or alias")->required()->type_name("OP");
  verb->add_option("size", o->sizes, "extents by letter (assay ops OP); the rest from an example")
      ->type_name("DIM=N");
  verb->add_option("--attr", o->attributes, "an attribute")->type_name("K=V")->allow_extra_args(false);
  verb->add_option("--leave-out", o->leave_out, "optional inputs that are not made, comma-separated")
      ->type_name("NAMES");
  verb->add_option("--dtype", o->dtype, "of inputs and outputs")->type_name("T");
  verb->add_option("--fill", o->fill, "random, integer (nothing is rounded) or special (NaN, Inf, extremes)");
  verb->add_option("--seed", o->seed, "another seed, other numbers, on every machine alike")
      ->type_name("N")
      ->check(CLI::Range(0ULL, 1ULL << 53));
  verb->add_flag("--golden", o->golden, "write golden outputs too");
  verb->add_option("-o,--output", o->output, "a new folder")->required()->type_name("DIR");
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_check(CLI::App& app, const std::string& command, std::function<int()>& action) {
  auto o = std::make_shared<CheckVerb>();
  o->output.command = command;
  CLI::App* verb = add_verb(app, "check", "judge the outputs of operator cases against golden values",
                            "assay check cases/rms_norm/rows_6x33 --actual my_kernel_output");
  verb->add_option("case", o->cases, "folder with case.json, or a folder of such")
      ->required()
      ->type_name("CASE");
  verb->add_option("--actual", o->actual, "judge the outputs found here, in any readable format")
      ->type_name("DIR");
  verb->add_option("--tolerance", o->tolerances,
                   "derived (default), another policy or a .toml file; the first decides")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  verb->add_option("--level", o->level, "of the golden values: report (float32), fp64 or certified");
  add_device_options(verb, o->accumulator, o->intermediate);
  verb->add_flag("--prove", o->prove, "show that the gate can fail: injected faults must be rejected");
  verb->add_option("--dtype-hint", o->dtype_hint, "dtype of --actual arrays whose file cannot say it");
  verb->add_option("--only", o->only, "only outputs of this name; * and ? as in a shell")->type_name("NAME");
  verb->add_option("--threads", o->threads, "0: one per core");
  add_output_options(verb, o->output);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_inspect(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<InspectVerb>();
  CLI::App* verb =
      add_verb(app, "inspect", "list the tensors of any file or dump", "assay inspect run --stats");
  verb->add_option("path", o->path, "file or folder")->required()->type_name("PATH");
  verb->add_flag("--json", o->json, "as JSON");
  verb->add_flag("--stats", o->stats, "sum, absolute sum, smallest, largest, NaN and Inf counts");
  verb->add_flag("--hash", o->hash, "SHA-256 of the little-endian elements in C order");
  verb->add_flag("--ranks", o->ranks, "what each rank holds, not merged");
  verb->add_option("--rules", o->rules, "TOML file with mesh, renumber and layout rules")->type_name("FILE");
  verb->add_option("--dtype-hint", o->dtype_hint,
                   "dtype of arrays whose file cannot say it (numpy V2: bfloat16)");
  add_raw_option(verb, o->raw);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_diff(CLI::App& app, const std::string& command, std::function<int()>& action) {
  auto o = std::make_shared<DiffVerb>();
  o->output.command = command;
  CLI::App* verb = add_verb(app, "diff", "judge two files or dumps, tensor by tensor",
                            "assay diff npu_dump gpu_dump --junit report.xml");
  verb->add_option("actual", o->actual, "file or folder to judge")->required()->type_name("ACTUAL");
  verb->add_option("reference", o->reference, "file or folder to judge it by")
      ->required()
      ->type_name("REFERENCE");
  verb->add_option("--rules", o->rules,
                   "TOML file: rename, operator, count, tolerance, ignore, mesh, renumber, layout")
      ->type_name("F");
  verb->add_option("--tolerance", o->tolerances,
                   "telechat3 (default), torch, bitwise or a .toml file; the first decides")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  verb->add_option("--only", o->only, "only tensors of this name; * and ? as in a shell")->type_name("NAME");
  verb->add_flag("--exact-sums", o->exact_sums, "sums behind means and norms without any rounding; slower");
  verb->add_flag("--accept-statistics", o->accept_statistics,
                 "tensors of which only statistics were recorded pass where these agree");
  verb->add_flag("--isolate", o->isolate,
                 "judge every operator by its own recorded inputs, too: small and deep faults");
  verb->add_option("--threads", o->threads, "0: one per core");
  verb->add_flag("--alone", o->alone, "judge everything here, also in a process that mpirun started");
  verb->add_option("--dtype-hint", o->dtype_hint,
                   "dtype of arrays whose file cannot say it (numpy V2: bfloat16)");
  verb->add_option("--raw", o->raw,
                   "what files of no known format hold: float32:4,8; twice if the sides differ")
      ->type_name("T:N,N")
      ->allow_extra_args(false);
  add_output_options(verb, o->output);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_replay(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<ReplayVerb>();
  CLI::App* verb =
      add_verb(app, "replay",
               "compute training steps of a model with golden operators, on one device or under a strategy",
               "assay replay --model telechat3-105b-tiny --parallel tp=2,pp=2 --dump run");
  verb->add_option("--model", o->model, "a preset, a TOML file, or a config.json of Hugging Face")
      ->required()
      ->type_name("M");
  auto* describe = verb->add_flag("--describe", o->describe,
                                  "print parameters, accumulation counts and tolerances, and run nothing");
  const auto count = [&](const char* option, long long& value, const char* meaning) {
    return verb->add_option(option, value, meaning)->check(CLI::Range(1LL, 1LL << 19))->type_name("N");
  };
  count("--sequences", o->sequences, "of a micro-batch");
  count("--length", o->length, "tokens of a sequence");
  count("--steps", o->steps, "training steps")->excludes(describe);
  count("--micro-batches", o->micro_batches, "of each step, over all ranks; their gradients are accumulated")
      ->excludes(describe);
  verb->add_option("--seed", o->seed, "of weights and tokens; 0 by default")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->excludes(describe);
  verb->add_option("--precision", o->precision, "fp64, fp32, exact, bf16, fp16 or fp8")
      ->check(CLI::IsMember({"fp64", "fp32", "exact", "bf16", "fp16", "fp8"}))
      ->excludes(describe);
  verb->add_option("--parallel", o->parallel,
                   "the strategy: tp=2,sp=1,cp=2,dp=2,zero=1,pp=2,ep=4,dispatch=alltoall,..")
      ->type_name("KEY=N,..")
      ->excludes(describe);
  verb->add_option(
          "--optimizer", o->optimizer,
          "adamw, adam-l2, torch-adamw, torch-adam, mindspore-adamw, eps-hat or muon, and what differs: "
          "lr=1e-3,weight_decay=0.1,decay=matrices,max_norm=1,..")
      ->type_name("NAME[,KEY=VALUE,..]")
      ->excludes(describe);
  verb->add_option("--modes-of", o->modes_of,
                   "compute what is another function by design under that strategy as it is there: balance "
                   "losses over groups of ranks, capacity, redistributed samples")
      ->type_name("KEY=VALUE,..")
      ->excludes(describe);
  verb->add_option("--loss-average", o->loss_average,
                   "over micro-batches, or over tokens as calculate_per_token_loss does")
      ->check(CLI::IsMember({"micro-batches", "tokens"}))
      ->excludes(describe);
  verb->add_option("--prompt", o->prompt,
                   "of each sequence up to this part, at its beginning, is a prompt without targets")
      ->check(CLI::Range(0., 1.))
      ->type_name("P")
      ->excludes(describe);
  const auto given = [&](const char* option, std::string& path, const char* meaning) {
    verb->add_option(option, path, meaning)->type_name("PATH")->excludes(describe);
  };
  given("--weights", o->weights,
        "start from these: a replay's dump, or a checkpoint with Hugging Face's names");
  given("--tokens", o->tokens,
        "integers [micro-batches, sequences, length + 1], 'tokens' and 'targets', or a replay's dump");
  given("--routing", o->routing, "take the experts that the routers of this dump of a replay have chosen");
  verb->add_option("--fault", o->fault,
                   "do it wrong as a known fault does, or as several: F001,F131; assay faults lists them")
      ->type_name("ID")
      ->excludes(describe);
  auto* dump = verb->add_option("--dump", o->dump, "write everything but moves as an assay-dump")
                   ->type_name("DIR")
                   ->excludes(describe);
  verb->add_option("--dump-only", o->dump_only,
                   "only tensors of this module, module.slot or module.slot.arg; * and ? as in a shell")
      ->type_name("PATTERN")
      ->allow_extra_args(false)
      ->needs(dump);
  verb->add_option("--dump-steps", o->dump_steps, "only these steps")->type_name("N,N-N")->needs(dump);
  verb->add_option("--tolerance", o->tolerance, "policy of the description")
      ->type_name("POLICY")
      ->needs(describe);
  verb->add_option("--dtype", o->dtype, "of the outputs in it")->type_name("T")->needs(describe);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_align(CLI::App& app, const std::string& command, std::function<int()>& action) {
  auto o = std::make_shared<AlignVerb>();
  o->output.command = command;
  CLI::App* verb = add_verb(
      app, "align", "take a subject from a single device to a full strategy, and name the first divergence",
      "assay align --model telechat3-105b-tiny --parallel tp=2,sp=1,pp=2,dp=2,ep=2");
  verb->add_option("plan", o->plan, "a plan in TOML (README)")->type_name("PLAN")->check(CLI::ExistingFile);
  verb->add_option("--model", o->model, "what is trained, as replay takes it")->type_name("M");
  verb->add_option("--parallel", o->parallel, "the strategy at the top of the ladder")->type_name("KEY=N,..");
  verb->add_option("--precision", o->precision, "fp64, fp32, exact (the default), bf16, fp16 or fp8")
      ->check(CLI::IsMember({"fp64", "fp32", "exact", "bf16", "fp16", "fp8"}));
  const auto count = [&](const char* option, std::optional<long long>& value, const char* meaning,
                         long long least) {
    verb->add_option(option, value, meaning)->check(CLI::Range(least, 1LL << 19))->type_name("N");
  };
  count("--steps", o->steps, "training steps; 2 by default, so that optimizer faults show", 1);
  count("--micro-batches", o->micro_batches, "of each step, over all ranks", 1);
  count("--sequences", o->sequences, "of a micro-batch", 1);
  count("--length", o->length, "tokens of a sequence", 1);
  count("--seed", o->seed, "of weights and tokens", 0);
  count("--reruns", o->reruns, "of the reference with sums in other orders, for its noise; 2 by default", 0);
  auto* subject = verb->add_option("--command", o->command,
                                   "the subject; {tp}, {ranks}, {dump}, .. stand for the numbers of a stage")
                      ->type_name("LINE");
  verb->add_option("--timeout", o->timeout, "seconds that a run of the command may take; 600 by default")
      ->check(CLI::Range(1LL, 1LL << 19))
      ->type_name("N")
      ->needs(subject);
  verb->add_option("--fault", o->fault,
                   "the subject is a replay that does this wrong; assay faults lists them")
      ->type_name("ID")
      ->excludes(subject);
  verb->add_option("--rules", o->rules, "of the subject's names and layouts, as diff takes them")
      ->type_name("F")
      ->check(CLI::ExistingFile);
  verb->add_option("--tolerance", o->tolerances,
                   "policies where a strategy promises no bits; the first decides")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  verb->add_option("--work", o->work, "folder for dumps, outputs and what passed; assay-align by default")
      ->type_name("DIR");
  verb->add_option("--threads", o->threads, "of stages and comparisons; 0: one per core")
      ->check(CLI::Range(0, 4096))
      ->type_name("N");
  verb->add_flag("--plan-only", o->plan_only, "print the stages and what they cost, and run nothing");
  verb->add_flag("--keep", o->keep, "keep the dumps of stages that passed");
  verb->add_flag("--again", o->again, "run what passed before, too");
  OutputOptions& reports = o->output;
  verb->add_option("--json", reports.json, "write the report as JSON to this file; - is standard output")
      ->type_name("F");
  verb->add_option("--html", reports.html, "one page with the ladder, the ranks and what diverged")
      ->type_name("F");
  verb->add_option("--junit", reports.junit, "JUnit XML, one test case per stage and phase")->type_name("F");
  verb->add_option("--markdown", reports.markdown, "a summary in Markdown")->type_name("F");
  add_github_options(verb, reports);
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_baseline(CLI::App& app, const std::string& command, std::function<int()>& action) {
  CLI::App* verb =
      add_verb(app, "baseline", "keep a run's numbers in a small file, and hold later runs against it",
               "assay baseline accept run -o baseline.json");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, const char* example, bool accepts) {
    auto o = std::make_shared<BaselineVerb>();
    o->accepts = accepts;
    o->output.command = command;
    CLI::App* part = add_verb(*verb, name, what, example);
    part->add_option("dump", o->dump, "file or folder of the run")->required()->type_name("DUMP");
    part->add_option("--rules", o->rules, "TOML file, as diff takes it")->type_name("F");
    part->add_option("--dtype-hint", o->dtype_hint,
                     "dtype of arrays whose file cannot say it (numpy V2: bfloat16)");
    add_raw_option(part, o->raw);
    part->callback([o, &action] { action = [o] { return run(*o); }; });
    return std::pair(part, o);
  };
  const auto [accept, a] = add("accept", "write what is to be remembered of a run: losses, norms, hashes",
                               "assay baseline accept run -o baseline.json --reason 'new kernels'", true);
  accept->add_option("-o,--output", a->file, "a new file, or a baseline to replace")
      ->required()
      ->type_name("FILE");
  accept->add_option("--reason", a->reason, "why these numbers are right; needed where they replace others")
      ->type_name("TEXT");
  accept->add_option("--only", a->only, "only tensors of this name; * and ? as in a shell")
      ->type_name("NAME");
  const auto [check, c] = add("check", "judge a run by a baseline",
                              "assay baseline check run baseline.json --junit report.xml", false);
  check->add_option("file", c->file, "the baseline")->required()->type_name("FILE");
  check
      ->add_option("--tolerance", c->tolerances,
                   "bitwise (default), or another policy for what hashes do not settle; the first decides")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  check->add_flag("--accept-statistics", c->accept_statistics,
                  "tensors with other bits pass where their norms agree within the tolerance");
  check->add_option("--threads", c->threads, "0: one per core");
  add_output_options(check, c->output);
}

void add_faults(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<FaultsVerb>();
  CLI::App* verb = add_verb(app, "faults", "list the faults that a replay can be given, or describe one",
                            "assay faults F001");
  verb->add_option("id", o->id, "of a fault")->type_name("ID");
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_tolerance(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<ToleranceVerb>();
  CLI::App* verb = add_verb(app, "tolerance", "show the tolerance tables, or explain one lookup",
                            "assay tolerance telechat3 --dtype bfloat16 --count 4096");
  verb->add_option("policy", o->policy, "a policy's name or a .toml file; none: all")->type_name("POLICY");
  verb->add_option("--op", o->op, "operator")->type_name("O");
  verb->add_option("--dtype", o->dtype, "dtype of the tensor")->type_name("T");
  verb->add_option("--count", o->count, "accumulation count")->type_name("N");
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

void add_convert(CLI::App& app, std::function<int()>& action) {
  auto o = std::make_shared<ConvertVerb>();
  CLI::App* verb =
      add_verb(app, "convert", "rewrite any readable dump as assay-dump, safetensors, npy or HDF5",
               "assay convert run run.safetensors");
  verb->add_option("in", o->input, "file or folder")->required()->type_name("IN");
  verb->add_option("out", o->output, "what to make: x.safetensors, x.npy, x.h5, or else a folder")
      ->required()
      ->type_name("OUT");
  verb->add_option("--to", o->to,
                   "assay-dump, safetensors, npy (a folder of them) or hdf5; default: by OUT's name")
      ->check(CLI::IsMember({"assay-dump", "safetensors", "npy", "hdf5"}))
      ->type_name("F");
  verb->add_option("--dtype-hint", o->dtype_hint,
                   "dtype of arrays whose file cannot say it (numpy V2: bfloat16)");
  add_raw_option(verb, o->raw);
  verb->add_option("--rules", o->rules, "TOML file with mesh, renumber and layout rules")->type_name("FILE");
  verb->callback([o, &action] { action = [o] { return run(*o); }; });
}

}  // namespace

void add_verbs(CLI::App& app, const std::string& command, std::function<int()>& action) {
  add_ops(app, action);
  add_golden(app, action);
  add_check(app, command, action);
  add_generate(app, action);
  add_inspect(app, action);
  add_diff(app, command, action);
  add_replay(app, action);
  add_align(app, command, action);
  add_baseline(app, command, action);
  add_faults(app, action);
  add_tolerance(app, action);
  add_convert(app, action);
}

}  // namespace assay
