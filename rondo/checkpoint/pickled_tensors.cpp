#include "rondo/checkpoint/pickled_tensors.h"

#include <torch/types.h>

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr int kDeepestModule = 64;
constexpr std::size_t kMostTensors = 1'000'000;

// One value of a pickle. Values refer to each other by index, so a hostile file's depth or cycles cannot
// overflow the stack.
struct PickledValue {
  enum class Kind { other, whole, text, mark, sequence, dict, global, object, tensor, storage };
  Kind kind = Kind::other;
  std::int64_t number = 0;
  std::string text = {};  // a text; MODULE.NAME of a global or of an object's class; a storage's key
  std::vector<std::size_t> items =
      {};  // elements of a sequence; alternating keys and values of a dict; an object's state
  at::Tensor tensor = {};
  at::ScalarType dtype = at::kFloat;  // of a storage
};
using Kind = PickledValue::Kind;

// Number types in pickles: identified by the storage type, or by the dtype next to an untyped storage, which
// Python writes for types without a storage type.
struct PickledDtype {
  std::string_view storage;
  std::string_view dtype;
  at::ScalarType type;
};

std::optional<at::ScalarType> find_dtype(std::string_view name, std::string_view PickledDtype::*by) {
  constexpr std::array<PickledDtype, 17> dtypes{
      {{"torch.FloatStorage", "torch.float32", at::kFloat},
       {"torch.DoubleStorage", "torch.float64", at::kDouble},
       {"torch.HalfStorage", "torch.float16", at::kHalf},
       {"torch.BFloat16Storage", "torch.bfloat16", at::kBFloat16},
       {"torch.LongStorage", "torch.int64", at::kLong},
       {"torch.IntStorage", "torch.int32", at::kInt},
       {"torch.ShortStorage", "torch.int16", at::kShort},
       {"torch.CharStorage", "torch.int8", at::kChar},
       {"torch.ByteStorage", "torch.uint8", at::kByte},
       {"torch.BoolStorage", "torch.bool", at::kBool},
       {"torch.ComplexFloatStorage", "torch.complex64", at::kComplexFloat},
       {"torch.ComplexDoubleStorage", "torch.complex128", at::kComplexDouble},
       {"torch.UInt16Storage", "torch.uint16", at::kUInt16},
       {"torch.UInt32Storage", "torch.uint32", at::kUInt32},
       {"torch.UInt64Storage", "torch.uint64", at::kUInt64},
       {"torch.Float8_e4m3fnStorage", "torch.float8_e4m3fn", at::kFloat8_e4m3fn},
       {"torch.Float8_e5m2Storage", "torch.float8_e5m2", at::kFloat8_e5m2}}};
  for (const PickledDtype& known : dtypes) {
    if (known.*by == name) return known.type;
  }
  return std::nullopt;
}

constexpr std::string_view kUntypedStorage = "torch.storage.UntypedStorage";

class PickleReader {
 public:
  PickleReader(std::string_view pickle, const std::function<PickledRecord(const std::string&)>& record,
               const std::string& file)
      : rest_(pickle), size_(pickle.size()), record_(record), file_(file) {}

  NamedTensors read() {
    while (step()) {
    }
    NamedTensors tensors;
    collect(pop(), "", 0, tensors);
    return tensors;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(str(file_, ": the pickle at byte ", size_ - rest_.size(), ": ", what));
  }

  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) fail("is truncated");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  // Reads a little-endian number.
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view raw = bytes(count);
    for (std::size_t i = 0; i < count; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    return value;
  }
  std::string line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) fail("is truncated");
    std::string text(bytes(end));
    bytes(1);
    return text;
  }

  PickledValue& value(std::size_t index) { return values_[index]; }
  std::size_t push(PickledValue added) {
    values_.push_back(std::move(added));
    stack_.push_back(values_.size() - 1);
    return stack_.back();
  }
  void push_whole(std::int64_t whole) { push({.kind = Kind::whole, .number = whole}); }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = std::string(text)}); }
  std::size_t pop() {
    if (stack_.empty()) fail("reads from an empty stack");
    const std::size_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  std::size_t top() {
    if (stack_.empty()) fail("reads from an empty stack");
    return stack_.back();
  }
  std::vector<std::size_t> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && value(stack_[begin - 1]).kind != Kind::mark) --begin;
    if (begin == 0) fail("has no mark on its stack");
    std::vector<std::size_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  void push_tuple(std::size_t count) {
    PickledValue tuple{.kind = Kind::sequence};
    tuple.items.resize(count);
    for (std::size_t i = count; i > 0; --i) tuple.items[i - 1] = pop();
    push(std::move(tuple));
  }
  void remember(std::uint64_t place) { memo_[place] = top(); }
  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) fail("reads an undefined memo entry");
    stack_.push_back(found->second);
  }
  void extend(Kind kind, const std::vector<std::size_t>& items) {
    PickledValue& target = value(top());
    // Entries of other objects, such as a subclass of dict, are added to its state.
    if (target.kind != kind && target.kind != Kind::object)
      fail("adds items to a value that is not a container");
    if (kind == Kind::dict && items.size() % 2 != 0) fail("has a key without a value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  // Executes one instruction of the pickle. Returns false at the end.
  bool step() {
    const char code = bytes(1).front();
    switch (code) {
      case '.':
        return false;
      case '\x80':  // PROTO
        bytes(1);
        break;
      case '\x95':  // FRAME
        bytes(8);
        break;
      case 'N':
        push({});
        break;
      case '\x88':
      case '\x89':
        push_whole(code == '\x88');
        break;
      case 'K':
        push_whole(static_cast<std::int64_t>(number(1)));
        break;
      case 'M':
        push_whole(static_cast<std::int64_t>(number(2)));
        break;
      case 'J':
        push_whole(static_cast<std::int32_t>(number(4)));
        break;
      case '\x8a':
        push_long(number(1));
        break;
      case 'G':
        bytes(8);
        push({});
        break;
      case 'X':
      case 'T':
        push_text(bytes(number(4)));
        break;
      case '\x8c':
      case 'U':
        push_text(bytes(number(1)));
        break;
      case 'c': {
        const std::string module = line();
        push({.kind = Kind::global, .text = str(module, ".", line())});
        break;
      }
      case '\x93': {  // STACK_GLOBAL
        const std::string name = value(pop()).text;
        push({.kind = Kind::global, .text = str(value(pop()).text, ".", name)});
        break;
      }
      default:
        step_of_containers(code);
    }
    return true;
  }

  void step_of_containers(char code) {
    switch (code) {
      case '(':
        push({.kind = Kind::mark});
        break;
      case ')':
      case ']':
        push({.kind = Kind::sequence});
        break;
      case '}':
        push({.kind = Kind::dict});
        break;
      case '\x85':
      case '\x86':
      case '\x87':
        push_tuple(static_cast<std::size_t>(code - '\x85') + 1);
        break;
      case 't':
      case 'l':
        push({.kind = Kind::sequence, .items = pop_to_mark()});
        break;
      case 'a':
        extend(Kind::sequence, {pop()});
        break;
      case 'e':
        extend(Kind::sequence, pop_to_mark());
        break;
      case 's': {
        const std::size_t item = pop();
        const std::size_t key = pop();
        extend(Kind::dict, {key, item});
        break;
      }
      case 'u':
        extend(Kind::dict, pop_to_mark());
        break;
      case 'q':
        remember(number(1));
        break;
      case 'r':
        remember(number(4));
        break;
      case '\x94':
        remember(memo_.size());
        break;
      case 'h':
        recall(number(1));
        break;
      case 'j':
        recall(number(4));
        break;
      case 'Q':
        push_storage(pop());
        break;
      case '\x81':  // NEWOBJ
      case 'R':
        reduce();
        break;
      case 'b':
        build();
        break;
      default:
        fail(str("has the instruction ", printable(std::string_view(&code, 1)),
                 ", which no archive of tensors needs"));
    }
  }

  void push_long(std::size_t count) {
    if (count > 8) {
      bytes(count);
      push({});  // too large for the size of a tensor
      return;
    }
    std::uint64_t raw = number(count);
    if (count > 0 && count < 8 && (raw >> (8 * count - 1)) != 0) raw |= ~std::uint64_t{0} << (8 * count);
    push_whole(std::bit_cast<std::int64_t>(raw));
  }

  // Format: ("storage", torch.FloatStorage, KEY, DEVICE, elements). The dtype of an untyped storage follows
  // later.
  void push_storage(std::size_t description) {
    const std::vector<std::size_t> items = value(description).items;
    if (items.size() < 3) fail("refers to a value that is not a storage");
    const std::string& type = value(items[1]).text;
    const std::optional<at::ScalarType> dtype =
        type == kUntypedStorage ? at::kByte : find_dtype(type, &PickledDtype::storage);
    if (!dtype) fail(str("has a storage of type ", printable(type), ", which is not known"));
    push({.kind = Kind::storage, .text = value(items[2]).text, .dtype = *dtype});
  }

  // Handles a call or object construction by its name; nothing is called.
  void reduce() {
    const std::vector<std::size_t> arguments = value(pop()).items;
    const PickledValue function = value(pop());
    const std::string& name = function.text;
    if (function.kind == Kind::global && name == "torch._utils._rebuild_tensor_v2") {
      push_tensor(arguments, std::nullopt);
    } else if (function.kind == Kind::global && name == "torch._utils._rebuild_tensor_v3") {
      push_tensor(arguments, dtype_beside(arguments));
    } else if (function.kind == Kind::global && name == "collections.OrderedDict") {
      push_ordered(arguments);
    } else if (function.kind == Kind::global && !arguments.empty() &&
               (name == "torch._utils._rebuild_parameter" || name.starts_with("torch.jit._pickle."))) {
      stack_.push_back(arguments.front());
    } else {
      push({.kind = Kind::object, .text = name});
    }
  }

  void push_ordered(const std::vector<std::size_t>& arguments) {
    PickledValue dict{.kind = Kind::dict};
    if (!arguments.empty()) {
      for (const std::size_t pair : value(arguments.front()).items) {
        const std::vector<std::size_t>& both = value(pair).items;
        if (both.size() != 2) fail("has an ordered dict whose items are not pairs");
        dict.items.insert(dict.items.end(), both.begin(), both.end());
      }
    }
    push(std::move(dict));
  }

  void build() {
    const std::size_t state = pop();
    PickledValue& object = value(top());
    if (object.kind != Kind::object) return;  // ignores attributes of an ordered dict
    object.items = {state};
  }

  std::vector<std::int64_t> wholes(std::size_t sequence) {
    std::vector<std::int64_t> numbers;
    for (const std::size_t item : value(sequence).items) {
      if (value(item).kind != Kind::whole || value(item).number < 0)
        fail("has a tensor with an impossible shape");
      numbers.push_back(value(item).number);
    }
    return numbers;
  }

  // Arguments: (storage, offset, sizes, strides, requires_grad, hooks, dtype, ...).
  at::ScalarType dtype_beside(const std::vector<std::size_t>& arguments) {
    if (arguments.size() < 7) fail("has a tensor without a dtype");
    const std::string& name = value(arguments[6]).text;
    const std::optional<at::ScalarType> dtype = find_dtype(name, &PickledDtype::dtype);
    if (!dtype) fail(str("has a tensor of dtype ", printable(name), ", which is not known"));
    return *dtype;
  }

  // Arguments: (storage, offset, sizes, strides, ...). Uses the storage's dtype unless `given` is set.
  void push_tensor(const std::vector<std::size_t>& arguments, std::optional<at::ScalarType> given) {
    if (arguments.size() < 4 || value(arguments[0]).kind != Kind::storage ||
        value(arguments[1]).kind != Kind::whole || value(arguments[1]).number < 0)
      fail("has a tensor without a storage");
    const std::vector<std::int64_t> sizes = wholes(arguments[2]);
    const std::vector<std::int64_t> strides = wholes(arguments[3]);
    if (sizes.size() != strides.size()) fail("has a tensor with an impossible shape");
    const std::string key = value(arguments[0]).text;
    const at::ScalarType dtype = given.value_or(value(arguments[0]).dtype);
    if (!records_.contains(key)) records_[key] = record_(key);
    const PickledRecord& record = records_[key];
    const std::size_t element = c10::elementSize(dtype);
    std::int64_t last = value(arguments[1]).number;  // element with the highest address
    bool is_empty = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::int64_t reach = 0;
      is_empty = is_empty || sizes[i] == 0;
      if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
          __builtin_add_overflow(last, reach, &last))
        fail("has a tensor with an impossible shape");
    }
    const at::TensorOptions options(dtype);
    if (is_empty) {
      push({.kind = Kind::tensor, .tensor = at::empty(sizes, options)});
      return;
    }
    if (static_cast<std::uint64_t>(last) >= record.bytes.size() / element)
      fail(str("has a tensor that reaches beyond the ", record.bytes.size(), " bytes of record ",
               printable(key)));
    const std::byte* begin =
        record.bytes.data() + static_cast<std::size_t>(value(arguments[1]).number) * element;
    push({.kind = Kind::tensor,
          .tensor = at::from_blob(
              const_cast<std::byte*>(begin), sizes, strides, [owner = record.owner](void*) {}, options)});
  }

  void collect(std::size_t index, const std::string& prefix, int depth, NamedTensors& tensors) {
    const PickledValue& from = value(index);
    if (depth > kDeepestModule)
      fail(str("has modules inside each other more than ", kDeepestModule, " levels deep"));
    if (from.kind == Kind::object && !from.items.empty()) {
      const Kind state = value(from.items.front()).kind;
      if (state != Kind::dict && state != Kind::text && from.items.size() == 1 &&
          (state == Kind::sequence || state == Kind::tensor)) {
        fail(str("class ", printable(from.text),
                 " restores itself by code (__setstate__), which is not run; ",
                 "save its state_dict() instead"));
      }
      if (from.items.size() == 1) return collect(from.items.front(), prefix, depth + 1, tensors);
    }
    if (from.kind != Kind::dict) return;
    for (std::size_t i = 0; i + 1 < from.items.size(); i += 2) {
      // A file of a few bytes can refer to one dict very often.
      if (tensors.size() > kMostTensors || ++looked_at_ > 4 * kMostTensors) fail("has too many tensors");
      const PickledValue& key = value(from.items[i]);
      const PickledValue& item = value(from.items[i + 1]);
      if (key.kind != Kind::text) continue;
      if (item.kind == Kind::tensor) {
        tensors.push_back({prefix + key.text, item.tensor});
      } else {
        collect(from.items[i + 1], prefix + key.text + ".", depth + 1, tensors);
      }
    }
  }

  std::string_view rest_;
  const std::size_t size_;
  const std::function<PickledRecord(const std::string&)>& record_;
  const std::string& file_;
  std::vector<PickledValue> values_;
  std::vector<std::size_t> stack_;
  std::unordered_map<std::uint64_t, std::size_t> memo_;
  std::map<std::string, PickledRecord> records_;
  std::size_t looked_at_ = 0;
};

}  // namespace

NamedTensors read_pickled_tensors(std::string_view pickle,
                                  const std::function<PickledRecord(const std::string& key)>& record,
                                  const std::string& file) {
  return PickleReader(pickle, record, file).read();
}

}  // namespace rondo
