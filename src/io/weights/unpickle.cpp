#include "lockstep/io/unpickle.hpp"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

/// source  CPython Lib/pickletools.py
namespace lockstep {

namespace {

using Value = PickleValue;
using Kind = PickleValue::Kind;

/// Interprets a pickle's instructions. None of them has an effect outside the interpreter.
class Machine {
 public:
  Machine(std::string_view bytes, const std::string& what, bool (*allowed)(std::string_view), std::deque<Value>& values)
      : bytes_(bytes), what_(what), allowed_(allowed), values_(values) {}

  const Value* run() {
    while (true) {
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') return pop();
      step(code);
    }
  }

 private:
  [[noreturn]] void damaged(const char* why) const {
    throw Error(Fault::data, join(what_, ": ", why, " at byte ", at_, " of its pickle; it is damaged or truncated"));
  }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) damaged("an unexpected end");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  /// An unsigned little-endian integer.
  std::uint64_t number(std::size_t width) {
    const std::string_view digits = take(width);
    std::uint64_t out = 0;
    std::memcpy(&out, digits.data(), width);
    return out;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged("an unexpected end");
    const std::string_view out = take(end - at_);
    take(1);
    return out;
  }

  Value* push(Kind kind) {
    stack_.push_back(&values_.emplace_back());
    stack_.back()->kind = kind;
    return stack_.back();
  }
  void push_text(std::size_t size_width) {
    const std::string_view text = take(number(size_width));
    push(Kind::text)->text = text;
  }
  void push_integer(std::int64_t value, Kind kind = Kind::integer) { push(kind)->integer = value; }
  void push_global(const std::string& name) {
    require_data(allowed_(name), what_, ": its pickle names ", name,
                 ", which no file of weights needs; nothing was executed. Save a state_dict() of arrays only");
    push(Kind::global)->text = name;
  }
  Value* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) damaged("a missing operand");
    Value* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Value* top() {
    Value* value = pop();
    stack_.push_back(value);
    return value;
  }
  /// Removes the values after the last mark.
  std::vector<const Value*> pop_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) damaged("a missing mark");
    const auto begin = stack_.begin() + marks_.back();
    std::vector<const Value*> out(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }
  void push_tuple(std::size_t count) {
    std::vector<const Value*> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push(Kind::tuple)->items = std::move(items);
  }
  void add_items(const std::vector<const Value*>& items) {
    Value* list = top();
    if (!list->is(Kind::list)) damaged("an element of no list");
    list->items.insert(list->items.end(), items.begin(), items.end());
  }
  void add_entries(const std::vector<const Value*>& items) {
    Value* dictionary = top();
    if ((!dictionary->is(Kind::dictionary) && !dictionary->is(Kind::call)) || items.size() % 2 != 0)
      damaged("an entry of no dictionary");
    for (std::size_t i = 0; i < items.size(); i += 2) dictionary->entries.emplace_back(items[i], items[i + 1]);
  }
  void call() {
    const Value* arguments = pop();
    const Value* function = pop();
    if (!function->is(Kind::global) || !arguments->is(Kind::tuple)) damaged("a call of no function");
    copied_ += arguments->items.size();  // one tuple may be the arguments of many calls
    if (copied_ > bytes_.size()) damaged("more arguments of calls than bytes");
    Value* record = push(Kind::call);
    record->text = function->text;
    record->items = arguments->items;
  }
  void remember(std::uint64_t key) { memo_[key] = top(); }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) damaged("an unknown reference");
    stack_.push_back(found->second);
  }

  void step(unsigned char code);

  std::string_view bytes_;
  const std::string& what_;
  bool (*allowed_)(std::string_view);
  std::deque<Value>& values_;
  std::size_t at_ = 0, copied_ = 0;
  std::vector<Value*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Value*> memo_;
};

void Machine::step(unsigned char code) {
  switch (code) {
    case 0x80:  // PROTO
      if (const std::uint64_t protocol = number(1); protocol < 2 || protocol > 5) damaged("an unknown protocol");
      return;
    case 0x95:  // FRAME
      take(8);
      return;
    case '(':
      return marks_.push_back(stack_.size());
    case '0':
      pop();
      return;
    case '1':
      pop_mark();
      return;
    case 'N':
      push(Kind::none);
      return;
    case 0x88:  // NEWTRUE, NEWFALSE
    case 0x89:
      return push_integer(code == 0x88 ? 1 : 0, Kind::boolean);
    case 'J':
      return push_integer(static_cast<std::int32_t>(number(4)));
    case 'K':
      return push_integer(static_cast<std::int64_t>(number(1)));
    case 'M':
      return push_integer(static_cast<std::int64_t>(number(2)));
    case 0x8a: {  // LONG1: two's complement of this many bytes
      const std::size_t width = number(1);
      if (width > 8) damaged("an integer of more than 64 bits");
      const int unused = 64 - 8 * static_cast<int>(width);
      return push_integer(width == 0 ? 0 : static_cast<std::int64_t>(number(width) << unused) >> unused);
    }
    case 'G': {
      std::uint64_t bits = 0;
      for (const char digit : take(8)) bits = bits << 8 | static_cast<unsigned char>(digit);
      push(Kind::real)->real = std::bit_cast<double>(bits);
      return;
    }
    case 'X':  // BINUNICODE, BINBYTES, BINSTRING
    case 'B':
    case 'T':
      return push_text(4);
    case 0x8c:  // SHORT_BINUNICODE, SHORT_BINBYTES, SHORT_BINSTRING
    case 'C':
    case 'U':
      return push_text(1);
    case 0x8d:  // BINUNICODE8, BINBYTES8
    case 0x8e:
      return push_text(8);
    case ']':
      push(Kind::list);
      return;
    case '}':
      push(Kind::dictionary);
      return;
    case ')':
      return push_tuple(0);
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(code - 0x84U);
    case 't':
    case 'l': {
      std::vector<const Value*> items = pop_mark();
      push(code == 't' ? Kind::tuple : Kind::list)->items = std::move(items);
      return;
    }
    case 'd': {
      const std::vector<const Value*> items = pop_mark();
      push(Kind::dictionary);
      return add_entries(items);
    }
    case 'a':
      return add_items({pop()});
    case 'e':
      return add_items(pop_mark());
    case 's': {
      const Value* value = pop();
      const Value* key = pop();
      return add_entries({key, value});
    }
    case 'u':
      return add_entries(pop_mark());
    case 'c': {
      const std::string module(line());
      return push_global(module + "." + std::string(line()));
    }
    case 0x93: {  // STACK_GLOBAL
      const Value* name = pop();
      const Value* module = pop();
      if (!name->is(Kind::text) || !module->is(Kind::text)) damaged("a nameless function");
      return push_global(module->text + "." + name->text);
    }
    case 'R':
    case 0x81:  // NEWOBJ
      return call();
    case 'b': {
      const Value* state = pop();
      Value* object = top();
      if (!object->is(Kind::call)) damaged("the state of no object");
      object->state = state;
      return;
    }
    case 'Q': {
      const Value* id = pop();
      push(Kind::stored)->items = {id};
      return;
    }
    case 'q':
      return remember(number(1));
    case 'r':
      return remember(number(4));
    case 0x94:  // MEMOIZE
      return remember(memo_.size());
    case 'h':
      return recall(number(1));
    case 'j':
      return recall(number(4));
    default:
      break;
  }
  throw Error(Fault::data, join(what_, ": instruction ", printed("0x%x", static_cast<unsigned>(code)), " at byte ",
                                at_ - 1, " of its pickle is not of a file of weights; it is damaged or foreign"));
}

}  // namespace

Pickled::Pickled(std::string_view bytes, const std::string& what, bool (*allowed)(std::string_view)) {
  root_ = Machine(bytes, what, allowed, values_).run();
}

}  // namespace lockstep
