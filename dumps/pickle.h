#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace assay {

/// A pickle taken apart: what it would build, as inert data. Nothing is imported, called or constructed, so
/// there is nothing an evil file could run. Python's pickletools describes the opcodes; those that torch.save
/// and pickle protocols 2 to 5 use are known here.
class Pickle {
 public:
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    text,
    bytes,
    real,  ///< whose value nothing needs
    tuple,
    list,
    set,
    dict,        ///< items: key, value, key, value, ..
    global,      ///< text: module, text2: name
    call,        ///< items: callable, arguments (a tuple)
    persistent,  ///< items: its id
    mark,        ///< of the machine; never in a value
  };
  using Ref = std::uint32_t;  ///< index of a value; values may be shared and form circles
  struct Value {
    Kind kind = Kind::none;
    std::int64_t integer = 0;
    std::string_view text, text2;  ///< in the bytes given to the constructor, which must outlive this
    std::vector<Ref> items;
  };

  /// Throws Error ("<where>: ...") if the pickle is damaged, too large or uses other opcodes.
  Pickle(std::span<const std::byte> bytes, std::string_view where);

  Ref root() const { return root_; }
  const Value& at(Ref ref) const { return values_[ref]; }
  bool is_global(Ref ref, std::string_view module, std::string_view name) const;

 private:
  friend class PickleMachine;
  std::vector<Value> values_;
  Ref root_ = 0;
};

}  // namespace assay
