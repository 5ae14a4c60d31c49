#include "record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "assay/align/faults/fault.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"
#include "rivals.h"

namespace assay::bench {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Record::Kind;

// JSON has no infinity: null.
Json number(double x) {
  return std::isfinite(x) ? Json(x) : Json();
}

Record record_of(const Json& j) {
  Record r;
  r.kind = static_cast<Kind>(j.at("kind").get<int>());
  r.name = j.at("name");
  r.found = j.at("found");
  r.phase = j.at("phase");
  r.tensor = j.at("tensor");
  r.dimension = j.at("dimension");
  r.named = j.at("named");
  r.is_closed = j.at("closed");
  r.is_of_optimizer = j.at("optimizer");
  r.window = j.at("window");
  r.seconds = j.at("seconds");
  r.told = j.value("told", "");
  r.got = j.at("got");
  for (const auto& [rule, score] : j.at("rivals").items())
    r.rivals[rule] = {score.at(0).is_null() ? infinity : score.at(0).get<double>(), score.at(1)};
  return r;
}

std::string share(std::int64_t n, std::size_t of) {
  if (of == 0) return "-";
  return fmt::format("{} of {} ({:.0f} %)", n, of, 100 * static_cast<double>(n) / static_cast<double>(of));
}

std::vector<Record> of_kind(const std::vector<Record>& all, Kind kind) {
  std::vector<Record> some;
  std::ranges::copy_if(all, std::back_inserter(some), [&](const Record& r) { return r.kind == kind; });
  return some;
}

std::string row_of_align(const std::vector<Record>& faults, const std::vector<Record>& clean) {
  const auto count = [&](auto member) { return std::ranges::count_if(faults, member); };
  const auto n = faults.size();
  const auto closed = static_cast<std::size_t>(count(&Record::is_closed));
  const auto found = share(count(&Record::found), n);
  const bool is_quiet = std::ranges::none_of(clean, &Record::found);
  return fmt::format(
      "| assay align | {} | {} | {} | {} | {} | {} | {} |\n", found, is_quiet ? found : "-",
      share(count(&Record::tensor), n), share(count(&Record::phase), n), share(count(&Record::dimension), n),
      share(count([](const Record& r) { return r.is_closed && r.named && r.dimension; }), closed),
      share(std::ranges::count_if(clean, &Record::found), clean.size()));
}

// Names are "tp=2 bf16 seed 1" and "F001", or "F001 bf16".
std::string precision_of(const Record& r) {
  const std::size_t space = r.name.find(' ');
  if (space == std::string::npos) return std::string(align::find_fault(r.name).conditions.precision);
  return r.name.substr(space + 1, r.name.find(' ', space + 1) - space - 1);
}

// At zero false alarms: over everything that the rule says of clean runs in the same precision.
std::string row_of(const Rival& rival, const std::vector<Record>& faults, const std::vector<Record>& clean) {
  const auto worst = [&](const Record& r) {
    const auto at = r.rivals.find(rival.name);
    return at == r.rivals.end() ? 0 : at->second.worst;
  };
  std::map<std::string, double> quiet;
  for (const Record& r : clean) {
    double& limit = quiet[precision_of(r)];
    limit = std::max(limit, worst(r));
  }
  const auto alarms = [&](const std::vector<Record>& runs) {
    return std::ranges::count_if(runs, [&](const Record& r) { return worst(r) > 1; });
  };
  const auto detected = std::ranges::count_if(
      faults, [&](const Record& r) { return worst(r) > std::max(1.0, quiet[precision_of(r)]); });
  const auto right = std::ranges::count_if(faults, [&](const Record& r) {
    const auto at = r.rivals.find(rival.name);
    return at != r.rivals.end() && at->second.first_is_right;
  });
  return fmt::format("| {} | {} | {} | {} | - | - | - | {} |\n", rival.name,
                     share(alarms(faults), faults.size()), share(detected, faults.size()),
                     share(right, faults.size()), share(alarms(clean), clean.size()));
}

}  // namespace

void append(const std::filesystem::path& file, const Record& r) {
  Json j = {{"kind", static_cast<int>(r.kind)},
            {"name", r.name},
            {"found", r.found},
            {"phase", r.phase},
            {"tensor", r.tensor},
            {"dimension", r.dimension},
            {"named", r.named},
            {"closed", r.is_closed},
            {"optimizer", r.is_of_optimizer},
            {"window", r.window},
            {"seconds", r.seconds},
            {"told", r.told},
            {"got", r.got},
            {"rivals", Json::object()}};
  for (const auto& [rule, score] : r.rivals)
    j["rivals"][rule] = Json::array({number(score.worst), score.first_is_right});
  append_text(file, j.dump() + "\n");
}

std::vector<Record> records_of(const std::vector<std::filesystem::path>& files) {
  std::map<std::string, Record> last;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      try {
        Record r = record_of(Json::parse(line));
        last[r.name] = std::move(r);
      } catch (const Json::exception& e) {
        throw Error("{}: a line is no record of this program: {}", file.string(), e.what());
      }
    }
  }
  std::vector<Record> all;
  for (auto& [name, record] : last) all.push_back(std::move(record));
  return all;
}

std::string table_of(const std::vector<Record>& all) {
  const std::vector<Record> faults = of_kind(all, Kind::fault), clean = of_kind(all, Kind::clean),
                            scales = of_kind(all, Kind::scale);
  std::string text =
      "| rule | found | at zero false alarms | first tensor right | phase | dimension | named | false alarms "
      "|\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  text += row_of_align(faults, clean);
  for (const Rival& rival : rivals()) text += row_of(rival, faults, clean);
  double modules = 0;
  std::int64_t blamed = 0;
  std::vector<Record> steps;
  for (const Record& r : faults) {
    modules += r.window;
    blamed += r.window > 0;
    if (r.is_of_optimizer) steps.push_back(r);
  }
  if (blamed > 0)
    text += fmt::format("\nmodules blamed up to the right one: {:.2f} on average of {} faults\n",
                        modules / static_cast<double>(blamed), blamed);
  text += fmt::format("faults of the optimizer's step: {} found\n",
                      share(std::ranges::count_if(steps, &Record::found), steps.size()));
  for (const Record& r : scales) text += fmt::format("{}: {}\n", r.name, r.got);
  for (const Record& r : faults) {
    if (r.found && r.phase && r.tensor && r.dimension && r.named) continue;
    text += fmt::format("{}:{}{}{}{}{} {}\n", r.name, r.found ? "" : " not found", r.phase ? "" : " phase",
                        r.tensor ? "" : " tensor", r.dimension ? "" : " dimension",
                        r.named          ? ""
                        : r.told.empty() ? " no cause"
                                         : " another cause",
                        r.got);
  }
  for (const Record& r : clean) {
    if (r.found) text += fmt::format("false alarm: {}: {}\n", r.name, r.got);
  }
  return text;
}

}  // namespace assay::bench
