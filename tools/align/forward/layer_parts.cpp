#include "assay/align/forward/layer_parts.h"

#include "assay/align/strategies/regions.h"

namespace assay::align {

Value LayerParts::linear(const std::string& module, const std::string& name, const Value& x, std::int64_t out,
                         const std::vector<Sharding>& shardings) {
  const std::string own = module + "." + name;
  std::int64_t in = x.shape.back();
  for (const Sharding& s : shardings) in *= s.placed == sharded(1) ? on.mesh().size(s.axis) : 1;
  const Value w = on.parameter(own + ".weight", {out, in}, shardings);
  return on.call(own, "linear", {{"x", x}, {"w", w}});
}

Value LayerParts::column_linear(const std::string& module, const std::string& name, const Value& x,
                                std::int64_t out) {
  return linear(module, name, x, out, column_parallel());
}

Value LayerParts::row_linear(const std::string& module, const std::string& name, const Value& x,
                             std::int64_t out) {
  return linear(module, name, x, out, row_parallel());
}

Value LayerParts::norm(const std::string& module, const std::string& name, const Value& x, double eps) {
  const std::string own = module + "." + name;
  const Value weight = on.parameter(own + ".weight", {x.shape.back()});
  return on.call(own, "rms_norm", {{"x", x}, {"weight", weight}}, {{"eps", eps > 0 ? eps : model.norm_eps}});
}

Value LayerParts::add(const std::string& module, const Value& a, const Value& b, double alpha) {
  return on.call(module, "add", {{"a", a}, {"b", b}}, {{"alpha", alpha}});
}

Value LayerParts::reshape(const std::string& module, const Value& x, const Shape& shape,
                          const std::vector<Sharding>& declared) {
  return on.call(module, "reshape", {{"x", x}}, {{"shape", std::vector<double>(shape.begin(), shape.end())}},
                 declared);
}

Value LayerParts::permute(const std::string& module, const Value& x, const std::vector<double>& order) {
  return on.call(module, "transpose", {{"x", x}}, {{"perm", order}});
}

Value LayerParts::columns(const std::string& module, const Value& x, std::int64_t begin, std::int64_t end) {
  return on.call(module, "slice", {{"x", x}},
                 {{"starts", std::vector<double>{real(begin)}},
                  {"ends", std::vector<double>{real(end)}},
                  {"dims", std::vector<double>{-1}}});
}

Value LayerParts::beside(const std::string& module, const Value& a, const Value& b) {
  return on.call(module, "concat", {{"x_0", a}, {"x_1", b}}, {{"dim", -1}});
}

Value LayerParts::feed_forward(const std::string& module, const Value& x, std::int64_t size) {
  const Value all = enter_region(on, module, x);
  const Value gate = column_linear(module, "gate_proj", all, size),
              up = column_linear(module, "up_proj", all, size);
  const Value activation = on.call(module, "swiglu", {{"gate", gate}, {"up", up}});
  return leave_region(on, module, row_linear(module, "down_proj", activation, model.hidden));
}

}  // namespace assay::align
