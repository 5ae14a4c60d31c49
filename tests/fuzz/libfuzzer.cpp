// libFuzzer's entry: one program for all targets, of which ASSAY_FUZZ names one.
//   ASSAY_FUZZ=npy build/fuzz/tests/fuzz/fuzz -max_total_time=600 FOLDER
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const assay::FuzzTarget& target = []() -> const assay::FuzzTarget& {
    const char* const name = std::getenv("ASSAY_FUZZ");
    const auto& all = assay::fuzz_targets();
    const auto found =
        std::ranges::find(all, std::string_view(name == nullptr ? "" : name), &assay::FuzzTarget::name);
    if (found != all.end()) return *found;
    std::fprintf(stderr, "ASSAY_FUZZ names no target; expected one of");
    for (const assay::FuzzTarget& t : all) std::fprintf(stderr, " %s", std::string(t.name).c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  target.run(std::as_bytes(std::span(data, size)));
  return 0;
}
