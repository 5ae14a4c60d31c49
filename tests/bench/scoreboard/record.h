#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// What the scoreboard keeps of its runs: a JSON line each, so that runs may be cut off, spread over
/// processes and repeated; the last line of a run counts.
namespace assay::bench {

/// What a rule of others says of a pair of dumps.
struct RivalScore {
  double worst = 0;  ///< above 1: it alarms
  bool first_is_right = false;
};

struct Record {
  enum class Kind : std::uint8_t { fault, clean, scale };
  Kind kind = Kind::fault;
  std::string name;    ///< "F001"; "tp=2 bf16 seed 1"; "0.1 % at model.layers.1 bf16"
  bool found = false;  ///< of a clean run: an alarm
  bool phase = false, tensor = false, dimension = false, named = false;  ///< the first divergence's are right
  bool is_closed = false;  ///< the fault has a closed form that could be named
  bool is_of_optimizer = false;
  int window = 0;  ///< modules blamed up to the right one; 0: it is not among them
  double seconds = 0;
  std::string told;  ///< the name of the cause that align gives, if it gives one
  std::string got;   ///< what align says
  std::map<std::string, RivalScore> rivals = {};
};

void append(const std::filesystem::path&, const Record&);
/// Of the files that are there. Throws Error for a line that is no record.
std::vector<Record> records_of(const std::vector<std::filesystem::path>&);

/// Markdown: the rules in rows, then the runs that align did not get right.
std::string table_of(const std::vector<Record>&);

}  // namespace assay::bench
