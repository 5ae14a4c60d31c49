#pragma once

#include <optional>
#include <string>
#include <vector>

/// The verbs of the command line: arguments.cpp fills the options, each verb has a file. They return the exit
/// status and throw Error for trouble.
namespace assay {

/// Where a report of check or diff goes, besides the terminal; "-" is standard output.
struct OutputOptions {
  std::string json, jsonl, csv, html, junit, markdown;
  bool github = false, no_github = false;  ///< neither: if GitHub runs it
  std::string color = "auto";
  bool all = false;
  std::string command;  ///< as it was given, for the reports
};

struct CheckVerb {
  std::vector<std::string> cases;
  std::string actual, only, dtype_hint;
  std::vector<std::string> tolerances = {"derived"};
  std::string level = "fp64";
  std::string accumulator, intermediate;
  bool prove = false;
  int threads = 0;  ///< 0: one per core
  OutputOptions output;
};
int run(const CheckVerb&);

struct DiffVerb {
  std::string actual, reference, rules, only;
  std::string dtype_hint;
  std::vector<std::string> raw;  ///< for both sides, or one for each
  std::vector<std::string> tolerances = {"telechat3"};
  bool accept_statistics = false;
  bool isolate = false;
  int threads = 0;
  bool alone = false;  ///< not with the other processes of mpirun
  bool exact_sums = false;
  OutputOptions output;
};
int run(const DiffVerb&);

struct InspectVerb {
  std::string path, dtype_hint, rules, raw;
  bool json = false, stats = false, hash = false, ranks = false;
};
int run(const InspectVerb&);

struct GoldenVerb {
  std::vector<std::string> cases;
  std::string output, accumulator, intermediate;
  std::string level = "fp64";
};
int run(const GoldenVerb&);

struct GenerateVerb {
  std::string op;
  std::vector<std::string> sizes, attributes;
  std::string leave_out, output;
  std::string dtype = "float32", fill = "random";
  unsigned long long seed = 1;
  bool golden = false;
};
int run(const GenerateVerb&);

struct OpsVerb {
  std::string name;
  bool markdown = false, json = false;
};
int run(const OpsVerb&);

struct ReplayVerb {
  std::string model, dump;
  std::string weights, tokens, routing;  ///< files or dumps; empty: drawn, and free
  std::vector<std::string> dump_only;    ///< patterns; none: everything
  std::string dump_steps;                ///< empty: all
  bool describe = false;
  long long steps = 1, micro_batches = 1, sequences = 1, length = 32, seed = 0;
  std::string precision = "fp64";
  std::string parallel, optimizer = "adamw", loss_average = "micro-batches";
  std::optional<std::string> modes_of;
  double prompt = 0;
  std::string fault;                                        ///< of the catalogue; empty: none
  std::string tolerance = "telechat3", dtype = "bfloat16";  ///< of describe
};
int run(const ReplayVerb&);

struct AlignVerb {
  std::string plan, model, parallel, precision, fault, command, rules, work;
  std::optional<long long> steps, micro_batches, sequences, length, seed, reruns;
  long long timeout = 600;  ///< seconds
  std::vector<std::string> tolerances = {"telechat3"};
  int threads = 0;
  bool plan_only = false, keep = false, again = false;
  OutputOptions output;
};
int run(const AlignVerb&);

struct BaselineVerb {
  bool accepts = false;  ///< else it is checked
  std::string dump, file, reason, only, rules, dtype_hint, raw;
  std::vector<std::string> tolerances = {"bitwise"};
  bool accept_statistics = false;
  int threads = 0;
  OutputOptions output;
};
int run(const BaselineVerb&);

struct FaultsVerb {
  std::string id;  ///< empty: all
};
int run(const FaultsVerb&);

struct ToleranceVerb {
  std::string policy, op, dtype;
  std::optional<long long> count;
};
int run(const ToleranceVerb&);

struct ConvertVerb {
  std::string input, output, dtype_hint, raw, rules;
  std::string to;  ///< assay-dump, safetensors, npy or hdf5; empty: as the output's name says
};
int run(const ConvertVerb&);

}  // namespace assay
