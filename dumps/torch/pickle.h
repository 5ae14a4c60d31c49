#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace assay {

/// A pickle as inert data: the values that it would build. Nothing is imported, called or constructed, so a
/// hostile file cannot run anything. The opcodes are described by pickletools of Python; those of torch.save
/// and of pickle protocols 2 to 5 are known here.
class Pickle {
 public:
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    text,
    bytes,
    real,  ///< its value is not needed
    tuple,
    list,
    set,
    dict,        ///< items: key, value, key, value, ..
    global,      ///< text: module, text2: name
    call,        ///< items: callable, arguments (a tuple), and the state that BUILD gave it, if any
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

  /// Reads one pickle from the start of `bytes`, and ignores the bytes after its end. Throws Error ("<where>:
  /// ...") if the pickle is damaged, too large or uses other opcodes.
  Pickle(std::span<const std::byte> bytes, std::string_view where);

  /// Bytes that the pickle took.
  std::size_t size() const { return size_; }
  Ref root() const { return root_; }
  const Value& at(Ref ref) const { return values_[ref]; }
  /// All values that were made, in the order in which they were made.
  const std::vector<Value>& values() const { return values_; }
  bool is_global(Ref ref, std::string_view module, std::string_view name) const;
  bool is_call(Ref ref, std::string_view module, std::string_view name) const;
  /// "torch.Size": the callable of a call or a global itself; "" for anything else.
  std::string global_name(Ref ref) const;
  /// The arguments of a call.
  const std::vector<Ref>& arguments(Ref call) const;
  /// The value of a text key in a dict, or in the dicts of a tuple (an object with slots has two). Nothing in
  /// a dict of more than 256 keys: this looks at each.
  std::optional<Ref> find(Ref container, std::string_view key) const;
  /// An attribute that BUILD gave to an object.
  std::optional<Ref> attribute(Ref object, std::string_view name) const;

 private:
  friend class PickleMachine;
  std::vector<Value> values_;
  Ref root_ = 0;
  std::size_t size_ = 0;
};

}  // namespace assay
