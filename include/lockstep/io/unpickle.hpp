#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// A value of a pickle. Calls are only recorded, never executed.
struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,        ///< a string, or bytes
    list,        ///< `items`
    tuple,       ///< `items`
    dictionary,  ///< `entries`
    global,      ///< a class or function; `text` is "module.name"
    call,    ///< of the function or class `text` with the arguments `items`; also holds added `entries` and a `state`
    stored,  ///< data outside the pickle, named by the persistent id `items[0]`
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  ///< also of a boolean
  double real = 0;
  std::string text;
  std::vector<const PickleValue*> items;
  std::vector<std::pair<const PickleValue*, const PickleValue*>> entries;  ///< in order; keys may repeat
  const PickleValue* state = nullptr;                                      ///< of BUILD, or null

  bool is(Kind wanted) const { return kind == wanted; }
  /// Whether this is a call of "module.name".
  bool calls(std::string_view function) const { return kind == Kind::call && text == function; }
};

/// A pickle as a graph of values, which it owns. Values may be shared, and a list may contain itself.
class Pickled {
 public:
  /// Reads protocols 2 to 5. allowed: decides which classes and functions ("module.name") the pickle may name.
  /// errors  data, beginning with `what`: another class or function (named), an instruction that no weight file has,
  ///         a damaged or truncated pickle
  Pickled(std::string_view bytes, const std::string& what, bool (*allowed)(std::string_view name));
  Pickled(const Pickled&) = delete;
  Pickled& operator=(const Pickled&) = delete;
  const PickleValue& root() const { return *root_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace lockstep
