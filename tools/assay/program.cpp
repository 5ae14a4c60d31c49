#include "program.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

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

namespace assay {
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

// Verbs that the Python package adds to its command.
void refuse_verbs_of_python(std::span<char*> words) {
  for (const std::string_view verb : {"record", "audit"}) {
    if (words.size() > 1 && words[1] == verb)
      throw Error("{}: is a verb of the Python package's command; expected pip install . and its assay",
                  verb);
  }
}

}  // namespace

int run_program(std::span<char*> words) {
#define ASSAY_VERB(name) &verbs::name,
  static constexpr const Verb* list[] = {
#include "verb_names.h"
  };
#undef ASSAY_VERB
  keep_freed_memory();
  try {
    refuse_verbs_of_python(words);
    const int status = run_command_line(words, list);
    if (std::fflush(stdout) != 0)
      throw Error("standard output: cannot be written ({})", std::strerror(errno));
    return status;
  } catch (const std::exception& e) {
    return trouble(e);
  }
}

std::string program_file() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(&run_program), &found) != 0 && found.dli_fname != nullptr &&
      std::filesystem::path(found.dli_fname).is_absolute())
    return found.dli_fname;
  return "/proc/self/exe";  // of a program, dladdr knows how it was called only
}

}  // namespace assay
