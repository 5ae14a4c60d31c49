#include "program.h"

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

int main(int argc, char** argv) {
  return assay::run_program({argv, static_cast<std::size_t>(argc)});
}
