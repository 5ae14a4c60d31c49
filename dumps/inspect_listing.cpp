#include <fmt/core.h>

#include <algorithm>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/dumps/record/statistics_in_json.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::string_view listing_beginning = R"({"schema":"inspect/1")";

int rank_in(const Json& recorded, std::string_view where) {
  const std::int64_t rank = recorded.at("rank", where).integer(fmt::format("{}: rank", where));
  if (rank < 0 || rank >= max_ranks)
    throw Error("{}: rank is {}, expected 0 or more and below {}", where, rank, max_ranks);
  return static_cast<int>(rank);
}

// Whether each rank held the whole tensor: a part says nothing of it. Ranks that are placed by offsets or
// rows have no layout to list, but another shape.
bool are_copies(const Json& tensor, const Json& recorded, const Shape& whole, std::string_view where) {
  const auto is_copy = [&](const Json& rank) {
    const Json* shape = rank.find("shape");
    return shape != nullptr && shape->shape(where) == whole;
  };
  return tensor.at("layout", where).string(where).empty() &&
         std::ranges::all_of(recorded.array(where), is_copy);
}

class InspectListing : public Dump {
 public:
  explicit InspectListing(const MappedFile& file) {
    path = file.path();
    format = "inspect --json";
    const std::string where = path.string();
    const Json json = parse_json(file.text(), where);
    for (const Json& tensor : json.at("tensors", where).array(where + ": tensors")) {
      try {
        add(tensor, where);
      } catch (const Error& problem) {
        left_out.emplace_back(problem.what());
      }
    }
    for (const auto& [key, into] :
         {std::pair{"notes", &notes}, {"left_out", &left_out}, {"unreadable", &unreadable}}) {
      for (const Json& text : json.at(key, where).array(where)) into->push_back(text.string(where));
    }
    const auto says_nothing = [](const Record& r) { return !r.statistics && r.checksum.empty(); };
    if (!records.empty() && std::ranges::all_of(records, says_nothing))
      notes.push_back(where + ": was made without --stats and --hash: it says nothing of the values");
  }
  Tensor read(std::size_t index) const override {
    throw Error("{}: the listing holds no values of it, only what was computed of them", location(index));
  }
  std::string location(std::size_t index) const override {
    return fmt::format("{}: {}", path.string(), to_string(records.at(index).id));
  }

 private:
  void add(const Json& tensor, const std::string& listing) {
    const auto text = [&](std::string_view key) -> const std::string& {
      return tensor.at(key, listing).string(fmt::format("{}: {}", listing, key));
    };
    const std::string where = listing + ": " + text("name");
    if (tensor.find("rank") != nullptr)
      throw Error("{}: is one rank's part, listed with --ranks; expected a listing without it", where);
    Record record;
    record.seq = static_cast<std::int64_t>(records.size());
    const auto integer = [&](std::string_view key) { return tensor.at(key, where).integer(where); };
    record.id = {integer("step"), integer("micro_batch"), Phase::none, text("module"), text("slot"),
                 text("arg"),     integer("call")};
    if (text("phase") != name(Phase::none)) record.id.phase = parse_phase(text("phase"), where);
    record.op = text("op");
    if (const Json* known = tensor.find("count")) record.count = known->integer(where);
    const auto dtype = parse_dtype(text("dtype"));
    if (!dtype) throw Error("{}: dtype '{}' is unknown", where, text("dtype"));
    record.dtype = *dtype;
    record.shape = record.global_shape = tensor.at("shape", where).shape(where);
    record.has_bits = false;
    for (const std::string_view key : {"trouble", "copies_differ"}) {
      if (tensor.find(key) != nullptr) left_out.push_back(fmt::format("{}: {}", where, text(key)));
    }
    add_what_is_known(tensor, std::move(record), where);
  }

  // What the listing computed of it; or, where it had no values, what each rank's recorder had.
  void add_what_is_known(const Json& tensor, Record record, const std::string& where) {
    const std::int64_t elements = element_count(record.shape);
    record.statistics = statistics_in(tensor, elements, where);
    if (const Json* hash = tensor.find("sha256")) record.checksum = "sha256:" + hash->string(where);
    const Json* recorded = tensor.find("recorded");
    const bool is_known = record.statistics || !record.checksum.empty();
    if (is_known || recorded == nullptr || !are_copies(tensor, *recorded, record.shape, where)) {
      records.push_back(std::move(record));
      return;
    }
    for (const Json& rank : recorded->array(where)) {
      record.rank = rank_in(rank, where);
      record.statistics = statistics_in(rank, elements, where);
      const Json* checksum = rank.find("checksum");
      record.checksum = checksum == nullptr ? "" : checksum->string(where);
      records.push_back(record);
    }
  }
};

}  // namespace

bool fits_inspect_listing(const std::shared_ptr<const MappedFile>& file) {
  std::string start;
  for (const char c : file->text()) {
    if (start.size() == listing_beginning.size()) break;
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) start += c;
  }
  return start == listing_beginning;
}

std::unique_ptr<Dump> open_inspect_listing(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  return std::make_unique<InspectListing>(*file);
}

}  // namespace assay
