#include "recording.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/rank_writer.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

// The part of one rank. Its lines are JSON as Python makes it, with keys that Record does not have.
class Recording {
 public:
  Recording(const std::string& folder, int rank, const std::vector<std::string>& dims, const Shape& shape)
      : folder_(folder), rank_(rank), mesh_{dims, shape}, writer_(folder, rank) {}

  std::pair<std::string, std::uint64_t> write(const Tensor& tensor) {
    const RankWriter::Place place = writer_.write(tensor);
    return {place.dataset, place.offset};
  }
  void note(const std::string& line) {
    check(line);
    writer_.journal(line);
  }
  void finish(const std::string& index) {
    std::string_view rest = index;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      check(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    writer_.finish(index, Durability::disk);
  }
  const std::string& file() const { return writer_.file(); }

 private:
  // What the reader would refuse must not get into a dump that looks whole.
  void check(std::string_view line) const {
    const std::string where = folder_ + ": a record";
    check_names(parse_index_entry(parse_json(line, where), where, rank_, mesh_), folder_);
  }

  std::string folder_;
  int rank_;
  Mesh mesh_;
  RankWriter writer_;
};

}  // namespace

void bind_recording(nb::module_& m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Recording>(m, "Recording")
      .def(nb::init<const std::string&, int, const std::vector<std::string>&, const Shape&>(),
           nb::arg("folder"), nb::arg("rank"), nb::arg("dims"), nb::arg("shape"), Unlocked())
      .def_prop_ro("file", &Recording::file)
      .def("write", &Recording::write, Unlocked())
      .def("note", &Recording::note, Unlocked())
      .def("finish", &Recording::finish, Unlocked());
  m.def(
      "begin_dump",
      [](const std::string& folder, int world_size, const std::vector<std::string>& dims, const Shape& shape,
         const std::string& producer) {
        begin_dump(folder, Manifest{world_size, {dims, shape}, producer});
      },
      Unlocked());
  m.def(
      "finish_dump", [](const std::string& folder) { finish_dump(folder, Durability::disk); }, Unlocked());
}

}  // namespace assay::python
