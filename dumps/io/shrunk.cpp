#include "assay/dumps/io/shrunk.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "assay/golden/error.h"

namespace assay {

/// One entry of a list that the signal handler walks without a lock: entries are added at its head, taken
/// over when they are free, and never deleted.
struct Mapping {
  std::atomic<std::uintptr_t> begin = 0, end = 0;
  std::atomic<bool> shrunk = false;
  std::string path;  ///< under the mutex
  Mapping* next = nullptr;
};

namespace {

std::atomic<Mapping*> mappings = nullptr;
std::atomic<bool> any_shrunk = false;
std::mutex mutex;
std::vector<Mapping*> unused;           // under the mutex
std::vector<std::string> shrunk_paths;  // under the mutex: of mappings that have gone
struct sigaction before;

// Puts a page of zeros where the file has none any more, and returns to the instruction that read it.
void on_sigbus(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Mapping* m = mappings.load(std::memory_order_acquire); m != nullptr; m = m->next) {
    if (address < m->begin.load() || address >= m->end.load()) continue;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const at = reinterpret_cast<void*>(address / page * page);
    if (mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    m->shrunk = true;
    any_shrunk = true;
    return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // ends the program, as it would have
  }
}

void install() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
  }();
  static_cast<void>(installed);
}

bool names(std::string_view location, const std::string& path) {
  return location.starts_with(path) || path.starts_with(location);
}

}  // namespace

Watch::Watch(const void* address, std::size_t size, const std::filesystem::path& path) {
  install();
  const std::lock_guard lock(mutex);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (unused.empty()) {
    mapping_ = new Mapping;  // never deleted: the handler may be walking the list
    mapping_->next = mappings.load();
    mappings.store(mapping_, std::memory_order_release);
  } else {
    mapping_ = unused.back();
    unused.pop_back();
  }
  mapping_->path = path.string();
  mapping_->begin = begin;
  mapping_->end = (begin + size + page - 1) / page * page;
}

Watch::~Watch() {
  const std::lock_guard lock(mutex);
  mapping_->begin = mapping_->end = 0;
  if (mapping_->shrunk.exchange(false)) shrunk_paths.push_back(mapping_->path);
  mapping_->path.clear();
  unused.push_back(mapping_);
}

void check_not_shrunk(std::string_view location) {
  if (!any_shrunk.load()) return;
  const std::lock_guard lock(mutex);
  const auto fail = [](const std::string& path) {
    throw Error("{}: became shorter while it was read: wait until what writes it has finished", path);
  };
  for (const std::string& path : shrunk_paths) {
    if (names(location, path)) fail(path);
  }
  for (const Mapping* m = mappings.load(); m != nullptr; m = m->next) {
    if (m->shrunk && names(location, m->path)) fail(m->path);
  }
}

}  // namespace assay
