#include "assay/align/given/given_tokens.h"

#include <algorithm>

#include "assay/align/given/given_steps.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// A model that is compiled records nothing inside, and one that makes its loss elsewhere is given no labels.
constexpr std::string_view instead =
    "record it, or give integers [micro-batches, sequences, length + 1] by --tokens FILE";

bool is_input(const Identity& id, std::string_view module, std::string_view arg) {
  return id.phase == Phase::forward && id.slot == "input" && id.module == module && id.arg == arg;
}

// [.., sequences, columns] of micro-batches one after the other: `length` columns from `first` on of a
// micro-batch, in the rows of a batch.
std::vector<std::int64_t> turned(const std::vector<std::int64_t>& all, std::int64_t columns,
                                 std::int64_t micro_batch, const Batch& batch, std::int64_t first) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(batch.tokens()));
  for (std::int64_t l = 0; l < batch.length; ++l) {
    for (std::int64_t s = 0; s < batch.sequences; ++s) {
      const std::int64_t sequence = micro_batch * batch.sequences + s;
      result[static_cast<std::size_t>(batch.row(l, s))] =
          all[static_cast<std::size_t>(sequence * columns + first + l)];
    }
  }
  return result;
}

bool is_of_program(const LogicalTensor& t) {
  return t.id.phase == Phase::forward && t.id.slot == "input" && t.id.module == "model.embed_tokens" &&
         t.id.arg != "index" && t.id.call == 0 && t.shape.size() == 2 && !is_float(t.dtype);
}

bool is_program(const GivenDump& given) {
  return std::ranges::any_of(given.tensors(), is_of_program);
}

}  // namespace

std::optional<Batches> batches_of_program(const std::string& path) {
  const GivenDump given(path);
  std::map<std::int64_t, std::int64_t> micro_batches;  // of each step
  std::optional<Batches> all;
  for (const LogicalTensor& t : given.tensors()) {
    if (!is_of_program(t)) continue;
    ++micro_batches[t.id.step];
    const Batch batch = {.sequences = t.shape[0], .length = t.shape[1], .batch_first = true};
    if (!all) all = Batches{batch};
    if (batch.sequences != all->batch.sequences || batch.length != all->batch.length)
      throw Error(
          "{}: '{}' is {}, another micro-batch [{}, {}]; expected one size, or 'tokens' and 'targets' of one",
          path, to_string(t.id), assay::to_string(t.shape), all->batch.sequences, all->batch.length);
  }
  if (!all) return all;
  if (micro_batches.begin()->first != 0)
    throw Error(
        "{}: its first step is {}; a replay begins where the optimizer has no states yet: record step 0",
        path, micro_batches.begin()->first);
  all->steps = std::ssize(micro_batches);
  all->micro_batches = micro_batches.begin()->second;
  for (const auto& [step, count] : micro_batches) {
    if (count != all->micro_batches)
      throw Error("{}: step {} has {} micro-batches, step {} has {}; expected as many in each", path, step,
                  count, micro_batches.begin()->first, all->micro_batches);
  }
  return all;
}

GivenTokens::GivenTokens(const std::string& path, const Batches& batches, std::int64_t vocabulary)
    : given_(path), batches_(batches) {
  are_recorded_ =
      std::ranges::any_of(given_.tensors(), [](const LogicalTensor& t) { return !t.id.slot.empty(); });
  if (is_program(given_))
    take_of_program();
  else
    are_recorded_ ? take_recorded() : take_plain();
  check(vocabulary);
}

void GivenTokens::take_recorded() {
  const GivenSteps tokens(
      given_, [](const LogicalTensor&t) { return is_input(t.id, "model.embed_tokens", "index"); }),
      targets(given_, [](const LogicalTensor&t) {
        return is_input(t.id, "lm_head", "target") || is_input(t.id, "lm_head.cross_entropy()", "target");
      });
  const Batch& batch = batches_.batch;
  const Shape shape = {batch.tokens()},
              of_tokens = batch.batch_first ? Shape{batch.sequences, batch.length} : shape;
  for (std::int64_t step = 0; step < batches_.steps; ++step) {
    for (std::int64_t number = 0; number < batches_.micro_batches; ++number) {
      const MicroBatch which = {step, number};
      sequences_[which] = {
          integers(tokens.at(which, "input index of model.embed_tokens", instead), of_tokens),
          integers(targets.at(which, "input target of lm_head", instead), shape)};
    }
  }
}

// A model that was given a mask of padding computes another function.
void GivenTokens::check_masks() const {
  for (const LogicalTensor& t : given_.tensors()) {
    if (t.id.step >= batches_.steps || !is_input(t.id, "", "attention_mask")) continue;
    const std::vector<double> values = given_.read(t).values();
    if (std::ranges::find(values, 0.0) != values.end())
      throw Error("{}: '{}' leaves tokens out; a replay has no masks: expected sequences without padding",
                  given_.path(), to_string(t.id));
  }
}

void GivenTokens::take_of_program() {
  check_masks();
  const GivenSteps tokens(given_, is_of_program),
      labels(given_, [](const LogicalTensor&t) { return is_input(t.id, "", "labels") && t.id.call == 0; });
  const Batch& batch = batches_.batch;
  const Shape shape = {batch.sequences, batch.length};
  for (std::int64_t step = 0; step < batches_.steps; ++step) {
    for (std::int64_t number = 0; number < batches_.micro_batches; ++number) {
      const MicroBatch which = {step, number};
      std::vector<std::int64_t> next =
          integers(labels.at(which, "input labels of the model", instead), shape);
      for (std::int64_t s = 0; s < batch.sequences; ++s) {
        const auto begin = next.begin() + s * batch.length, end = begin + batch.length;
        std::shift_left(begin, end, 1);
        *(end - 1) = no_target;
      }
      sequences_[which] = {
          turned(integers(tokens.at(which, "input of model.embed_tokens"), shape), batch.length, 0, batch, 0),
          turned(next, batch.length, 0, batch, 0)};
    }
  }
}

const LogicalTensor& GivenTokens::only(const std::string& name) const {
  const auto at =
      std::ranges::find(given_.tensors(), name, [](const LogicalTensor& t) { return t.id.module; });
  if (at == given_.tensors().end())
    throw Error("{}: has {} tensors, but no '{}'; expected one tensor, or 'tokens' and 'targets'",
                given_.path(), given_.tensors().size(), name);
  return *at;
}

void GivenTokens::take_plain() {
  const bool is_stream = given_.tensors().size() == 1;
  const LogicalTensor &first = is_stream ? given_.tensors().front() : only("tokens"),
                      &second = is_stream ? first : only("targets");
  const Batch& batch = batches_.batch;
  const std::int64_t columns = batch.length + (is_stream ? 1 : 0);
  const Shape shape = {batches_.all(), batch.sequences, columns};
  const std::vector<std::int64_t> tokens = integers(first, shape), targets = integers(second, shape);
  for (std::int64_t k = 0; k < batches_.all(); ++k)
    sequences_[{k / batches_.micro_batches, k % batches_.micro_batches}] = {
        turned(tokens, columns, k, batch, 0), turned(targets, columns, k, batch, is_stream ? 1 : 0)};
}

// The first dimensions of what a file holds may be one.
std::vector<std::int64_t> GivenTokens::integers(const LogicalTensor& t, const Shape& shape) const {
  Shape rows = shape;
  if (shape.size() == 3) rows = {shape[0] * shape[1], shape[2]};
  if (is_float(t.dtype) || (t.shape != shape && t.shape != rows))
    throw Error(
        "{}: '{}' is {} {}; expected integers {} ({} steps of {} micro-batches of {} sequences of {} "
        "tokens{})",
        given_.path(), to_string(t.id), name(t.dtype), assay::to_string(t.shape), assay::to_string(shape),
        batches_.steps, batches_.micro_batches, batches_.batch.sequences, batches_.batch.length,
        shape.back() > batches_.batch.length ? " and a last target" : "");
  return given_.read(t).indices();
}

void GivenTokens::check(std::int64_t vocabulary) const {
  for (const auto& [which, sequences] : sequences_) {
    const auto check_range = [&, where = which](const char* what, const std::vector<std::int64_t>& values,
                                                std::optional<std::int64_t> except) {
      for (const std::int64_t token : values) {
        if ((token < 0 || token >= vocabulary) && token != except)
          throw Error("{}: a {} of step {}, micro-batch {} is {}; expected 0 to {}{}", given_.path(), what,
                      where.step, where.number, token, vocabulary - 1,
                      except ? ", or -100 where no loss counts it" : "; what is left out is a target");
      }
    };
    check_range("token", sequences.tokens, std::nullopt);
    check_range("target", sequences.targets, no_target);
    if (std::ranges::count(sequences.targets, no_target) == batches_.batch.tokens())
      throw Error("{}: all targets of step {}, micro-batch {} are -100; expected one that counts",
                  given_.path(), which.step, which.number);
  }
}

}  // namespace assay::align
