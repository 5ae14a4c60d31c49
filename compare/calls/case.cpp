#include "assay/compare/calls/case.h"

#include <algorithm>
#include <set>
#include <utility>

#include "assay/compare/calls/attributes_in_json.h"
#include "assay/dumps/io/file.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/npy.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

CaseOutput read_declaration(const Json& json, const std::string& where) {
  CaseOutput t;
  t.name = json.at("name", where).string(where + ": name");
  const std::string here = where + ": '" + t.name + "'";
  t.file = json.at("file", here).string(here + ": file");
  if (!is_plain_name(t.file))
    throw Error("{}: file '{}' is no plain name; expected a file in the case's folder", here, t.file);
  const std::string& dtype = json.at("dtype", here).string(here + ": dtype");
  const auto parsed = parse_dtype(dtype);
  if (!parsed)
    throw Error("{}: dtype '{}' is not known; expected a torch name such as bfloat16", here, dtype);
  t.dtype = *parsed;
  t.shape = json.at("shape", here).shape(here + ": shape");
  return t;
}

// bf16 and fp8 lie in the file as their bits; the declared dtype says what they mean.
Tensor read_array(const fs::path& folder, const CaseOutput& t) {
  const auto file = MappedFile::open_in(folder, t.file);
  const std::string where = file->path().string();
  const Tensor tensor =
      read_npy(parse_npy(file->bytes(), file->bytes().size(), where, t.dtype), file->bytes(), file, where);
  if (tensor.dtype() != t.dtype) {
    throw Error("{}: holds {}; expected {} as case.json declares for '{}'", where, name(tensor.dtype()),
                name(t.dtype), t.name);
  }
  return tensor;
}

void expect_shape(const fs::path& folder, const CaseOutput& t, const Tensor& tensor) {
  if (tensor.shape() == t.shape) return;
  throw Error("{}: has shape {}; expected {} as case.json declares for '{}'", (folder / t.file).string(),
              to_string(tensor.shape()), to_string(t.shape), t.name);
}

// Strides and offsets may be negative, so they are no Shape to Json.
Shape integers(const Json& json, const std::string& where) {
  Shape values;
  for (const Json& item : json.array(where)) values.push_back(item.integer(where));
  return values;
}

// A strided or broadcast input: {"shape", "strides", "offset"} say how to walk the array in the file; they
// stand in the entry itself, or in a "view" of it.
Tensor read_input(const fs::path& folder, const Json& json, const CaseOutput& t, const std::string& where) {
  const Tensor base = read_array(folder, t);
  const Json* view = json.find("view");
  if (view == nullptr && json.find("strides") == nullptr) {
    expect_shape(folder, t, base);
    return base;
  }
  if (view != nullptr) expect_shape(folder, t, base);
  const Json& walk = view != nullptr ? *view : json;
  const Json* offset = walk.find("offset");
  const Shape shape = walk.at("shape", where).shape(where);
  // A stride of 0 makes any size of a few bytes; no operator case needs more than this.
  constexpr std::int64_t most_elements = std::int64_t{1} << 28;
  if (element_count(shape) > most_elements) {
    throw Error("{}: the view has {} elements; expected at most {}", where, element_count(shape),
                most_elements);
  }
  return gather_view(base, shape, integers(walk.at("strides", where), where),
                     offset == nullptr ? 0 : offset->integer(where));
}

}  // namespace

Tensor Case::read(const CaseOutput& output) const {
  const Tensor tensor = read_array(folder, output);
  expect_shape(folder, output, tensor);
  return tensor;
}

Case load_case(const fs::path& folder) {
  Case c;
  c.folder = folder;
  const auto file = MappedFile::open_in(folder, "case.json");
  const std::string where = file->path().string();
  c.json = file->text();
  const Json json = parse_json(c.json, where);
  const std::string& op = json.at("op", where).string(where + ": op");
  const Json* given_name = json.find("case");
  const std::string name =
      given_name == nullptr ? folder.filename().string() : given_name->string(where + ": case");
  // It becomes the name of a folder when golden outputs are written.
  if (given_name != nullptr && !is_plain_name(name)) {
    throw Error("{}: case is '{}'; expected letters, digits, '_', '.' and '-'", where, name);
  }
  c.name = op + "/" + name;
  try {
    c.op = &find_operator(op);
    if (const Json* attributes = json.find("attributes")) read_attributes(*attributes, where, c.attributes);
    complete_attributes(*c.op, c.attributes);
  } catch (const Error& e) {
    throw Error("{}: {}", where, e.what());
  }
  std::set<std::string> input_files, output_files, output_names;
  for (const Json& input : json.at("inputs", where).array(where + ": inputs")) {
    const CaseOutput t = read_declaration(input, where);
    input_files.insert(t.file);
    c.inputs.push_back({t.name, read_input(folder, input, t, where + ": '" + t.name + "'")});
  }
  for (const Json& output : json.at("outputs", where).array(where + ": outputs")) {
    c.outputs.push_back(read_declaration(output, where));
    const CaseOutput& t = c.outputs.back();
    if (!output_names.insert(t.name).second) throw Error("{}: lists the output '{}' twice", where, t.name);
    if (!output_files.insert(t.file).second || t.file == "case.json") {
      throw Error("{}: '{}' lies in '{}', which is another's; expected a file of its own", where, t.name,
                  t.file);
    }
    if (input_files.contains(t.file)) {
      throw Error("{}: '{}' lies in '{}', which is an input's file; expected a file of its own", where,
                  t.name, t.file);
    }
  }
  return c;
}

std::vector<fs::path> find_cases(const fs::path& path) {
  if (fs::is_regular_file(path / "case.json")) return {path};
  std::vector<fs::path> folders;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (entry.path().filename() == "case.json") folders.push_back(entry.path().parent_path());
    }
  }
  if (folders.empty())
    throw Error("{}: no case.json here or below; expected the folder of an operator case", path.string());
  std::ranges::sort(folders);
  return folders;
}

}  // namespace assay
