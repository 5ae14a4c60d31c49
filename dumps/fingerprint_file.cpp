#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "assay/dumps/fingerprint.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::string_view baseline_beginning = R"({"assay_baseline":)";
constexpr std::int64_t newest = 2;  // the first one has SHA-256 in place of fingerprints

std::string text(const Json& object, std::string_view key, const std::string& where) {
  const Json* value = object.find(key);
  return value == nullptr ? "" : value->string(fmt::format("{}: {}", where, key));
}

std::int64_t integer(const Json& object, std::string_view key, std::int64_t otherwise,
                     const std::string& where) {
  const Json* value = object.find(key);
  return value == nullptr ? otherwise : value->integer(fmt::format("{}: {}", where, key));
}

double number(const Json& value, std::string_view key, const std::string& where) {
  const auto found = value.number();
  if (!found || !std::isfinite(*found))
    throw Error("{}: {} is {}, expected a number", where, key, value.kind());
  return *found;
}

// Of shortest digits, which are those of a float32 for every narrower float.
double value_of(DType dtype, double digits) {
  const bool is_narrow = is_float(dtype) && dtype != DType::float64;
  return is_narrow ? static_cast<double>(static_cast<float>(digits)) : digits;
}

DType dtype_in(const Json& object, const std::string& where) {
  const std::string& word = object.at("dtype", where).string(where + ": dtype");
  const auto dtype = parse_dtype(word);
  if (!dtype) throw Error("{}: dtype '{}' is unknown", where, word);
  return *dtype;
}

std::string checksum_in(const Json& tensor, const std::string& where) {
  const std::string kind = tensor.find("fingerprint") != nullptr ? "fingerprint" : "sha256";
  const std::size_t digits = kind == "sha256" ? 64 : 16;
  const std::string& digest = tensor.at(kind, where).string(fmt::format("{}: {}", where, kind));
  if (digest.size() != digits || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Error("{}: {} is '{}', expected {} hexadecimal digits", where, kind, digest, digits);
  return fmt::format("{}:{}", kind, digest);
}

Fingerprint::Entry entry_in(const Json& tensor, const std::string& file) {
  const std::string where = file + ": " + tensor.at("module", file).string(file + ": module");
  Fingerprint::Entry e;
  e.id = {integer(tensor, "step", 0, where),
          integer(tensor, "micro_batch", -1, where),
          Phase::none,
          text(tensor, "module", where),
          text(tensor, "slot", where),
          text(tensor, "arg", where),
          integer(tensor, "call", 0, where)};
  if (const std::string phase = text(tensor, "phase", where); !phase.empty())
    e.id.phase = parse_phase(phase, where);
  e.op = text(tensor, "op", where);
  if (tensor.find("count") != nullptr) e.count = integer(tensor, "count", 0, where);
  e.dtype = dtype_in(tensor, where);
  e.shape = tensor.at("shape", where).shape(where);
  e.checksum = checksum_in(tensor, where);
  if (const Json* sum = tensor.find("abs_sum")) e.abs_sum = number(*sum, "abs_sum", where);
  if (const Json* l2 = tensor.find("l2")) e.l2 = number(*l2, "l2", where);
  if (const Json* sum = tensor.find("sum")) e.sum = value_of(e.dtype, number(*sum, "sum", where));
  return e;
}

Fingerprint fingerprint_in(const MappedFile& file) {
  const std::string where = file.path().string();
  const Json json = parse_json(file.text(), where);
  const std::int64_t version = json.at("assay_baseline", where).integer(where + ": assay_baseline");
  if (version < 1 || version > newest)
    throw Error("{}: is a baseline of version {}, expected 1 to {}", where, version, newest);
  Fingerprint f;
  f.only = text(json, "only", where);
  f.reason = text(json, "reason", where);
  if (const Json& producer = json.at("producer", where); !producer.is_null()) f.producer = producer.text();
  for (const Json& loss : json.at("losses", where).array(where + ": losses")) {
    const DType dtype = dtype_in(loss, where);
    f.losses.push_back({loss.at("name", where).string(where), dtype,
                        value_of(dtype, number(loss.at("value", where), "value", where))});
  }
  for (const Json& tensor : json.at("tensors", where).array(where + ": tensors"))
    f.tensors.push_back(entry_in(tensor, where));
  return f;
}

class FingerprintFile : public Dump {
 public:
  explicit FingerprintFile(const MappedFile& file) {
    path = file.path();
    format = "baseline";
    const Fingerprint f = fingerprint_in(file);
    producer = f.producer;
    if (!f.only.empty()) notes.push_back(fmt::format("{}: of tensors '{}' only", path.string(), f.only));
    for (const Fingerprint::Entry& e : f.tensors) add(e);
  }
  Tensor read(std::size_t index) const override {
    throw Error("{}: a baseline holds no values, only what was computed of them", location(index));
  }
  std::string location(std::size_t index) const override {
    return fmt::format("{}: {}", path.string(), to_string(records.at(index).id));
  }

 private:
  void add(const Fingerprint::Entry& e) {
    Record r;
    r.id = e.id;
    r.seq = static_cast<std::int64_t>(records.size());
    r.op = e.op;
    r.count = e.count;
    r.dtype = e.dtype;
    r.shape = r.global_shape = e.shape;
    r.has_bits = false;
    r.checksum = e.checksum;
    r.statistics.emplace();
    r.statistics->l2 = e.l2;
    r.statistics->sum = e.sum;
    r.statistics->abs_sum = e.abs_sum;
    r.statistics->nan = r.statistics->inf = 0;  // else it would not have been accepted
    records.push_back(std::move(r));
  }
};

}  // namespace

bool fits_fingerprint(const std::shared_ptr<const MappedFile>& file) {
  std::string start;
  for (const char c : file->text()) {
    if (start.size() == baseline_beginning.size()) break;
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) start += c;
  }
  return start == baseline_beginning;
}

std::unique_ptr<Dump> open_fingerprint(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  return std::make_unique<FingerprintFile>(*file);
}

bool is_fingerprint(const std::filesystem::path& path) {
  return fits_fingerprint(MappedFile::open(path));
}

Fingerprint read_fingerprint(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  if (!fits_fingerprint(file))
    throw Error("{}: is no baseline; expected a file that assay baseline accept wrote", path.string());
  return fingerprint_in(*file);
}

}  // namespace assay
