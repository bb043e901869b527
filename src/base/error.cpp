#include "lockstep/base/error.hpp"

#include <optional>

#include "lockstep/base/text.hpp"

namespace lockstep {

Error::Error(Fault fault, const std::string& message, std::source_location where)
    : std::runtime_error(printable(message)), fault_(fault), where_(where) {}

std::string detail::concatenate(const Printed* parts, std::size_t count) {
  std::string text;
  std::optional<std::ostringstream> out;  // costs more than joining texts
  for (const Printed* part = parts; part != parts + count; ++part) {
    if (part->print == nullptr) {
      text += part->text;
      continue;
    }
    if (!out) out.emplace().precision(9);
    part->print(*out, part->object);
    text += out->view();
    out->str("");
  }
  return text;
}

}  // namespace lockstep
