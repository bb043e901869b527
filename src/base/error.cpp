#include "lockstep/base/error.hpp"

#include "lockstep/base/text.hpp"

namespace lockstep {

Error::Error(Fault fault, const std::string& message, std::source_location where)
    : std::runtime_error(printable(message)), fault_(fault), where_(where) {}

}  // namespace lockstep
