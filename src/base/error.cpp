#include "lockstep/base/error.hpp"

#include "lockstep/base/text.hpp"

namespace lockstep {

Error::Error(Fault fault, const std::string& message, std::source_location where)
    : std::runtime_error(printable(message)), fault_(fault), where_(where) {}

std::string detail::concatenate(const Printed* parts, std::size_t count) {
  std::ostringstream out;
  out.precision(9);
  for (const Printed* part = parts; part != parts + count; ++part) {
    if (part->print != nullptr)
      part->print(out, part->object);
    else
      out << part->text;
  }
  return std::move(out).str();
}

}  // namespace lockstep
