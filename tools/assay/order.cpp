// The order in which a program adds, found through cases in files.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/case_writer.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/sum_call.h"
#include "shared_options.h"
#include "verb.h"

extern char** environ;

namespace assay {
namespace {

namespace fs = std::filesystem;

struct OrderVerb {
  std::vector<std::string> command;
  std::string of = "matmul", dtype = "float32", result, output;
  long long terms = 256, rows = 16, columns = 16;
  int at_once = 64;
  bool json = false;
};

void declare(OrderVerb& verb, Options& options) {
  options.option("command", verb.command, "the program and its words, behind --; folders of cases follow")
      .required()
      .holds("COMMAND");
  options.option("--of", verb.of, "sum, dot or matmul (default)").one_of({"sum", "dot", "matmul"});
  options.option("--terms", verb.terms, "of each sum: K of a matmul (default 256)")
      .holds("N")
      .within(1LL, 1LL << 20);
  options.option("--rows", verb.rows, "M of a matmul (default 16)").holds("M").within(1LL, 1LL << 20);
  options.option("--columns", verb.columns, "N of a matmul (default 16)").holds("N").within(1LL, 1LL << 20);
  options.option("--dtype", verb.dtype, "of the inputs (default float32)").holds("T");
  options.option("--result", verb.result, "dtype of the result (default: that of the inputs)").holds("T");
  options.option("--at-once", verb.at_once, "cases for one run of the program (default 64)")
      .holds("N")
      .within(1LL, 1LL << 16);
  options.option("-o,--output", verb.output, "write the order, for --accumulator of check").holds("F.json");
  options.flag("--json", verb.json, "print the order as JSON");
}

// Is gone, with all in it, at the end of the scope.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = fs::temp_directory_path() / "assay-order-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw Error("{}: cannot be made ({})", name, std::strerror(errno));
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A Ctrl-C is the program's: its end is told here.
class InterruptIgnored {
 public:
  InterruptIgnored() : before_(std::signal(SIGINT, SIG_IGN)) {}
  ~InterruptIgnored() { std::signal(SIGINT, before_); }
  InterruptIgnored(const InterruptIgnored&) = delete;
  InterruptIgnored& operator=(const InterruptIgnored&) = delete;

 private:
  void (*before_)(int);
};

// What the program prints goes to standard error, as all that is no result.
void run_program_of(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const InterruptIgnored ignored;
  pid_t process = 0;
  const int problem = ::posix_spawnp(&process, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (problem != 0) throw Error("{}: cannot be run ({})", printable(words[0]), std::strerror(problem));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0) {
    if (errno != EINTR)
      throw Error("{}: cannot be waited for ({})", printable(words[0]), std::strerror(errno));
  }
  if (WIFSIGNALED(status)) throw Error("{}: was ended by signal {}", printable(words[0]), WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    throw Error("{}: ended with exit status {}; expected 0", printable(words[0]), WEXITSTATUS(status));
}

SumAnswers ask_program(const OrderVerb& verb, const SumKernel& kernel, DType result,
                       std::span<const SumQuestion> questions) {
  const ScratchFolder scratch;
  std::vector<std::string> words = verb.command;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    NewCase made{kernel.op, fmt::format("sum_{}", i), {}, kernel.inputs(questions[i]), {}, false};
    made.outputs.push_back({"y", Tensor(result, kernel.output_shape())});
    words.push_back(scratch.path() / std::to_string(i));
    write_case(made, words.back());
  }
  run_program_of(words);
  SumAnswers answers{result, {}};
  for (std::size_t i = verb.command.size(); i < words.size(); ++i) {
    const Case c = load_case(words[i]);
    const Tensor made = c.read(c.outputs.front());
    kernel.expect_output(made);
    answers.elements.push_back(made.values());
  }
  return answers;
}

int run(const OrderVerb& verb, const Options&) {
  const DType dtype = parse_dtype_option("--dtype", verb.dtype).value();
  const DType result = parse_dtype_option("--result", verb.result).value_or(dtype);
  SumKernel kernel = SumKernel::of(verb.of, verb.terms, dtype, verb.rows, verb.columns);
  kernel.asked.most_questions = static_cast<std::size_t>(verb.at_once);
  if (!verb.output.empty() && !verb.output.ends_with(".json"))
    throw Error("-o {}: expected a name that ends with .json", verb.output);
  if (!verb.output.empty()) check_can_write_whole(verb.output);
  const RevealedOrder found = reveal_order(kernel.asked, [&](std::span<const SumQuestion> questions) {
    return ask_program(verb, kernel, result, questions);
  });
  if (!verb.output.empty()) write_whole(verb.output, found.json() + "\n");
  fmt::print("{}{}", verb.json ? found.json() : found.text(), verb.json ? "\n" : "");
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb order = {
    "order", "find the order in which a program adds, by asking it for sums",
    "assay order --of dot --terms 4096 --dtype bfloat16 -o kernel.json -- ./my_kernel", declared<OrderVerb>};
}

}  // namespace assay
