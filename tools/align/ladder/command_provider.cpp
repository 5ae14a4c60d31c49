#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "assay/align/ladder/provider.h"
#include "assay/align/settings/strategy.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using Clock = std::chrono::steady_clock;

// Of the command that runs. Who ends an alignment ends what it started, which is in a group of its own.
std::atomic<pid_t> running_group = 0;
static_assert(std::atomic<pid_t>::is_always_lock_free);

extern "C" void end_with_command(int signal) {
  if (const pid_t group = running_group; group > 0) kill(-group, SIGTERM);
  raise(signal);  // as it was before: SA_RESETHAND
}

void end_commands_with_us() {
  struct sigaction action = {};
  action.sa_handler = end_with_command;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
}

// What a process group leaves behind when it is told to end, before it is killed.
constexpr std::chrono::seconds grace{3};
constexpr std::chrono::milliseconds poll{20};

struct Placeholder {
  std::string_view name;
  std::function<std::string(const RunOrder&)> value;
};

template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}

void add_strategies(std::vector<Placeholder>& all) {
  using Kind = Strategy::Placeholder;
  for (const Strategy& s : strategies()) {
    if (s.placeholder == Kind::value)
      all.push_back({s.key(), [&s](const RunOrder& o) { return s.value(o.rung.parallel); }});
    if (s.placeholder == Kind::is_on)
      all.push_back({s.key(), [&s](const RunOrder& o) { return s.is_default(o.rung.parallel) ? "0" : "1"; }});
  }
}

std::vector<Placeholder> all_placeholders() {
  std::vector<Placeholder> all = {
      // A command may run in another directory.
      {"dump", [](const RunOrder& o) { return std::filesystem::absolute(o.folder / "dump").string(); }},
      {"stage", [](const RunOrder& o) { return folder_of(o.rung); }},
      {"parallel", [](const RunOrder& o) { return to_string(o.rung.parallel); }},
      {"ranks", [](const RunOrder& o) { return text_of(o.rung.parallel.ranks()); }},
  };
  add_strategies(all);
  const std::vector<Placeholder> of_work = {
      {"model", [](const RunOrder& o) { return o.rung.work.model; }},
      {"precision", [](const RunOrder& o) { return o.rung.work.precision; }},
      {"steps", [](const RunOrder& o) { return text_of(o.rung.work.steps); }},
      {"micro_batches", [](const RunOrder& o) { return text_of(o.rung.work.micro_batches); }},
      {"sequences", [](const RunOrder& o) { return text_of(o.rung.work.sequences); }},
      {"length", [](const RunOrder& o) { return text_of(o.rung.work.length); }},
      {"seed", [](const RunOrder& o) { return text_of(o.rung.work.seed); }},
      {"routing",
       [](const RunOrder& o) {
         return o.routing.empty() ? "" : std::filesystem::absolute(o.routing).string();
       }},
      {"rerun", [](const RunOrder& o) { return text_of(o.rerun); }},
  };
  all.insert(all.end(), of_work.begin(), of_work.end());
  return all;
}

const std::vector<Placeholder>& placeholders() {
  static const std::vector<Placeholder> all = all_placeholders();
  return all;
}

std::string names_of_placeholders() {
  std::string all;
  for (const Placeholder& p : placeholders()) all += fmt::format("{}{{{}}}", all.empty() ? "" : ", ", p.name);
  return all;
}

// Rungs of the plan fill in the line; this one only shows whether it can be.
const Rung& some_rung() {
  static const Rung rung = {.name = "single device"};
  return rung;
}

// What a program said of its trouble. Where ranks follow each other down, and their launcher has a page to
// say of it, the first error is the one that counts.
std::string last_words(const std::filesystem::path& file) {
  constexpr std::string_view mark = "Error: ";
  constexpr std::size_t longest = 300;
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0; };
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line)) {
    const std::size_t error = line.find(mark);
    if (error != std::string::npos &&
        std::any_of(line.begin() + static_cast<std::ptrdiff_t>(error + mark.size()), line.end(), is_word))
      return "its first error: " + line.substr(0, longest);
    if (std::ranges::any_of(line, is_word)) last = line.substr(0, longest);
  }
  return "its last line: " + (last.empty() ? "none" : last);
}

// Whether a shell would split or change what is filled in: outside of quotes.
bool is_bare(std::string_view line, std::string_view placeholder) {
  for (std::size_t at = line.find(placeholder); at != std::string_view::npos;
       at = line.find(placeholder, at + 1)) {
    const std::string_view before = line.substr(0, at);
    if (std::ranges::count(before, '"') % 2 == 0 && std::ranges::count(before, '\'') % 2 == 0) return true;
  }
  return false;
}

// The command in a process group of its own, so that all that it started can be ended.
pid_t start(const std::string& line, const Command& command, const std::filesystem::path& output) {
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0) throw Error("{}: cannot be written: {}", output.string(), std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    close(out);
    throw Error("no process can be started: {}", std::strerror(errno));
  }
  if (child == 0) {
    setpgid(0, 0);
    const int none = open("/dev/null", O_RDONLY);
    dup2(none, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (!command.directory.empty() && chdir(command.directory.c_str()) != 0) _exit(126);
    execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  setpgid(child, child);
  running_group = child;
  close(out);
  return child;
}

// Nothing while it runs.
std::optional<int> status_of(pid_t child) {
  int status = 0;
  const pid_t ended = waitpid(child, &status, WNOHANG);
  return ended == child ? std::optional(status) : std::nullopt;
}

std::optional<int> wait_until(pid_t child, Clock::time_point end) {
  for (;;) {
    if (const auto status = status_of(child)) return status;
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(poll);
  }
}

// A shell ends at once, but the launcher that it started needs a moment to end its ranks, which are in groups
// of their own.
void end_group(pid_t group) {
  const auto end = Clock::now() + grace;
  kill(-group, SIGTERM);
  const bool has_ended = wait_until(group, end).has_value();
  while (Clock::now() < end && kill(-group, 0) == 0) std::this_thread::sleep_for(poll);
  kill(-group, SIGKILL);
  if (!has_ended) waitpid(group, nullptr, 0);
}

// @param status  nothing: the command did not end by itself
std::string ending_of(const std::optional<int>& status) {
  if (!status) return "ended by the timeout";
  return WIFSIGNALED(*status) ? fmt::format("signal {}", WTERMSIG(*status))
                              : fmt::format("exit status {}", WEXITSTATUS(*status));
}

class CommandProvider : public Provider {
 public:
  explicit CommandProvider(Command command) : command_(std::move(command)) {
    filled_in(command_.line, {some_rung(), {}});
    if (command_.line.find("{dump}") == std::string::npos)
      throw Error("the command '{}' has no {{dump}}: expected the folder for its dump in its words",
                  printable(command_.line));
    end_commands_with_us();
    if (!command_.directory.empty() && !std::filesystem::is_directory(command_.directory))
      throw Error("the command '{}' is to run in {}, which is no folder", printable(command_.line),
                  printable(command_.directory));
  }

  RunResult run(const RunOrder& order) override {
    const auto begin = Clock::now();
    RunResult result;
    result.dump = order.folder / "dump";
    result.output = order.folder / "output.txt";
    try {
      const std::string folder = std::filesystem::absolute(result.dump).string();
      if (folder.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~!{}") != std::string::npos &&
          is_bare(command_.line, "{dump}"))
        throw Error(
            "the shell would take {} apart; write \"{{dump}}\" in the command, or choose another --work",
            printable(folder));
      std::filesystem::remove_all(result.dump);
      const std::string line = filled_in(command_.line, order);
      const pid_t child = start(line, command_, result.output);
      order.log.info("command: {}", line);
      order.log.debug("process {}; output in {}", child, result.output.string());
      const auto status = wait_until(child, begin + command_.timeout);
      const std::string said =
          last_words(result.output);  // before it is told to end, of which it may say much
      end_group_of(child, status.has_value());
      running_group = 0;
      const std::chrono::duration<double> taken = Clock::now() - begin;
      order.log.info("{} after {:.3f} s", ending_of(status), taken.count());
      judge(result, status, said);
    } catch (const std::exception& e) {
      result.state = RunResult::State::crashed;
      result.problem = e.what();
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return result;
  }

  bool depends_on_name() const override { return command_.line.find("{stage}") != std::string::npos; }
  bool takes_routing() const override { return command_.line.find("{routing}") != std::string::npos; }
  bool tells_apart(const Work& a, const Work& b) const override {
    const Rung of_a = {.name = "a stage", .work = a}, of_b = {.name = "a stage", .work = b};
    return filled_in(command_.line, {of_a, {}}) != filled_in(command_.line, {of_b, {}});
  }
  bool reorders() const override { return command_.line.find("{rerun}") != std::string::npos; }
  bool may_vary() const override { return true; }
  std::string content(const Rung&) const override {
    if (command_.files.empty()) return "";
    std::string all = command_.line + "\n" + command_.directory;
    for (const std::string& file : command_.files)
      all += fmt::format("\n{} {}", file, sha256(std::as_bytes(std::span(MappedFile::open(file)->text()))));
    return all;
  }
  std::string text() const override { return command_.line; }

 private:
  // Ranks that outlive their launcher would disturb the next run.
  static void end_group_of(pid_t child, bool has_ended) {
    if (has_ended)
      kill(-child, SIGKILL);
    else
      end_group(child);
  }

  void judge(RunResult& result, const std::optional<int>& status, const std::string& said) const {
    const std::string hint = fmt::format("; {}; all of it: {}", printable(said), result.output.string());
    if (!status) {
      result.state = RunResult::State::timed_out;
      result.problem = fmt::format("did not end within {} s and was ended{}", command_.timeout.count(), hint);
    } else if (WIFSIGNALED(*status)) {
      result.state = RunResult::State::crashed;
      result.problem =
          fmt::format("was ended by signal {} ({}){}", WTERMSIG(*status), strsignal(WTERMSIG(*status)), hint);
    } else if (WEXITSTATUS(*status) != 0) {
      result.state = RunResult::State::crashed;
      const int code = WEXITSTATUS(*status), signal = code - 128;  // as a shell says it
      result.problem = fmt::format(
          "exited with status {}{}{}", code,
          signal > 0 && signal < NSIG ? fmt::format(" (signal {}, {})", signal, strsignal(signal)) : "",
          hint);
    } else if (!std::filesystem::exists(result.dump)) {
      result.state = RunResult::State::no_dump;
      result.problem = fmt::format("ended well, but wrote no dump to {}{}", result.dump.string(), hint);
    }
  }

  const Command command_;
};

}  // namespace

std::string_view name(RunResult::State state) {
  constexpr std::array<std::string_view, 4> names = {"finished", "crashed", "timed out", "no dump"};
  return names[static_cast<std::size_t>(state)];
}

std::string filled_in(std::string_view text, const RunOrder& order) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "{{" || text.substr(i, 2) == "}}") {
      out += text[i++];
      continue;
    }
    if (text[i] != '{') {
      out += text[i];
      continue;
    }
    const std::size_t end = text.find('}', i);
    const std::string_view name = text.substr(i + 1, end == std::string_view::npos ? end : end - i - 1);
    const auto at = std::ranges::find(placeholders(), name, &Placeholder::name);
    if (end == std::string_view::npos || at == placeholders().end())
      throw Error("'{{{}' is no placeholder; expected one of {}, or {{{{ for a brace", printable(name),
                  names_of_placeholders());
    out += at->value(order);
    i = end;
  }
  return out;
}

std::unique_ptr<Provider> command_provider(Command command) {
  return std::make_unique<CommandProvider>(std::move(command));
}

}  // namespace assay::align
