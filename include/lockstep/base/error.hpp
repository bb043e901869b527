#pragma once
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep {

/// The cause of an error. The value is the exit code of the program (0 means success).
enum class Fault : int {
  internal = 1,  ///< the program or the machine: a failed library call, a full disk, a lost rank
  usage = 2,     ///< the user: a wrong option, an impossible combination
  data = 3,      ///< an input file: damaged, or of the wrong format or shape
};

/// The exception type of every failure. A message reads: what could not be done: the values that show why; what to
/// change. Control characters and bytes that are not UTF-8 are escaped, like \x1b: they may come from a hostile file.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message, std::source_location where = std::source_location::current());
  Fault fault() const { return fault_; }
  const std::source_location& where() const { return where_; }

 private:
  Fault fault_;
  std::source_location where_;
};

namespace detail {
/// A value to print. One function joins any number of them: a template for each combination of types was a tenth of the
/// program.
struct Printed {
  template <class T>
  Printed(const T& value) {  // NOLINT: implicit on purpose
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      text = value;
    } else {
      object = &value;
      print = [](std::ostream& out, const void* it) { out << *static_cast<const T*>(it); };
    }
  }
  std::string_view text = {};
  const void* object = nullptr;
  void (*print)(std::ostream&, const void*) = nullptr;
};
std::string concatenate(const Printed* parts, std::size_t count);
}  // namespace detail

/// Concatenates the printed parts; floating-point numbers get nine significant digits.
template <class... Parts>
std::string join(const Parts&... parts) {
  const detail::Printed list[] = {parts..., std::string_view()};  // an array cannot be empty
  return detail::concatenate(list, sizeof...(parts));
}

/// A condition with its source location, so that require() is not a macro.
struct Condition {
  bool holds;
  std::source_location where;
  template <class T>
  Condition(const T& value, std::source_location at = std::source_location::current())  // NOLINT: implicit on purpose
      : holds(static_cast<bool>(value)), where(at) {}
};

namespace detail {
template <class... Parts>
void require_or(Fault fault, const Condition& condition, const Parts&... parts) {
  if (!condition.holds) throw Error(fault, join(parts...), condition.where);
}
}  // namespace detail

/// errors   Error(Fault::internal) with the joined parts if the condition is false
template <class... Parts>
void require(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::internal, condition, parts...);
}
/// Like require(), for user input. errors  Error(Fault::usage)
template <class... Parts>
void require_usage(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::usage, condition, parts...);
}
/// Like require(), for file contents. errors  Error(Fault::data)
template <class... Parts>
void require_data(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::data, condition, parts...);
}

}  // namespace lockstep
