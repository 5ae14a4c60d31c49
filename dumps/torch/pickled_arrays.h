#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "assay/dumps/torch/pickle.h"
#include "assay/dumps/torch/view.h"

namespace assay {

/// The numpy arrays and scalars in a pickle; their elements lie in the pickle itself.
class PickledArrays {
 public:
  explicit PickledArrays(const Pickle& pickle) : pickle_(pickle) {}

  /// The array or scalar that `call` makes. Nothing, and `why`, for dtypes that are no tensor's (`why` stays
  /// as it is if the call has nothing to do with numpy); Error ("<where>: ...") for one that contradicts
  /// itself.
  std::optional<TorchView> parse(Pickle::Ref call, std::string_view where, std::string& why);

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  struct Type {
    DType dtype = DType::float32;
    bool big_endian = false;
  };
  std::optional<Type> parse_type(Pickle::Ref, std::string& why) const;
  /// Bytes, or text that stands for them; nullptr for anything else. Decoded once, however often it is used.
  Bytes bytes_of(Pickle::Ref);
  std::optional<TorchView> view(Pickle::Ref type, Shape shape, bool fortran, Pickle::Ref data,
                                std::string_view where, std::string& why);

  const Pickle& pickle_;
  std::unordered_map<Pickle::Ref, Bytes> decoded_;
};

}  // namespace assay
