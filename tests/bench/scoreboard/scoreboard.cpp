// The fault catalogue, found and named by alignment, and by the rules that others use on the same dumps.
//   bench_scoreboard RESULTS faults [--only F001,F005] [--part 1/2] [--precision bf16] [--work DIR]
//   bench_scoreboard RESULTS clean  [--part 1/2] [--precision bf16] [--work DIR]
//   bench_scoreboard RESULTS scales [--part 1/2] [--work DIR]
//   bench_scoreboard RESULTS table
// Each run adds a line to the file RESULTS; `table` prints what is in it. A rule detects "at zero false
// alarms" what is above everything that it says of the clean runs in the same precision.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include "assay/align/model/model.h"
#include "assay/golden/error.h"
#include "trials.h"

namespace assay::bench {
namespace {

struct Options {
  std::filesystem::path results, work = "scoreboard";
  std::string mode, precision;
  std::set<std::string, std::less<>> only;
  std::size_t part = 1, parts = 1;

  bool has(std::size_t i) const { return i % parts == part - 1; }
};

Options options_of(const std::vector<std::string>& args) {
  if (args.size() < 2 || args.size() % 2 != 0)
    throw Error("expected RESULTS and faults, clean, scales or table, then pairs of --option value");
  Options o;
  o.results = args[0];
  o.mode = args[1];
  for (std::size_t i = 2; i < args.size(); i += 2) {
    const std::string &key = args[i], &value = args[i + 1];
    if (key == "--work") {
      o.work = value;
    } else if (key == "--precision") {
      o.precision = value;
    } else if (key == "--part") {
      const auto slash = std::min(value.find('/'), value.size());
      std::from_chars(value.data(), value.data() + slash, o.part);
      std::from_chars(value.data() + std::min(slash + 1, value.size()), value.data() + value.size(), o.parts);
      if (o.part < 1 || o.part > o.parts) throw Error("--part {}: expected K/N with K from 1 to N", value);
    } else if (key == "--only") {
      for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        o.only.insert(std::string(align::find_fault(value.substr(begin, end - begin)).id));
        begin = end + 1;
      }
    } else {
      throw Error("{}: expected --work, --precision, --part or --only", key);
    }
  }
  return o;
}

void run(const Options& o, const Record& r) {
  append(o.results, r);
  fmt::print("{}  {}{}{}{}{}  {:.0f} s  {}\n", r.name, r.found ? 'F' : '-', r.phase ? 'P' : '-',
             r.tensor ? 'T' : '-', r.dimension ? 'D' : '-', r.named ? 'N' : '-', r.seconds, r.got);
  std::fflush(stdout);
}

void run_faults(const Options& o, Trials& trials) {
  const auto& all = align::fault_catalogue();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (o.only.empty() ? o.has(i) : o.only.contains(all[i].id)) run(o, trials.fault(all[i], o.precision));
  }
}

// Strategies, precisions and seeds, all with all.
void run_clean(const Options& o, Trials& trials) {
  constexpr std::string_view layouts[] = {
      "tp=2", "tp=2,sp=1", "cp=2",      "cp=2,context=ulysses",    "dp=2,zero=1",
      "pp=2", "pp=2,dp=2", "dp=2,ep=2", "tp=2,sp=1,pp=2,dp=2,ep=2"};
  constexpr std::string_view precisions[] = {"fp64", "fp32", "bf16", "exact"};
  std::size_t i = 0;
  for (std::int64_t seed = 0; seed < 3; ++seed) {
    for (const std::string_view precision : precisions) {
      for (const std::string_view layout : layouts) {
        if (!o.has(i++) || (!o.precision.empty() && o.precision != precision)) continue;
        align::Work w;
        w.model = "telechat3-105b-tiny";
        w.precision = precision;
        w.seed = seed;
        run(o, trials.clean(w, align::parse_parallel(std::string(layout))));
      }
    }
  }
}

// Factors at three depths, in the precisions that train.
void run_scales(const Options& o, Trials& trials) {
  constexpr std::pair<std::string_view, double> cases[] = {{"bf16", 1.01},   {"bf16", 1.003},
                                                           {"bf16", 1.001},  {"bf16", 1.0003},
                                                           {"fp32", 1.0001}, {"fp32", 1.00001}};
  std::size_t i = 0;
  for (const auto& [precision, factor] : cases) {
    for (const int layer : {0, 4, 7}) {
      if (!o.has(i++)) continue;
      align::Work w;
      w.model = "telechat3-105b-tiny,layers=8";
      w.precision = precision;
      w.steps = 1;
      w.micro_batches = 1;
      w.length = 32;
      run(o, trials.scale(w, layer, factor));
    }
  }
}

}  // namespace
}  // namespace assay::bench

int main(int argc, char** argv) {
  using namespace assay::bench;
  try {
    const Options o = options_of({argv + 1, argv + argc});
    if (o.mode == "table") {
      fmt::print("{}", table_of(records_of({o.results})));
      return 0;
    }
    Trials trials(o.work);
    if (o.mode == "faults")
      run_faults(o, trials);
    else if (o.mode == "clean")
      run_clean(o, trials);
    else if (o.mode == "scales")
      run_scales(o, trials);
    else
      throw assay::Error("'{}': expected faults, clean, scales or table", o.mode);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
