#include "lockstep/prep/npy.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/weights.hpp"

namespace lockstep::prep {

NpyArray read_npy(const std::filesystem::path& path) {
  const std::string reading = "reading '" + path.string() + "'";
  NamedArray array = npy_array(read_text_file(path), reading);
  auto* values = std::get_if<std::vector<std::int64_t>>(&array.values);
  require_data(values != nullptr, reading, ": values of type '", array.stored,
               "', expected whole numbers up to 64 bits");
  return {std::move(array.shape), std::move(*values)};
}

}  // namespace lockstep::prep
