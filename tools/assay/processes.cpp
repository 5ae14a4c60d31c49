#include "processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "assay/golden/error.h"
#include "log.h"

#ifdef ASSAY_MPI
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#endif

namespace assay {
namespace {

#ifdef ASSAY_MPI
// A message of MPI counts its bytes in an int.
constexpr std::size_t largest_message = std::size_t{1} << 30;

void send_to_first(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); at += largest_message) {
    MPI_Send(text.data() + at, static_cast<int>(std::min(largest_message, text.size() - at)), MPI_BYTE, 0, 0,
             MPI_COMM_WORLD);
  }
}

std::string receive(int from, std::uint64_t size) {
  std::string text(size, '\0');
  for (std::size_t at = 0; at < text.size(); at += largest_message) {
    MPI_Recv(text.data() + at, static_cast<int>(std::min(largest_message, text.size() - at)), MPI_BYTE, from,
             0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return text;
}

std::vector<std::string> gather_at_first(const std::string& own, int rank, int size) {
  const std::uint64_t length = own.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size));
  MPI_Gather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank != 0) {
    send_to_first(own);
    return {};
  }
  std::vector<std::string> all = {own};
  for (int from = 1; from < size; ++from)
    all.push_back(receive(from, lengths[static_cast<std::size_t>(from)]));
  return all;
}
#endif

}  // namespace

Processes::Processes(bool alone) {
  if (!alone) job_ = align::join_mpi_job();
  if (!job_) return;
  team_.rank = job_->rank();
  team_.size = job_->size();
#ifdef ASSAY_MPI
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_size(machine, &on_this_machine_);
  MPI_Comm_free(&machine);
  team_.gather = [rank = team_.rank, size = team_.size](const std::string& own) {
    return gather_at_first(own, rank, size);
  };
#endif
}

Log Processes::log() const {
  return team_.size > 1 ? program_log().of_rank(team_.rank) : program_log();
}

bool Processes::can_begin(const std::string& problem) const {
  const std::vector<std::string> problems = team_.size == 1 ? std::vector{problem} : team_.gather(problem);
  const auto first = std::ranges::find_if(problems, [](const std::string& p) { return !p.empty(); });
  int is_well = first == problems.end() ? 1 : 0;
#ifdef ASSAY_MPI
  if (team_.size > 1) MPI_Bcast(&is_well, 1, MPI_INT, 0, MPI_COMM_WORLD);
#endif
  if (first == problems.end()) return is_well == 1;
  throw Error("{}{}", first == problems.begin() ? "" : fmt::format("process {}: ", first - problems.begin()),
              *first);
}

void Processes::give_up(const std::string& why) const {
  if (job_) job_->end_all(why);
}

}  // namespace assay
