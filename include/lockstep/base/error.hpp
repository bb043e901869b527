#pragma once
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Whose fault an error is; the value is the exit code of the program (0 done).
enum class Fault : int {
  internal = 1,  ///< ours, or the machine's: a failed library call, a full disk, a lost rank
  usage = 2,     ///< the user's: a wrong option, an impossible combination
  data = 3,      ///< a file's: damaged, foreign, of the wrong shape
};

/// What every failure throws. The message reads: what could not be done: the values that show why; what to change.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message, std::source_location where = std::source_location::current())
      : std::runtime_error(message), fault_(fault), where_(where) {}
  Fault fault() const { return fault_; }
  const std::source_location& where() const { return where_; }

 private:
  Fault fault_;
  std::source_location where_;
};

/// The parts, printed one after another.
template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << parts);
  return std::move(out).str();
}

/// A condition together with the place that states it, so that require() needs no macro.
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

/// Throws Error(Fault::internal) with the joined parts unless the condition holds.
template <class... Parts>
void require(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::internal, condition, parts...);
}
/// Same, for what the user asked for.
template <class... Parts>
void require_usage(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::usage, condition, parts...);
}
/// Same, for what a file holds.
template <class... Parts>
void require_data(const Condition& condition, const Parts&... parts) {
  detail::require_or(Fault::data, condition, parts...);
}

}  // namespace lockstep
