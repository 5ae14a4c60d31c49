#include "launched.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace assay::align {

// Open MPI, MPICH and Intel MPI, and Slurm speaking PMI, say so in the environment. Asked before MPI is
// started, which a program alone should not pay for.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* text = std::getenv(name);
    int size = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), size).ec == std::errc() &&
        size > 1)
      return size;
  }
  return 1;
}

}  // namespace assay::align
