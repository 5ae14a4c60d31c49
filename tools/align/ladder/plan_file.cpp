#include "assay/align/ladder/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "assay/align/arithmetic/arithmetic.h"
#include "assay/align/settings/optimizer_settings.h"
#include "assay/align/step/loss_shares.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/file.h"
#include "assay/dumps/io/parse_toml.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// A table whose keys are taken one by one; what is left nobody knows.
class PlanTable {
 public:
  PlanTable(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  bool read(const char* key, std::string& value) {
    const toml::node* node = take(key);
    if (node == nullptr) return false;
    const auto text = node->value_exact<std::string>();
    if (!text || text->empty()) refuse(*node, key, "a text");
    value = *text;
    return true;
  }
  bool read(const char* key, std::int64_t& value, std::int64_t least = 1) {
    const toml::node* node = take(key);
    if (node == nullptr) return false;
    const auto number = node->value_exact<std::int64_t>();
    if (!number || *number < least || *number > most)
      refuse(*node, key, fmt::format("an integer from {} to {}", least, most));
    value = *number;
    return true;
  }
  void read(const char* key, double& value) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto number = node->value<double>();
    if (!number || !(*number >= 0 && *number <= 1)) refuse(*node, key, "a number from 0 to 1");
    value = *number;
  }
  void read(const char* key, bool& value) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto flag = node->value_exact<bool>();
    if (!flag) refuse(*node, key, "true or false");
    value = *flag;
  }
  void read(const char* key, std::vector<std::string>& values) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) refuse(*node, key, "a list of texts");
    for (const toml::node& item : *list) {
      const auto text = item.value_exact<std::string>();
      if (!text) refuse(item, key, "a list of texts");
      values.push_back(*text);
    }
  }
  const toml::node* take(const char* key) {
    known_.insert(key);
    return table_.get(key);
  }
  void expect_no_more() const {
    for (const auto& [key, node] : table_) {
      if (!known_.contains(std::string(key.str())))
        throw Error("{}:{}: has a key '{}'; expected one of {}", where_, node.source().begin.line, key.str(),
                    fmt::join(known_, ", "));
    }
  }
  [[noreturn]] void refuse(const toml::node& node, std::string_view key, const std::string& expected) const {
    throw Error("{}:{}: '{}' is something else; expected {}", where_, node.source().begin.line, key,
                expected);
  }
  const std::string& where() const { return where_; }

 private:
  static constexpr std::int64_t most = 1 << 19;
  const toml::table& table_;
  const std::string where_;
  std::set<std::string> known_;
};

// Work and strategy of the whole plan, or of one stage.
bool read_work(PlanTable& table, Work& work, Parallel& parallel) {
  table.read("model", work.model);
  table.read("precision", work.precision);
  table.read("optimizer", work.optimizer);
  table.read("loss_average", work.loss_average);
  table.read("prompt", work.prompt);
  table.read("steps", work.steps);
  const bool states_micro_batches = table.read("micro_batches", work.micro_batches);
  table.read("sequences", work.sequences);
  table.read("length", work.length);
  table.read("seed", work.seed, 0);
  std::string text;
  if (table.read("parallel", text)) parallel = parse_parallel(text, table.where() + ": parallel");
  parse_precision(work.precision);
  parse_optimizer(work.optimizer);
  parse_loss_average(work.loss_average);
  return states_micro_batches;
}

// A model that is a file lies beside the plan, what a preset is called is no file; "m.toml,layers=2" is one.
void beside(std::string& model, const std::string& plan) {
  const std::string file = model.substr(0, model.find(','));
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending != ".toml" && ending != ".json") return;
  model = (std::filesystem::path(plan).parent_path() / model).string();
}

ProviderSettings provider_in(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    throw Error("{}:{}: expected a table such as [subject]", where, node.source().begin.line);
  PlanTable reader(*table, where);
  ProviderSettings settings;
  std::int64_t timeout = settings.command.timeout.count();
  const bool runs = reader.read("command", settings.command.line),
             recorded = reader.read("dump", settings.path), replays = reader.read("fault", settings.fault);
  reader.read("timeout", timeout);
  reader.read("directory", settings.command.directory);
  reader.read("files", settings.command.files);
  reader.expect_no_more();
  if (runs + recorded + replays > 1)
    throw Error("{}:{}: is a command, a dump and a replay at once; expected one of them", where,
                node.source().begin.line);
  const auto beside_plan = [&](std::string& path) {
    path = (std::filesystem::path(where).parent_path() / path).string();
  };
  const bool has_command_keys =
      table->contains("timeout") || table->contains("directory") || table->contains("files");
  if (!runs && has_command_keys)
    throw Error("{}:{}: has timeout, directory or files, which are of a command; expected a 'command'", where,
                node.source().begin.line);
  if (recorded) beside_plan(settings.path);
  if (!settings.command.directory.empty()) beside_plan(settings.command.directory);
  std::ranges::for_each(settings.command.files, beside_plan);
  settings.command.timeout = std::chrono::seconds(timeout);
  if (runs) settings.kind = ProviderSettings::Kind::command;
  if (recorded) settings.kind = ProviderSettings::Kind::dump;
  return settings;
}

// A text is a list of one.
void read_files(PlanTable& reader, const char* key, const toml::table& table,
                std::vector<std::string>& files) {
  if (const toml::node* node = table.get(key); node != nullptr && node->is_string())
    reader.read(key, files.emplace_back());
  else
    reader.read(key, files);
  for (std::string& file : files)
    file = (std::filesystem::path(reader.where()).parent_path() / file).string();
}

PlanFile::ConfigurationFiles configuration_in(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    throw Error("{}:{}: expected a table [configuration]", where, node.source().begin.line);
  PlanTable reader(*table, where);
  PlanFile::ConfigurationFiles files;
  read_files(reader, "subject", *table, files.subject);
  read_files(reader, "reference", *table, files.reference);
  reader.read("accept", files.accepted);
  reader.expect_no_more();
  if (files.subject.empty() || files.reference.empty())
    throw Error("{}:{}: has the configuration of one side; expected files of 'subject' and of 'reference'",
                where, node.source().begin.line);
  return files;
}

std::vector<Rung> stages_in(const toml::node& node, const PlanFile& plan, const std::string& where) {
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty())
    throw Error("{}:{}: expected [[stage]] tables", where, node.source().begin.line);
  std::vector<Rung> rungs;
  for (const toml::node& item : *list) {
    if (!item.is_table()) throw Error("{}:{}: expected a [[stage]] table", where, item.source().begin.line);
    PlanTable reader(*item.as_table(), where);
    Rung rung;
    rung.kind = Rung::Kind::stated;
    rung.work = plan.work;
    read_work(reader, rung.work, rung.parallel);
    if (rung.work.model != plan.work.model) beside(rung.work.model, where);
    reader.read("name", rung.name);
    reader.expect_no_more();
    if (printable(rung.name) != rung.name)
      throw Error("{}:{}: the name '{}' has control characters; expected a text for a line of the report",
                  where, item.source().begin.line, printable(rung.name));
    if (rung.name.empty()) rung.name = to_string(switches_of(rung.parallel));
    if (const std::string why = objection(rung.work, rung.parallel); !why.empty())
      throw Error("{}:{}: stage '{}': {}", where, item.source().begin.line, rung.name, why);
    if (switches_of(rung.parallel).empty()) rung.kind = Rung::Kind::single;
    if (const auto same = std::ranges::find(rungs, folder_of(rung), folder_of); same != rungs.end())
      throw Error("{}:{}: the stages '{}' and '{}' would both write to a folder '{}'; expected other names",
                  where, item.source().begin.line, printable(same->name), printable(rung.name),
                  printable(folder_of(rung)));
    rungs.push_back(std::move(rung));
  }
  return rungs;
}

}  // namespace

PlanFile load_plan(const std::string& file) {
  const auto mapped = MappedFile::open(file);
  const toml::table root = parse_toml(mapped->text(), file, "a plan in TOML");
  PlanTable reader(root, file);
  PlanFile plan;
  plan.states_micro_batches = read_work(reader, plan.work, plan.target);
  beside(plan.work.model, file);
  reader.read("reruns", plan.reruns, 0);
  reader.read("accept_nondeterminism", plan.accepts_other_bits);
  for (const auto& [key, side] : {std::pair{"subject", &plan.subject}, {"reference", &plan.reference}}) {
    if (const toml::node* node = reader.take(key)) *side = provider_in(*node, file);
  }
  if (const toml::node* node = reader.take("configuration"))
    plan.configuration = configuration_in(*node, file);
  if (const toml::node* node = reader.take("stage")) plan.rungs = stages_in(*node, plan, file);
  reader.expect_no_more();
  const auto replays = [](const ProviderSettings& s) { return s.kind == ProviderSettings::Kind::replay; };
  if (plan.work.model.empty() && (replays(plan.subject) || replays(plan.reference)))
    throw Error("{}: has no 'model', which a replay needs; expected a preset, a TOML file or a config.json",
                file);
  return plan;
}

std::string to_toml(const Work& work, const std::vector<Rung>& rungs, const std::string& comment) {
  std::ostringstream out;
  const auto text = [&](const char* key, const std::string& value) {
    out << key << " = " << toml::value(value) << "\n";
  };
  for (const std::string_view line : split(comment, '\n')) out << "# " << line << "\n";
  text("model", work.model);
  text("precision", work.precision);
  for (const Rung& r : rungs) {
    out << "\n[[stage]]\n";
    text("name", r.name);
    if (const std::string parallel = to_string(r.parallel); !parallel.empty()) text("parallel", parallel);
    if (r.work.model != work.model) text("model", r.work.model);
    out << fmt::format("steps = {}\nmicro_batches = {}\nsequences = {}\nlength = {}\n", r.work.steps,
                       r.work.micro_batches, r.work.sequences, r.work.length);
  }
  return out.str();
}

std::unique_ptr<Provider> make_provider(const ProviderSettings& settings) {
  switch (settings.kind) {
    case ProviderSettings::Kind::dump:
      return dump_provider(settings.path);
    case ProviderSettings::Kind::command:
      return command_provider(settings.command);
    case ProviderSettings::Kind::replay:
      break;
  }
  return replay_provider(settings.fault);
}

}  // namespace assay::align
