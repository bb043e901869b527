#include "lockstep/prep/npy.hpp"

#include <bit>
#include <cstring>
#include <regex>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep::prep {

namespace {
constexpr std::size_t kLongestHeader = 1 << 16;  ///< bytes; std::regex recurses along its subject

template <class T>
void widen(const char* bytes, std::vector<std::int64_t>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(value);
  }
}
}  // namespace

NpyArray read_npy(const std::filesystem::path& path) {
  static_assert(std::endian::native == std::endian::little);
  const std::string bytes = read_text_file(path), reading = "reading '" + path.string() + "'";
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  require_data(bytes.size() >= 12 && bytes.starts_with("\x93NUMPY") && byte(6) >= 1 && byte(6) <= 3, reading,
               ": no NumPy array");
  const bool wide = byte(6) > 1;
  const std::size_t begin = wide ? 12 : 10;
  const std::size_t length = byte(8) | byte(9) << 8 | (wide ? byte(10) << 16 | byte(11) << 24 : 0);
  require_data(length <= bytes.size() - begin && length <= kLongestHeader, reading, ": a header of ", length,
               " bytes in a file of ", bytes.size(), "; it is damaged");
  const std::string header = bytes.substr(begin, length);
  std::smatch descr, order, shape;
  static const std::regex kDescr(R"('descr':\s*'([<|=>])([a-zA-Z]\d+)')"), kOrder(R"('fortran_order':\s*(True|False))"),
      kShape(R"('shape':\s*\(([\d, ]*)\))"), kNumber(R"(\d+)");
  require_data(std::regex_search(header, descr, kDescr) && std::regex_search(header, order, kOrder) &&
                   std::regex_search(header, shape, kShape),
               reading, ": its header has no plain type, order and shape");
  NpyArray array;
  std::int64_t count = 1;
  const std::string extents = shape[1];
  for (std::sregex_iterator at(extents.begin(), extents.end(), kNumber), end; at != end; ++at) {
    const std::string digits = at->str();
    require_data(digits.size() <= 12, reading, ": an axis of ", digits, " values");
    array.shape.push_back(std::stoll(digits));
    require_data(array.shape.back() == 0 || count <= (std::int64_t{1} << 40) / array.shape.back(), reading,
                 ": its shape (", extents, ") is too large");
    count *= array.shape.back();
  }
  require_data(order[1] == "False" || array.shape.size() < 2, reading,
               ": it is stored in Fortran order; save it in C order");
  const std::string type = descr[2];
  require_data(descr[1] != ">", reading, ": it is stored big-endian");
  const bool known =
      type == "u1" || type == "i1" || type == "u2" || type == "i2" || type == "u4" || type == "i4" || type == "i8";
  require_data(known, reading, ": values of type '", type, "', expected whole numbers up to 64 bits");
  const std::size_t width = static_cast<std::size_t>(type[1] - '0'), found = bytes.size() - begin - length;
  require_data(found == static_cast<std::size_t>(count) * width, reading, ": ", found, " bytes of values, its shape (",
               extents, ") needs ", static_cast<std::size_t>(count) * width);
  array.values.resize(static_cast<std::size_t>(count));
  const char* data = bytes.data() + begin + length;
  if (type == "u1") widen<std::uint8_t>(data, array.values);
  if (type == "i1") widen<std::int8_t>(data, array.values);
  if (type == "u2") widen<std::uint16_t>(data, array.values);
  if (type == "i2") widen<std::int16_t>(data, array.values);
  if (type == "u4") widen<std::uint32_t>(data, array.values);
  if (type == "i4") widen<std::int32_t>(data, array.values);
  if (type == "i8") widen<std::int64_t>(data, array.values);
  return array;
}

}  // namespace lockstep::prep
