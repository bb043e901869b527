#include <regex>

#include "elements.hpp"
#include "lockstep/io/zip.hpp"

/// source  NumPy, numpy/lib/format.py
namespace lockstep {

namespace {

constexpr std::size_t kLongestHeader = 1 << 12;  ///< bytes; std::regex takes 400 bytes of stack for each
constexpr std::string_view kSuffix = ".npy";

}  // namespace

NamedArray npy_array(std::string_view bytes, const std::string& what) {
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  require_data(bytes.size() >= 12 && bytes.starts_with("\x93NUMPY") && byte(6) >= 1 && byte(6) <= 3, what,
               ": no NumPy array");
  const bool wide = byte(6) > 1;
  const std::size_t begin = wide ? 12 : 10;
  const std::size_t length = byte(8) | byte(9) << 8 | (wide ? byte(10) << 16 | byte(11) << 24 : 0);
  require_data(length <= bytes.size() - begin && length <= kLongestHeader, what, ": a header of ", length,
               " bytes in a file of ", bytes.size(), "; it is damaged");
  const std::string header(bytes.substr(begin, length));
  std::smatch descr, order, shape;
  static const std::regex kDescr(R"('descr':\s*'([<|=>])([a-zA-Z]\d+)')"), kOrder(R"('fortran_order':\s*(True|False))"),
      kShape(R"('shape':\s*\(([\d, ]*)\))"), kNumber(R"(\d+)");
  require_data(std::regex_search(header, descr, kDescr) && std::regex_search(header, order, kOrder) &&
                   std::regex_search(header, shape, kShape),
               what, ": its header has no plain type, order and shape");
  NamedArray out;
  const std::string extents = shape[1];
  for (std::sregex_iterator at(extents.begin(), extents.end(), kNumber), end; at != end; ++at) {
    const std::string digits = at->str();
    require_data(digits.size() <= 12, what, ": an axis of ", digits, " values");
    out.shape.push_back(std::stoll(digits));
  }
  out.stored = descr[2];
  require_data(descr[1] != ">", what, ": it is stored big-endian");
  const weights::Element& kind = weights::find_element(&weights::Element::numpy, out.stored, what + ": it");
  const std::size_t found = bytes.size() - begin - length;
  const std::int64_t count = weights::checked_count(out.shape, found / kind.width, what + ": it");
  require_data(found == static_cast<std::size_t>(count) * kind.width, what, ": ", found,
               " bytes of values, its shape (", extents, ") needs ", static_cast<std::size_t>(count) * kind.width);
  kind.read(bytes.data() + begin + length, weights::contiguous(out.shape, order[1] == "True"), count, out);
  return out;
}

NamedArrays npz_arrays(std::string_view bytes, const std::string& source) {
  const std::string reading = "reading '" + source + "'";
  const ZipReader archive(bytes, reading);
  std::vector<NamedArray> arrays;
  for (const std::string& member : archive.names()) {
    require_data(member.ends_with(kSuffix), reading, ": member '", member, "' is no .npy array");
    arrays.push_back(npy_array(archive.read(member), reading + ": member '" + member + "'"));
    arrays.back().name = member.substr(0, member.size() - kSuffix.size());
  }
  return weights::sorted(std::move(arrays), reading);
}

}  // namespace lockstep
