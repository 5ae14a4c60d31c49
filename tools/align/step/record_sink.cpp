#include "assay/align/step/record_sink.h"

#include <fmt/format.h>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"

namespace assay::align {
namespace {

constexpr const char *count_name = "how many records", *record_name = "a record",
                     *tensor_name = "a record's tensor";

Tensor as_tensor(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {DType::uint8, {static_cast<std::int64_t>(text.size())}, std::vector(bytes, bytes + text.size())};
}

std::string as_text(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.bytes().data()), t.bytes().size()};
}

}  // namespace

void RecordSink::add(const Record& record, const Tensor& tensor) {
  if (!selection_.has(record.id)) return;
  if (writer_ != nullptr) {
    writer_->add(record, tensor);
    return;
  }
  communicator_.send(0, record_name, as_tensor(index_entry(record, "", "tensor").text()));
  communicator_.send(0, tensor_name, tensor);
  ++sent_;
}

void RecordSink::collect(const assay::Mesh& mesh, const std::vector<int>& senders) {
  if (writer_ == nullptr) {
    communicator_.send(0, count_name, Tensor::from_indices({}, std::vector{sent_}));
    sent_ = 0;
  }
  if (communicator_.rank() != 0) return;
  for (const int rank : senders) {
    const std::int64_t count = communicator_.receive(rank, count_name).indices().front();
    for (std::int64_t k = 0; k < count; ++k) {
      const std::string line = as_text(communicator_.receive(rank, record_name));
      const std::string where = fmt::format("a record of rank {}", rank);
      const Record record = parse_index_entry(parse_json(line, where), where, rank, mesh);
      writer_->add(record, communicator_.receive(rank, tensor_name));
    }
  }
}

}  // namespace assay::align
