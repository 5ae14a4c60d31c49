#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "command_line.h"
#include "output.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

// verb_names.h is written by CMakeLists.txt: one ASSAY_VERB(name) for each, in the order of --help.
namespace assay::verbs {
#define ASSAY_VERB(name) extern const Verb name;
#include "verb_names.h"
#undef ASSAY_VERB
}  // namespace assay::verbs

#ifdef __SANITIZE_ADDRESS__
// GnuTLS, which comes with HDF5's libcurl, keeps 16 bytes of its start where nobody finds them once threads
// have run.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libgnutls";
}
extern "C" const char* __lsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "print_suppressions=0";
}
#endif

namespace {

// Golden values take and free arrays of the same sizes over and over: pages that go back to the system come
// again as new ones, which it fills with zeros first.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int most_of_an_array = 1 << 28, most_kept = 1 << 29;
  mallopt(M_MMAP_THRESHOLD, most_of_an_array);
  mallopt(M_TRIM_THRESHOLD, most_kept);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace assay;
#define ASSAY_VERB(name) &verbs::name,
  static constexpr const Verb* list[] = {
#include "verb_names.h"
  };
#undef ASSAY_VERB
  keep_freed_memory();
  try {
    const int status = run_command_line({argv, static_cast<std::size_t>(argc)}, list);
    if (std::fflush(stdout) != 0)
      throw Error("standard output: cannot be written ({})", std::strerror(errno));
    return status;
  } catch (const std::exception& e) {
    fmt::print(stderr, "assay: {}\n", printable(sentence(e)));
    return 2;
  }
}
