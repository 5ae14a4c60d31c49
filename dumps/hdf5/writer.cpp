#include "assay/dumps/hdf5/writer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "assay/dumps/hdf5/message.h"
#include "assay/dumps/hdf5/process.h"
#include "assay/dumps/io/unfinished.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::mutex starting;
[[maybe_unused]] const int starting_is_free = free_in_forked<starting>();

}  // namespace

// One process writes all files that are open at a time: thousands of ranks have one each.
class Hdf5Writer::Process {
 public:
  static std::shared_ptr<Process> for_file(const std::string& path) {
    static std::weak_ptr<Process> current;
    const std::lock_guard lock(starting);
    std::shared_ptr<Process> process = current.lock();
    if (process == nullptr || !process->process_.is_ours())
      current = process = std::make_shared<Process>(path);
    return process;
  }

  explicit Process(const std::string& path) : process_(start_hdf5_process("write", -1, path)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!process_.is_ours()) return;
    // This ends it, even where a child of ours has the socket, too.
    ::shutdown(process_.socket, SHUT_RDWR);
    while (::waitpid(process_.id, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  std::uint64_t next_file() {
    const std::lock_guard lock(mutex_);
    return files_++;
  }

  /// The number that the answer holds; 0 where it holds none.
  std::uint64_t order(const std::string& path, const std::string& order) {
    if (!process_.is_ours())
      throw Error("{}: was begun by the process that this one was forked from, which alone can go on", path);
    const std::lock_guard lock(mutex_);
    MessageWriter message;
    message.text(order);
    if (!process_.send(message.bytes())) fail(path);
    std::uint64_t size = 0;
    receive(path, &size, sizeof size);
    std::string answer(size, '\0');
    receive(path, answer.data(), size);
    MessageReader reader(std::as_bytes(std::span(answer)), path);
    if (reader.choice(Hdf5Answer::failed) == Hdf5Answer::failed) throw Error("{}: {}", path, reader.text());
    return reader.rest().empty() ? 0 : reader.number();
  }

 private:
  void receive(const std::string& path, void* target, std::size_t size) {
    for (auto* at = static_cast<char*>(target); size != 0;) {
      const ssize_t count = ::recv(process_.socket, at, size, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(path);
      at += count;
      size -= static_cast<std::size_t>(count);
    }
  }

  [[noreturn]] static void fail(const std::string& path) {
    throw Error("{}: the process that writes it has ended before it was done; write it again", path);
  }

  Hdf5Process process_;
  std::mutex mutex_;
  std::uint64_t files_ = 0;
};

struct Hdf5Writer::File {
  std::string path;
  std::shared_ptr<Process> process = Process::for_file(path);
  std::uint64_t number = process->next_file();
  Descriptor bytes = {};  ///< for what the library does not write

  std::uint64_t order(Hdf5Order what, const std::string& name,
                      const std::vector<std::int64_t>& numbers = {}) {
    MessageWriter out;
    out.number(what);
    out.number(number);
    out.text(name);
    for (const std::int64_t n : numbers) out.number(n);
    return process->order(path, out.bytes());
  }

  std::uint64_t write(const std::string& name, DType dtype, const Shape& shape,
                      std::span<const std::byte> content) {
    std::vector<std::int64_t> type = {static_cast<std::int64_t>(dtype),
                                      static_cast<std::int64_t>(shape.size())};
    type.insert(type.end(), shape.begin(), shape.end());
    const std::uint64_t offset = order(Hdf5Order::dataset, name, type);
    // At once, so that a full disk is seen by the write and not missed by the close.
    for (std::uint64_t written = 0; written < content.size();) {
      const ssize_t count = ::pwrite(bytes, content.data() + written, content.size() - written,
                                     static_cast<off_t>(offset + written));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        throw Error("{}: '{}' cannot be written: {}; is the disk full?", path, name, std::strerror(errno));
      written += static_cast<std::uint64_t>(count);
    }
    return offset;
  }
};

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path) : file_(new File{path.string()}) {
  file_->order(Hdf5Order::create, std::filesystem::absolute(path).string());
  file_->bytes = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file_->bytes < 0) throw Error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
}

Hdf5Writer::~Hdf5Writer() {
  try {
    if (file_ != nullptr) close();
  } catch (const Error&) {  // who wants to know calls close()
  }
}

std::uint64_t Hdf5Writer::write(const std::string& name, const Tensor& tensor) {
  return file_->write(name, tensor.dtype(), tensor.shape(), tensor.bytes());
}

void Hdf5Writer::write_text(const std::string& name, std::string_view text) {
  file_->write(name, DType::uint8, {static_cast<std::int64_t>(text.size())}, std::as_bytes(std::span(text)));
}

void Hdf5Writer::close() {
  const std::unique_ptr<File> file = std::move(file_);
  file->order(Hdf5Order::close, "");
}

void write_hdf5(const std::filesystem::path& path, std::span<const PlainTensor> tensors) {
  std::set<std::string_view> names;
  for (const PlainTensor& tensor : tensors) names.insert(tensor.name);
  for (const PlainTensor& tensor : tensors) {
    check_path_name(tensor.name, path.string());
    for (std::size_t slash = 0; (slash = tensor.name.find('/', slash + 1)) != std::string::npos;) {
      if (!names.contains(std::string_view(tensor.name).substr(0, slash))) continue;
      throw Error("{}: '{}' would be in the group '{}', which is a tensor; convert to safetensors",
                  path.string(), tensor.name, tensor.name.substr(0, slash));
    }
  }
  Unfinished file(path, Unfinished::Kind::file);
  Hdf5Writer writer(file.path());
  for (const PlainTensor& tensor : tensors) writer.write("/" + tensor.name, tensor.read());
  writer.close();
  file.finish();
}

}  // namespace assay
