#include "mpi_post.h"

#include <fmt/format.h>

#include <algorithm>
#include <cereal/archives/binary.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string_view>

#include "assay/compare/result/printable.h"

namespace assay::align {
namespace {

// First in every envelope; another text when what follows is another.
constexpr std::string_view letter_format = "assay letter 2\n";
// A tensor of that size travels inside of its envelope: together they stay below the 4096 bytes that Open MPI
// sends at once through shared memory (btl_vader_eager_limit).
constexpr std::size_t largest_inside = 2048;
// A message of MPI counts its bytes in an int; smaller still, so that tests can send several.
constexpr std::size_t largest_piece = std::size_t{1} << 24;

// What is written and read of a letter before the pieces of its tensor.
struct Envelope {
  Letter::Kind kind = {};
  std::string address, what;
  DType dtype = {};
  Shape shape;
  std::uint64_t size = 0;  ///< of the tensor in bytes
  std::string inside;      ///< these bytes, if they are few
  std::int64_t checkup = 0, step = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, address, what, dtype, shape, size, inside, checkup, step);
  }
};

std::string written(const Letter& letter) {
  const std::span<const std::byte> bytes = letter.tensor.bytes();
  Envelope envelope = {
      letter.kind, letter.address, letter.what, letter.tensor.dtype(), letter.tensor.shape(), bytes.size(),
      "",          letter.checkup, letter.step};
  if (bytes.size() <= largest_inside)
    envelope.inside.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::ostringstream out;
  out << letter_format;
  cereal::BinaryOutputArchive{out}(envelope);
  return std::move(out).str();
}

Envelope read(int from, const std::string& text) {
  if (!text.starts_with(letter_format))
    end_all_processes(fmt::format(
        "rank {} runs another version of assay; expected the same program on every machine", from));
  std::istringstream in(text.substr(letter_format.size()));
  Envelope envelope;
  cereal::BinaryInputArchive{in}(envelope);
  return envelope;
}

// Calls transfer(offset, size) for each piece of so many bytes.
template <class Transfer>
void in_pieces(std::size_t size, Transfer transfer) {
  for (std::size_t at = 0; at < size; at += largest_piece)
    transfer(at, static_cast<int>(std::min(largest_piece, size - at)));
}

bool carries_tensor(Letter::Kind kind) {
  return kind == Letter::Kind::collective || kind == Letter::Kind::message;
}

bool may_overtake(Letter::Kind kind) {
  return kind == Letter::Kind::question || kind == Letter::Kind::answer;
}

}  // namespace

// No process can be two runs ahead of another: it would have met it.
Post::Post(int processes, int run)
    : envelope_tag_(1 + 2 * (run % 2)),
      piece_tag_(envelope_tag_ + 1),
      arriving_(static_cast<std::size_t>(processes)) {}

void Post::send(int to, const Letter& letter) {
  Leaving& leaving = leaving_.emplace_back(Leaving{letter.kind, written(letter), letter.tensor, {}});
  MPI_Isend(leaving.envelope.data(), static_cast<int>(leaving.envelope.size()), MPI_BYTE, to, envelope_tag_,
            MPI_COMM_WORLD, &leaving.requests.emplace_back());
  const std::span<const std::byte> bytes = leaving.tensor.bytes();
  if (bytes.size() <= largest_inside) return;
  in_pieces(bytes.size(), [&](std::size_t at, int size) {
    MPI_Isend(bytes.data() + at, size, MPI_BYTE, to, piece_tag_, MPI_COMM_WORLD,
              &leaving.requests.emplace_back());
  });
}

// Pieces are asked for in the order of their envelopes, in which MPI keeps the messages of a sender.
bool Post::open_next_envelope(const Deliver& deliver) {
  int is_there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, envelope_tag_, MPI_COMM_WORLD, &is_there, &status);
  if (is_there == 0) return false;
  int length = 0;
  MPI_Get_count(&status, MPI_BYTE, &length);
  std::string text(static_cast<std::size_t>(length), '\0');
  const int from = status.MPI_SOURCE;
  MPI_Recv(text.data(), length, MPI_BYTE, from, envelope_tag_, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  Envelope envelope = read(from, text);
  Letter letter = {.kind = envelope.kind,
                   .address = std::move(envelope.address),
                   .what = std::move(envelope.what),
                   .checkup = envelope.checkup,
                   .step = envelope.step};
  if (may_overtake(letter.kind)) {
    deliver(from, std::move(letter));
    return true;
  }
  Arriving& arriving =
      arriving_[static_cast<std::size_t>(from)].emplace_back(Arriving{std::move(letter),
                                                                      envelope.dtype,
                                                                      std::move(envelope.shape),
                                                                      std::vector<std::byte>(envelope.size),
                                                                      {}});
  if (envelope.size <= largest_inside) {
    std::ranges::copy(std::as_bytes(std::span(envelope.inside)), arriving.bytes.begin());
    return true;
  }
  in_pieces(arriving.bytes.size(), [&](std::size_t at, int size) {
    MPI_Irecv(arriving.bytes.data() + at, size, MPI_BYTE, from, piece_tag_, MPI_COMM_WORLD,
              &arriving.requests.emplace_back());
  });
  return true;
}

void Post::progress(const Deliver& deliver) {
  while (open_next_envelope(deliver)) {
  }
  for (std::size_t from = 0; from < arriving_.size(); ++from) {
    std::deque<Arriving>& letters = arriving_[from];
    while (!letters.empty() && are_complete(letters.front().letter.kind, letters.front().requests)) {
      Arriving arrived = std::move(letters.front());
      letters.pop_front();
      arrived.letter.tensor = Tensor(arrived.dtype, std::move(arrived.shape), std::move(arrived.bytes));
      deliver(static_cast<int>(from), std::move(arrived.letter));
    }
  }
  leaving_.remove_if([this](Leaving& letter) { return are_complete(letter.kind, letter.requests); });
}

bool Post::are_complete(Letter::Kind kind, std::vector<MPI_Request>& requests) {
  int count = 0;
  std::vector<int> which(requests.size());
  MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, which.data(), MPI_STATUSES_IGNORE);
  if (carries_tensor(kind) && count != MPI_UNDEFINED) moved_ += count;
  return std::ranges::all_of(requests, [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
}

bool Post::is_busy() const {
  return !leaving_.empty() ||
         std::ranges::any_of(arriving_, [](const auto& letters) { return !letters.empty(); });
}

// What arrives by pieces is a tensor, or waits behind one.
bool Post::carries_tensors() const {
  return std::ranges::any_of(leaving_, [](const Leaving& l) { return carries_tensor(l.kind); }) ||
         std::ranges::any_of(arriving_, [](const auto& letters) { return !letters.empty(); });
}

bool Post::has_met_all() {
  if (!meeting_) MPI_Ibarrier(MPI_COMM_WORLD, &meeting_.emplace());
  int all_are_here = 0;
  MPI_Test(&*meeting_, &all_are_here, MPI_STATUS_IGNORE);
  return all_are_here != 0;
}

void end_all_processes(const std::string& why) {
  fmt::print(stderr, "assay: {}\n", printable(why));
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

}  // namespace assay::align
