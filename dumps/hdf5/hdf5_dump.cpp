#include "assay/dumps/hdf5/hdf5.h"
#include "assay/dumps/record/readers.h"

namespace assay {
namespace {

class Hdf5Dump : public Dump {
 public:
  Hdf5Dump(std::shared_ptr<const MappedFile> file, const OpenOptions& options)
      : file_(std::move(file), options.log) {
    path = file_.file().path();
    format = "hdf5";
    const Hdf5File::Listing& listing = file_.list();
    notes = listing.notes;
    left_out = listing.left_out;
    records.reserve(listing.datasets.size());
    for (const Hdf5File::Dataset& dataset : listing.datasets) {
      records.push_back(plain_record(dataset.name, hinted(*dataset.dtype, options.dtype_hint), dataset.shape,
                                     records.size()));
    }
  }
  Tensor read(std::size_t index) const override {
    return file_.read(file_.list().datasets.at(index), records[index].dtype);
  }
  TensorSource source(std::size_t index) const override {
    return file_.source(file_.list().datasets.at(index), records[index].dtype);
  }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + file_.list().datasets.at(index).name;
  }

 private:
  Hdf5File file_;
};

}  // namespace

// A user block pushes the signature to 512, 1024, 2048, ..
bool fits_hdf5(const std::shared_ptr<const MappedFile>& file) {
  constexpr std::string_view magic = "\x89HDF\r\n\x1a\n";
  bool fits = has_magic(*file, magic);
  for (std::size_t at = 512; !fits && at < file->bytes().size(); at *= 2) fits = has_magic(*file, magic, at);
  return fits;
}

std::unique_ptr<Dump> open_hdf5(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  return std::make_unique<Hdf5Dump>(std::move(file), options);
}

}  // namespace assay
