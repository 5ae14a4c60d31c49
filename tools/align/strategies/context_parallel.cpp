// Context parallel (docs/semantics.md D5). Every rank of cp holds all parameters and its tokens of each
// sequence; all but attention is local, gradients of parameters are summed over cp. ulysses (Jacobs 2023,
// arXiv 2309.14509): tokens in order; all-to-all over cp turns [tokens / c, heads] into [tokens, heads / c]
// and back: attention of a head is that of one device. ring (Liu 2023, arXiv 2310.01889): of 2c chunks rank r
// holds r and 2c - 1 - r, so that all have as much to do; keys and values go around, c - 1 turns over cp, and
// what each turn gives is joined by its log-sum-exp.
#include "assay/align/strategies/context_parallel.h"

#include <fmt/format.h>

#include "assay/align/placement/token_rows.h"

namespace assay::align {
namespace {

using Kind = Movement::Kind;

class Ring {
 public:
  Ring(Machine& on, const std::string& module, const Value& q, double scale)
      : on_(on),
        of_(module),
        module_(module + "/ring"),
        q_(q),
        scale_(scale),
        ranks_(on.mesh().size(Axis::cp)) {}

  Value run(Value k, Value v) {
    const std::vector<NamedValue> inputs = {{"q", q_}, {"k", k}, {"v", v}};
    const std::size_t first = on_.nodes().size();
    for (std::int64_t turn = 0; turn < ranks_; ++turn) {
      if (turn > 0) {
        k = on_.move(module_, {Kind::shift, Axis::cp, 2}, k);
        v = on_.move(module_, {Kind::shift, Axis::cp, 2}, v);
      }
      attend(k, v, (on_.mesh().coordinate(Axis::cp) - turn + ranks_) % ranks_);
    }
    const std::vector<NamedValue> outputs = join();
    on_.declare(first, of_, "attention", inputs, {{"is_causal", true}, {"scale", scale_}}, outputs);
    return outputs.front().value;
  }

 private:
  // Against the keys of one rank; of those behind a query nothing is seen.
  void attend(const Value& k, const Value& v, std::int64_t rank_of_keys) {
    const std::int64_t length = q_.shape[2] * ranks_;
    const std::vector<std::int64_t> mine = positions_of(on_.mesh(), length),
                                    theirs = positions_of(on_.mesh(), length, rank_of_keys);
    const Value mask = on_.derive({}, {q_.shape[2], k.shape[2]}, {}, [=](const auto&) {
      Machine::Integers visible;
      for (const std::int64_t query : mine) {
        for (const std::int64_t key : theirs) visible.push_back(key <= query ? 1 : 0);
      }
      return visible;
    });
    const auto results = on_.call_all(module_, "attention", {{"q", q_}, {"k", k}, {"v", v}, {"mask", mask}},
                                      {{"scale", scale_}});
    out_.push_back(value_named(results, "out"));
    const Value& lse = value_named(results, "lse");
    lse_.push_back(reshape(lse, {lse.shape[0], lse.shape[1], lse.shape[2], 1}));
  }

  // out = sum exp(lse_i - lse) out_i, lse = log sum exp lse_i
  std::vector<NamedValue> join() {
    std::vector<NamedValue> all;
    for (const Value& lse : lse_) all.push_back({fmt::format("x_{}", all.size()), lse});
    const Value beside = on_.call(module_, "concat", all, {{"dim", -1}});
    const Value lse = on_.call(module_, "logsumexp", {{"x", beside}}, {{"dims", std::vector<double>{-1}}});
    const Value total = reshape(lse, lse_.front().shape);
    Value sum;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const Value share =
          on_.call(module_, "exp", {{"x", on_.call(module_, "sub", {{"a", lse_[i]}, {"b", total}})}});
      const Value term = on_.call(module_, "mul", {{"a", out_[i]}, {"b", share}});
      sum = i == 0 ? term : on_.call(module_, "add", {{"a", sum}, {"b", term}});
    }
    return {{"out", sum}, {"lse", lse}};
  }

  Value reshape(const Value& x, const Shape& shape) {
    return on_.call(module_, "reshape", {{"x", x}},
                    {{"shape", std::vector<double>(shape.begin(), shape.end())}});
  }

  Machine& on_;
  const std::string& of_;
  const std::string module_;
  const Value& q_;
  const double scale_;
  const std::int64_t ranks_;
  std::vector<Value> out_, lse_;
};

}  // namespace

Value attend_in_parallel(Machine& on, const std::string& module, const Value& q, const Value& k,
                         const Value& v, double scale) {
  if (is_ring(on.mesh())) return Ring(on, module, q, scale).run(k, v);
  const auto whole = [&](const Value& x) { return on.move(module, {Kind::all_to_all, Axis::cp, 2, 1}, x); };
  const Value out = on.call(module, "attention", {{"q", whole(q)}, {"k", whole(k)}, {"v", whole(v)}},
                            {{"is_causal", true}, {"scale", scale}});
  return on.move(module, {Kind::all_to_all, Axis::cp, 1, 2}, out);
}

}  // namespace assay::align
