#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "assay/dumps/hdf5/process.h"
#include "assay/golden/error.h"

// The program as the linker made it; CMake says where it lies.
asm(".pushsection .rodata\n"
    ".balign 16\n"
    "assay_hdf5_worker_begin:\n"
    ".incbin \"" ASSAY_HDF5_WORKER
    "\"\n"
    "assay_hdf5_worker_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const char assay_hdf5_worker_begin[] __attribute__((visibility("hidden")));
extern "C" const char assay_hdf5_worker_end[] __attribute__((visibility("hidden")));

namespace assay {
namespace {

// Newer kernels want to be told that a file in memory will be run; older ones do not know the flag.
constexpr unsigned may_run = 0x10;

int make_program(const std::string& where) {
  int fd = ::memfd_create("assay-hdf5-worker", MFD_CLOEXEC | may_run);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create("assay-hdf5-worker", MFD_CLOEXEC);
  for (const char* at = assay_hdf5_worker_begin; fd >= 0 && at != assay_hdf5_worker_end;) {
    const ssize_t count = ::write(fd, at, static_cast<std::size_t>(assay_hdf5_worker_end - at));
    if (count <= 0) {
      const int problem = errno;
      ::close(fd);
      errno = problem;
      fd = -1;
    } else {
      at += count;
    }
  }
  if (fd < 0) throw Error("{}: the process for HDF5 files cannot be made: {}", where, std::strerror(errno));
  return fd;
}

}  // namespace

int hdf5_worker_program(const std::string& where) {
  static const int fd = make_program(where);
  return fd;
}

}  // namespace assay
