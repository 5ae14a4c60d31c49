#include "assay/dumps/torch/pickle.h"

#include <algorithm>

#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay {
namespace {
constexpr std::size_t max_bytes = std::size_t{64} << 20, max_values = std::size_t{8} << 20;
// More is no object: a file could make a million objects share a dict of a million keys.
constexpr std::size_t max_attributes = 256;
}  // namespace

/// The stack machine. Every opcode makes at most one value and moves few, so the input's size bounds memory;
/// values refer to each other by index, so no depth costs any recursion, not even when they are destroyed.
class PickleMachine {
 public:
  PickleMachine(Pickle& result, std::span<const std::byte> bytes, std::string_view where)
      : result_(result), bytes_(bytes), where_(where) {}

  void run() {
    while (step()) {
    }
    if (stack_.size() != 1) fail("STOP leaves more than one value");
    result_.root_ = pop();
    result_.size_ = at_;
  }

 private:
  using Kind = Pickle::Kind;
  using Ref = Pickle::Ref;
  using Value = Pickle::Value;

  [[noreturn]] void fail(std::string_view problem) const {
    throw Error("{}: the pickle is damaged at byte {}: {}", where_, at_, problem);
  }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_)
      fail(bytes_.size() == max_bytes ? "it is larger than the limit" : "it ends early");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return text;
  }
  template <class T>
  T number() {
    take(sizeof(T));
    return load_little<T>(bytes_, at_ - sizeof(T));
  }
  std::string_view line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) fail("a line without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  static Value with_kind(Kind kind) {
    Value value;
    value.kind = kind;
    return value;
  }
  Ref make(Value value) {
    if (result_.values_.size() == max_values) fail("it makes more values than the limit");
    result_.values_.push_back(std::move(value));
    return static_cast<Ref>(result_.values_.size() - 1);
  }
  void push(Value value) { stack_.push_back(make(std::move(value))); }
  void push_text(Kind kind, std::string_view text) {
    Value value = with_kind(kind);
    value.text = text;
    push(std::move(value));
  }
  void push_integer(std::int64_t integer, Kind kind = Kind::integer) {
    Value value = with_kind(kind);
    value.integer = integer;
    push(std::move(value));
  }
  Ref top() const {
    if (stack_.empty() || result_.values_[stack_.back()].kind == Kind::mark) fail("the stack is empty");
    return stack_.back();
  }
  Ref pop() {
    const Ref ref = top();
    stack_.pop_back();
    return ref;
  }
  std::vector<Ref> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && result_.values_[stack_[begin - 1]].kind != Kind::mark) --begin;
    if (begin == 0) fail("there is no MARK");
    std::vector<Ref> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  void push_items(Kind kind, std::vector<Ref> items) {
    Value value = with_kind(kind);
    value.items = std::move(items);
    push(std::move(value));
  }
  void push_tuple(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_items(Kind::tuple, std::move(items));
  }
  // Objects that fill themselves item by item (subclasses of list or dict) stay what they are: inert.
  void extend(const std::vector<Ref>& items) {
    Value& target = result_.values_[top()];
    if (target.kind == Kind::dict && items.size() % 2 != 0) fail("a key without a value");
    if (target.kind == Kind::dict || target.kind == Kind::list || target.kind == Kind::set) {
      target.items.insert(target.items.end(), items.begin(), items.end());
    } else if (target.kind != Kind::call) {
      fail("items for something that is no container");
    }
  }
  void remember(std::uint32_t key) { memo_[key] = top(); }
  void recall(std::uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("it recalls a value that it never stored");
    stack_.push_back(found->second);
  }
  void call() {
    const Ref arguments = pop(), callable = pop();
    if (result_.at(arguments).kind != Kind::tuple) fail("arguments that are no tuple");
    // The two classes of containers that fill themselves item by item.
    const bool is_dict =
        (result_.is_global(callable, "collections", "OrderedDict") && result_.at(arguments).items.empty()) ||
        result_.is_global(callable, "collections", "defaultdict");
    if (is_dict) {
      push_items(Kind::dict, {});
    } else {
      push_items(Kind::call, {callable, arguments});
    }
  }
  void build() {
    const Ref state = pop();
    Value& object = result_.values_[top()];
    if (object.kind != Kind::call) return;  // attributes of a dict: state_dict() notes its version there
    object.items.resize(3);
    object.items[2] = state;
  }
  void long_integer(std::size_t size) {
    const std::string_view digits = take(size);
    if (size > 8) return push_text(Kind::bytes, digits);  // no size of a tensor
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(digits[i])) << (8 * i);
    }
    const int unused = size == 0 ? 0 : static_cast<int>(64 - 8 * size);
    push_integer(static_cast<std::int64_t>(value << unused) >> unused);
  }
  void stack_global() {
    const Ref name = pop(), module = pop();
    if (result_.at(name).kind != Kind::text || result_.at(module).kind != Kind::text)
      fail("a global without a name");
    push_global(result_.at(module).text, result_.at(name).text);
  }
  void push_global(std::string_view module, std::string_view name) {
    Value value = with_kind(Kind::global);
    value.text = module;
    value.text2 = name;
    push(std::move(value));
  }
  /// One opcode; false after STOP.
  // clang-format off
  bool step() {
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    switch (opcode) {
      case 0x80: if (number<std::uint8_t>() > 5) fail("a protocol above 5"); break;  // PROTO
      case 0x95: number<std::uint64_t>(); break;                                     // FRAME
      case '.': return false;                                                        // STOP
      case 'c': { const auto module = line(); push_global(module, line()); break; }  // GLOBAL
      case 0x93: stack_global(); break;                                              // STACK_GLOBAL
      case '(': push(with_kind(Kind::mark)); break;                                      // MARK
      case '0': pop(); break;                                                        // POP
      case '1': pop_to_mark(); break;                                                // POP_MARK
      case '2': stack_.push_back(top()); break;                                      // DUP
      case 't': push_items(Kind::tuple, pop_to_mark()); break;                       // TUPLE
      case ')': push_items(Kind::tuple, {}); break;                                  // EMPTY_TUPLE
      case 0x85: push_tuple(1); break;                                               // TUPLE1
      case 0x86: push_tuple(2); break;                                               // TUPLE2
      case 0x87: push_tuple(3); break;                                               // TUPLE3
      case '}': push_items(Kind::dict, {}); break;                                   // EMPTY_DICT
      case ']': push_items(Kind::list, {}); break;                                   // EMPTY_LIST
      case 0x8f: push_items(Kind::set, {}); break;                                   // EMPTY_SET
      case 0x91: push_items(Kind::set, pop_to_mark()); break;                        // FROZENSET
      case 0x90: case 'e': case 'u': extend(pop_to_mark()); break;                   // ADDITEMS APPENDS SETITEMS
      case 'a': extend({pop()}); break;                                              // APPEND
      case 's': { const Ref value = pop(), key = pop(); extend({key, value}); break; }  // SETITEM
      case 'q': remember(number<std::uint8_t>()); break;                             // BINPUT
      case 'r': remember(number<std::uint32_t>()); break;                            // LONG_BINPUT
      case 0x94: remember(static_cast<std::uint32_t>(memo_.size())); break;          // MEMOIZE
      case 'h': recall(number<std::uint8_t>()); break;                               // BINGET
      case 'j': recall(number<std::uint32_t>()); break;                              // LONG_BINGET
      case 'X': push_text(Kind::text, take(number<std::uint32_t>())); break;         // BINUNICODE
      case 0x8c: push_text(Kind::text, take(number<std::uint8_t>())); break;         // SHORT_BINUNICODE
      case 0x8d: push_text(Kind::text, take(number<std::uint64_t>())); break;        // BINUNICODE8
      case 'T': push_text(Kind::text, take(number<std::uint32_t>())); break;         // BINSTRING
      case 'U': push_text(Kind::text, take(number<std::uint8_t>())); break;          // SHORT_BINSTRING
      case 'B': push_text(Kind::bytes, take(number<std::uint32_t>())); break;        // BINBYTES
      case 'C': push_text(Kind::bytes, take(number<std::uint8_t>())); break;         // SHORT_BINBYTES
      case 0x8e: push_text(Kind::bytes, take(number<std::uint64_t>())); break;       // BINBYTES8
      case 0x96: push_text(Kind::bytes, take(number<std::uint64_t>())); break;       // BYTEARRAY8
      case 'J': push_integer(static_cast<std::int32_t>(number<std::uint32_t>())); break;  // BININT
      case 'K': push_integer(number<std::uint8_t>()); break;                         // BININT1
      case 'M': push_integer(number<std::uint16_t>()); break;                        // BININT2
      case 0x8a: long_integer(number<std::uint8_t>()); break;                        // LONG1
      case 0x8b: long_integer(number<std::uint32_t>()); break;                       // LONG4
      case 'G': take(8); push(with_kind(Kind::real)); break;                             // BINFLOAT
      case 'N': push(with_kind(Kind::none)); break;                                      // NONE
      case 0x88: push_integer(1, Kind::boolean); break;                              // NEWTRUE
      case 0x89: push_integer(0, Kind::boolean); break;                              // NEWFALSE
      case 'Q': { const Ref id = pop(); push_items(Kind::persistent, {id}); break; }  // BINPERSID
      case 'R': case 0x81: call(); break;                                            // REDUCE NEWOBJ
      case 0x92: pop(); call(); break;                                               // NEWOBJ_EX
      case 'b': build(); break;                                                      // BUILD
      default: throw Error("{}: the pickle uses opcode 0x{:02x} at byte {}, which torch.save does not write", where_,
                           opcode, at_ - 1);
    }
    return true;
  }
  // clang-format on

  Pickle& result_;
  std::span<const std::byte> bytes_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::vector<Ref> stack_;
  std::unordered_map<std::uint32_t, Ref> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::string_view where) {
  PickleMachine(*this, bytes.first(std::min(bytes.size(), max_bytes)), where).run();
}

bool Pickle::is_global(Ref ref, std::string_view module, std::string_view name) const {
  const Value& value = values_[ref];
  return value.kind == Kind::global && value.text == module && value.text2 == name;
}

bool Pickle::is_call(Ref ref, std::string_view module, std::string_view name) const {
  return values_[ref].kind == Kind::call && is_global(values_[ref].items[0], module, name);
}

std::string Pickle::global_name(Ref ref) const {
  if (values_[ref].kind == Kind::call) ref = values_[ref].items[0];
  if (values_[ref].kind != Kind::global) return "";
  return std::string(values_[ref].text) + "." + std::string(values_[ref].text2);
}

const std::vector<Pickle::Ref>& Pickle::arguments(Ref call) const {
  return values_[values_[call].items[1]].items;
}

std::optional<Pickle::Ref> Pickle::find(Ref container, std::string_view key) const {
  const Value& value = values_[container];
  if (value.kind == Kind::tuple && value.items.size() == 2) {
    for (const Ref part : value.items) {
      if (values_[part].kind != Kind::dict) continue;
      if (const auto found = find(part, key)) return found;
    }
  }
  if (value.kind != Kind::dict || value.items.size() > 2 * max_attributes) return std::nullopt;
  for (std::size_t i = value.items.size(); i >= 2; i -= 2) {  // as in Python, the last one counts
    const Value& word = values_[value.items[i - 2]];
    if (word.kind == Kind::text && word.text == key) return value.items[i - 1];
  }
  return std::nullopt;
}

std::optional<Pickle::Ref> Pickle::attribute(Ref object, std::string_view name) const {
  const Value& value = values_[object];
  if (value.kind != Kind::call || value.items.size() < 3) return std::nullopt;
  return find(value.items[2], name);
}

}  // namespace assay
