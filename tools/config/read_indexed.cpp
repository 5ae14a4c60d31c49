#include <algorithm>

#include "assay/config/readers.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

// megatron/core/datasets/indexed_dataset.py: nine bytes, version, dtype, how many sequences and documents;
// then the sequences' lengths, their first bytes in the .bin, and the documents' first sequences.
constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::size_t head = 34;
// First batches are made of fewer; the tokens of longer ones are cut off.
constexpr std::uint64_t most_sequences = 4096, most_tokens_of_one = 1 << 20;

// Bytes of a token, and whether it has a sign; 6 and 7 are float64 and float32.
struct TokenType {
  std::uint8_t code;
  std::size_t bytes;
  bool is_signed;
};
constexpr TokenType types[] = {{1, 1, false}, {2, 1, true}, {3, 2, true},
                               {4, 4, true},  {5, 8, true}, {8, 2, false}};

std::int64_t token(std::span<const std::byte> bytes, const TokenType& type) {
  switch (type.bytes) {
    case 1:
      return type.is_signed ? std::int64_t{static_cast<std::int8_t>(bytes[0])}
                            : std::int64_t{static_cast<std::uint8_t>(bytes[0])};
    case 2: {
      const auto bits = load_little<std::uint16_t>(bytes, 0);
      return type.is_signed ? std::int64_t{static_cast<std::int16_t>(bits)} : std::int64_t{bits};
    }
    case 4:
      return static_cast<std::int32_t>(load_little<std::uint32_t>(bytes, 0));
    default:
      return static_cast<std::int64_t>(load_little<std::uint64_t>(bytes, 0));
  }
}

}  // namespace

Batches read_indexed(const std::filesystem::path& index) {
  const std::string where = index.string();
  const auto idx = MappedFile::open(index);
  const auto begin = idx->range(0, head, "the head of an indexed dataset");
  if (!idx->text().starts_with(magic))
    throw Error("{}: is no index of Megatron-LM; expected MMIDIDX at its beginning", where);
  if (const auto version = load_little<std::uint64_t>(begin, 9); version != 1)
    throw Error("{}: is version {} of Megatron-LM's index; expected 1", where, version);
  const auto code = static_cast<std::uint8_t>(begin[17]);
  const auto type = std::ranges::find(types, code, &TokenType::code);
  if (type == std::end(types))
    throw Error("{}: its tokens have the dtype {}; expected integers: 1 to 5 or 8", where, code);
  const auto all = load_little<std::uint64_t>(begin, 18);
  if (all == 0) throw Error("{}: has no sequence", where);
  if (all > idx->bytes().size() / 12)
    throw Error("{}: has {} bytes; expected more for {} sequences", where, idx->bytes().size(), all);
  const auto lengths = idx->range(head, 4 * all, "the lengths of its sequences");
  const auto pointers = idx->range(head + 4 * all, 8 * all, "the places of its sequences");
  const auto bin = MappedFile::open(std::filesystem::path(index).replace_extension(".bin"));
  Batches b;
  b.file = where;
  b.tokens.emplace_back();
  for (std::uint64_t n = 0; n < std::min(all, most_sequences); ++n) {
    const auto length = static_cast<std::int32_t>(load_little<std::uint32_t>(lengths, 4 * n));
    if (length < 0) throw Error("{}: sequence {} has {} tokens; expected 0 or more", where, n, length);
    const std::uint64_t taken =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(length), most_tokens_of_one);
    const auto bytes = bin->range(load_little<std::uint64_t>(pointers, 8 * n), taken * type->bytes,
                                  "a sequence of the index");
    auto& tokens = b.tokens.back().emplace_back();
    for (std::size_t k = 0; k < taken; ++k) tokens.push_back(token(bytes.subspan(k * type->bytes), *type));
  }
  return hashed(std::move(b));
}

}  // namespace assay::config
