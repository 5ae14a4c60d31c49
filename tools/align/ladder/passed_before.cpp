#include "assay/align/ladder/passed_before.h"

#include <fstream>
#include <span>

#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::string hash_of(const std::string& content) {
  return sha256(std::as_bytes(std::span(content)));
}

}  // namespace

PassedBefore::PassedBefore(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  const auto status = std::filesystem::status(file_);
  const bool is_new = !std::filesystem::exists(status);
  if (!is_new && !std::filesystem::is_regular_file(status))
    throw Error("{}: is no file; delete it, or take another folder with --work", file_.string());
  if (!std::ofstream(file_, std::ios::app))
    throw Error("{}: cannot be written; take another folder with --work", file_.string());
  std::ifstream in(file_);
  if (!in) throw Error("{}: cannot be read; delete it to run every stage again", file_.string());
  for (std::string line; std::getline(in, line);) known_.insert(line);
}

bool PassedBefore::has(const std::string& content) const {
  return !content.empty() && known_.contains(hash_of(content));
}

void PassedBefore::add(const std::string& content) {
  if (content.empty() || file_.empty() || !known_.insert(hash_of(content)).second) return;
  std::ofstream out(file_, std::ios::app);
  out << hash_of(content) << '\n';
  if (!out.flush()) throw Error("{}: cannot be written", file_.string());
}

}  // namespace assay::align
