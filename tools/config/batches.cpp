#include "assay/config/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "assay/config/readers.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

// Tokens that are read: of far more than first batches.
constexpr std::int64_t most_tokens = 1 << 27;

std::string hash_of(const std::vector<std::int64_t>& tokens) {
  std::vector<std::byte> bytes(tokens.size() * 8);
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    for (std::size_t i = 0; i < 8; ++i)
      bytes[8 * k + i] = static_cast<std::byte>(static_cast<std::uint64_t>(tokens[k]) >> (8 * i));
  }
  return sha256(bytes);
}

// One is the other, later or earlier by one.
bool is_shifted(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  return a.size() == b.size() && a.size() > 1 && std::equal(a.begin() + 1, a.end(), b.begin());
}

std::multiset<std::string> set_of(const std::vector<std::string>& hashes) {
  return {hashes.begin(), hashes.end()};
}

std::multiset<std::string> all_of(const Batches& b) {
  std::multiset<std::string> all;
  for (const auto& batch : b.samples) all.insert(batch.begin(), batch.end());
  return all;
}

// How the first sample that differs does, where the tokens are there.
std::string of_tokens(const Batches& a, const Batches& b, std::size_t batch, std::size_t sample) {
  if (a.tokens.empty() || b.tokens.empty()) return "other tokens";
  const std::vector<std::int64_t>&x = a.tokens[batch][sample], &y = b.tokens[batch][sample];
  if (x.size() != y.size()) return fmt::format("{} tokens | {}", x.size(), y.size());
  if (is_shifted(x, y)) return "the second is shifted by one: it begins one token later";
  if (is_shifted(y, x)) return "the second is shifted by one: it begins one token earlier";
  const auto [at_x, at_y] = std::ranges::mismatch(x, y);
  std::size_t others = 0;
  for (std::size_t k = 0; k < x.size(); ++k) others += x[k] != y[k] ? 1 : 0;
  return fmt::format("{} of {} tokens differ, first at {}: {} | {}", others, x.size(), at_x - x.begin(),
                     *at_x, *at_y);
}

}  // namespace

bool is_batches(const Json& json) {
  const Json* format = json.find("format");
  return format != nullptr && format->is_string() && format->string("") == "assay-batches";
}

Batches batches_of(const Json& json, const std::string& where) {
  if (const std::int64_t version = json.at("version", where).integer(where + ": version"); version != 1)
    throw Error("{}: is version {} of assay-batches; expected 1", where, version);
  Batches b;
  b.file = where;
  for (const Json& batch : json.at("samples", where).array(where + ": samples")) {
    std::vector<std::string>& samples = b.samples.emplace_back();
    for (const Json& hash : batch.array(where + ": samples"))
      samples.push_back(hash.string(where + ": samples"));
  }
  if (b.samples.empty()) throw Error("{}: has no batch; expected one or more in 'samples'", where);
  return b;
}

Batches read_batches(const std::filesystem::path& array) {
  const std::string where = array.string();
  const auto dump = open_dump(array, {});
  if (dump->records.size() != 1)
    throw Error("{}: has {} arrays; expected one, of tokens", where, dump->records.size());
  const Record& record = dump->records.front();
  const Shape& shape = record.shape;
  if (is_float(record.dtype) || shape.size() < 2 || shape.size() > 3)
    throw Error("{}: is {} {}; expected integers of batches, samples and tokens, or of samples and tokens",
                where, name(record.dtype), assay::to_string(shape));
  const std::int64_t length = shape.back(), samples = shape[shape.size() - 2],
                     batches = shape.size() == 3 ? shape.front() : 1;
  if (element_count(shape) > most_tokens)
    throw Error("{}: has {} tokens; expected at most {}: the first batches", where, element_count(shape),
                most_tokens);
  if (element_count(shape) == 0) throw Error("{}: has no token", where);
  const std::vector<std::int64_t> all = dump->read(0).indices();
  Batches b;
  b.file = where;
  auto next = all.begin();
  for (std::int64_t n = 0; n < batches; ++n) {
    auto& tokens = b.tokens.emplace_back();
    for (std::int64_t k = 0; k < samples; ++k, next += length) tokens.emplace_back(next, next + length);
  }
  return hashed(std::move(b));
}

Batches hashed(Batches b) {
  for (const auto& batch : b.tokens) {
    auto& hashes = b.samples.emplace_back();
    for (const auto& sample : batch) hashes.push_back(hash_of(sample));
  }
  return b;
}

std::string difference_of(const Batches& a, const Batches& b) {
  const std::size_t both = std::min(a.samples.size(), b.samples.size());
  for (std::size_t n = 0; n < both; ++n) {
    const std::vector<std::string>&x = a.samples[n], &y = b.samples[n];
    if (x == y) continue;
    if (set_of(x) == set_of(y)) return fmt::format("first in batch {}: the same samples in another order", n);
    if (x.size() != y.size()) return fmt::format("first in batch {}: {} samples | {}", n, x.size(), y.size());
    const std::size_t s = static_cast<std::size_t>(std::ranges::mismatch(x, y).in1 - x.begin());
    const bool shuffled = all_of(a) == all_of(b);
    return fmt::format("first in batch {}, sample {}: {}", n, s,
                       shuffled ? "all samples are there, in an order that goes through other batches"
                                : of_tokens(a, b, n, s));
  }
  if (a.samples.size() != b.samples.size())
    return fmt::format("the first {} batches are equal; {} | {} are recorded", both, a.samples.size(),
                       b.samples.size());
  return "";
}

std::string to_string(const Batches& b) {
  return fmt::format("{} batches of {} samples", b.samples.size(), b.samples.front().size());
}

}  // namespace assay::config
