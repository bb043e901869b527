#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "h5_internal.hpp"

namespace lockstep::h5 {

namespace {
std::recursive_mutex& library() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// The host's error printing, saved while `depth`, the number of nested locks, is above 0.
struct Printing {
  int depth = 0;
  bool known = false;
  H5E_auto2_t function = nullptr;
  void* data = nullptr;
};
Printing printing;  // guarded by library()

/// Whether the process has the HDF5 that this was compiled for. A liblockstep_train of LOCKSTEP_CAPI_HDF5=OFF does not link
/// it, but may find that of its program.
#pragma weak H5open
bool has_library() {
  unsigned major = 0, minor = 0, release = 0;
  return H5open != nullptr && H5get_libversion(&major, &minor, &release) >= 0 && major == H5_VERS_MAJOR &&
         minor == H5_VERS_MINOR;
}

enum class Link { hard, missing, other };

/// Follows `object` from the root. `reached` receives the first path element that is missing or not a hard link.
Link follow(hid_t file, const std::string& object, std::string& reached) {
  const std::string full = absolute(object);
  for (std::size_t end = 0; end < full.size() && full != "/";) {
    end = std::min(full.find('/', end + 1), full.size());
    reached = full.substr(0, end);
    H5L_info_t link{};  // fails also below an object that is no group
    if (H5Lget_info(file, reached.c_str(), &link, H5P_DEFAULT) < 0) return Link::missing;
    if (link.type != H5L_TYPE_HARD) return Link::other;
  }
  return Link::hard;
}

bool is_plain_integer(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const H5T_order_t order = H5Tget_order(type);
  return (size == 1 || size == 2 || size == 4 || size == 8) && (order == H5T_ORDER_LE || order == H5T_ORDER_BE) &&
         H5Tget_precision(type) == 8 * size && H5Tget_offset(type) == 0;
}

bool is_ieee_float(hid_t type) {
  for (const hid_t known : {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_IEEE_F64BE})
    if (H5Tequal(type, known) > 0) return true;
  std::size_t sign = 0, exponent = 0, exponent_size = 0, mantissa = 0, mantissa_size = 0;
  return H5Tget_size(type) == 2 &&
         H5Tget_fields(type, &sign, &exponent, &exponent_size, &mantissa, &mantissa_size) >= 0 && sign == 15 &&
         exponent == 10 && exponent_size == 5 && mantissa == 0 && mantissa_size == 10;
}

H5Type classify_integer(hid_t type, const std::string& what) {
  require_data(is_plain_integer(type), "reading ", what, ": an integer type of ", H5Tget_size(type),
               " bytes that is not plain; store 8, 16, 32 or 64 bits");
  const std::size_t size = H5Tget_size(type);
  const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
  if (size == 1 && !is_signed) return H5Type::u8;
  return size < 4 || (size == 4 && is_signed) ? H5Type::i32 : H5Type::i64;
}
}  // namespace

LibraryLock::LibraryLock() {
  static const bool usable = has_library();
  require_usage(usable, "this library is built without HDF5, and its program has no HDF5 ", H5_VERS_MAJOR, ".",
                H5_VERS_MINOR, "; use another format, or build it with LOCKSTEP_CAPI_HDF5=ON");
  library().lock();
  if (printing.depth++ > 0) return;
  printing.known = H5Eget_auto2(H5E_DEFAULT, &printing.function, &printing.data) >= 0;
  if (printing.known) H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

LibraryLock::~LibraryLock() {
  if (--printing.depth == 0 && printing.known) H5Eset_auto2(H5E_DEFAULT, printing.function, printing.data);
  library().unlock();
}

std::string innermost_error() {
  std::string line;
  const auto keep = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    *static_cast<std::string*>(out) = error->desc != nullptr ? error->desc : "";
    return 1;  // the first line is the innermost: stop here
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep, &line);
  H5Eclear2(H5E_DEFAULT);
  // The line of the file driver contains addresses and a time; keep only the system's message.
  if (const auto at = line.find("error message = '"); at != std::string::npos) {
    const auto begin = at + 17, end = line.find('\'', begin);
    line = line.substr(0, line.find(':')) + ": " + line.substr(begin, end - begin);
  }
  if (line.empty()) return "the HDF5 library gives no reason";
  if (line.find("lock") != std::string::npos) {
    line += line.find("already open for write") != std::string::npos
                ? "; another program is writing it, or one died while writing it"
            : line.find(std::strerror(EAGAIN)) != std::string::npos
                ? "; another program holds its lock, most often one that writes it: wait for its end; only where no "
                  "program has it open, set HDF5_USE_FILE_LOCKING=FALSE"
                : "; some file systems cannot lock files: set HDF5_USE_FILE_LOCKING=FALSE and try again";
  }
  return line;
}

std::string absolute(const std::string& object) {
  std::string out = object.starts_with('/') ? object : "/" + object;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

std::string quoted(const std::string& object, const H5File& file) {
  return "'" + absolute(object) + "' of '" + file.path().string() + "'";
}

H5O_type_t object_type(hid_t file, const std::string& object) {
  const Id id(H5Oopen(file, absolute(object).c_str(), H5P_DEFAULT), H5Oclose);
  if (!id.valid()) return H5O_TYPE_UNKNOWN;
  switch (H5Iget_type(id)) {
    case H5I_GROUP:
      return H5O_TYPE_GROUP;
    case H5I_DATASET:
      return H5O_TYPE_DATASET;
    default:
      return H5O_TYPE_UNKNOWN;
  }
}

namespace {
/// Whether the object exists. errors  as require_hard_links(), for links of other kinds
bool has_hard_links(hid_t file, const std::string& object, const H5File& owner, std::string& reached) {
  const Link link = follow(file, object, reached);
  require_data(link != Link::other, "opening ", quoted(object, owner), ": ", quoted(reached, owner),
               " is a soft or external link, which are not followed; store the data itself");
  return link == Link::hard;
}
}  // namespace

bool exists(hid_t file, const std::string& object, const H5File& owner) {
  std::string reached;
  const bool found = has_hard_links(file, object, owner, reached) && object_type(file, object) != H5O_TYPE_UNKNOWN;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

void require_hard_links(hid_t file, const std::string& object, const H5File& owner) {
  if (owner.written() != nullptr) return;  // we write no other links
  std::string reached;
  require_data(has_hard_links(file, object, owner, reached), "opening ", quoted(object, owner), ": there is no ",
               quoted(reached, owner));
}

hid_t open_dataset(hid_t file, const std::string& object, const H5File& owner) {
  require_hard_links(file, object, owner);
  const hid_t id = H5Dopen2(file, absolute(object).c_str(), H5P_DEFAULT);
  require_data(id >= 0, "opening dataset ", quoted(object, owner), ": ", kReason);
  return id;
}

hid_t native_type(H5Type type) {
  const hid_t by_type[] = {H5T_NATIVE_UINT8, H5T_NATIVE_INT32,  H5T_NATIVE_INT64,
                           H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, -1};
  return by_type[static_cast<std::size_t>(type)];
}

std::size_t size_of(H5Type type) {
  constexpr std::size_t kByType[] = {1, 4, 8, 4, 8, 8};
  return kByType[static_cast<std::size_t>(type)];
}

H5Type classify(hid_t type, const std::string& what) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return classify_integer(type, what);
    case H5T_ENUM:
      return classify_integer(Id(H5Tget_super(type), H5Tclose), what);  // as h5py stores bool
    case H5T_FLOAT:
      require_data(is_ieee_float(type), "reading ", what, ": a float type of ", H5Tget_size(type),
                   " bytes that is not IEEE 754; store 32 or 64 bits");
      return H5Tget_size(type) == 8 ? H5Type::f64 : H5Type::f32;
    case H5T_STRING:
      return H5Type::text;
    default:
      break;
  }
  throw Error(Fault::data, join("reading ", what,
                                ": a compound, reference or other type; only integers, floats and strings are read"));
}

std::vector<std::int64_t> extents(hid_t space, const std::string& what) {
  const H5S_class_t kind = H5Sget_simple_extent_type(space);
  require_data(kind == H5S_SIMPLE || kind == H5S_SCALAR, "reading ", what, ": it holds no data");
  std::vector<hsize_t> dims(H5S_MAX_RANK);
  const int axes = H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  require_data(axes >= 0, "reading ", what, ": ", kReason);
  std::vector<std::int64_t> shape;
  for (int axis = 0; axis < axes; ++axis) {
    require_data(dims[axis] < (hsize_t{1} << 62), "reading ", what, ": axis ", axis, " has ", dims[axis], " entries");
    shape.push_back(static_cast<std::int64_t>(dims[axis]));
  }
  return shape;
}

std::int64_t count(const std::vector<std::int64_t>& shape, const std::string& what) {
  std::int64_t n = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t extent : shape)
    require_data(extent > 0 && !__builtin_mul_overflow(n, extent, &n) && n < (std::int64_t{1} << 56), "reading ", what,
                 ": ", shape_text(shape), " is not a possible shape");
  return n;
}

void require_plain_storage(hid_t dataset, const std::vector<std::int64_t>& shape, std::size_t element_size,
                           std::int64_t file_size, const std::string& what) {
  const Id plist(H5Dget_create_plist(dataset), H5Pclose);
  require_data(plist.valid(), "reading ", what, ": ", kReason);
  const H5D_layout_t layout = H5Pget_layout(plist);
  require_data(layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED || layout == H5D_COMPACT, "reading ", what,
               ": virtual storage is not read");
  require_data(H5Pget_external_count(plist) == 0, "reading ", what, ": external storage is not read");

  const std::int64_t elements = count(shape, what);
  std::int64_t bytes = 0;
  require_data(!__builtin_mul_overflow(elements, static_cast<std::int64_t>(element_size), &bytes), "reading ", what,
               ": shape ", shape_text(shape), " of elements of ", element_size, " bytes; the file is damaged");
  bool deflated = false;
  for (int i = 0; i < H5Pget_nfilters(plist); ++i) {
    unsigned flags = 0, config = 0;
    std::size_t parameters = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(plist, static_cast<unsigned>(i), &flags, &parameters, nullptr, 0, nullptr, &config);
    require_data(filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32,
                 "reading ", what, ": filter ", filter,
                 " is not read; use deflate, shuffle or none (h5repack -f GZIP=4)");
    deflated = deflated || filter == H5Z_FILTER_DEFLATE;
  }
  constexpr std::int64_t kDeflateRatio = 1040, kSmall = 1 << 20;  // deflate compresses at most 1032 times
  const std::int64_t most = layout == H5D_CHUNKED && deflated ? file_size * kDeflateRatio + kSmall : file_size;
  require_data(bytes <= most, "reading ", what, ": shape ", shape_text(shape), " claims ", bytes,
               " bytes, but the file has ", file_size, "; it is damaged");
  if (layout == H5D_CONTIGUOUS && elements > 0) {
    const haddr_t offset = H5Dget_offset(dataset);
    const auto stored = static_cast<std::int64_t>(H5Dget_storage_size(dataset));
    require_data(offset != HADDR_UNDEF && stored >= bytes, "reading ", what, ": no data were ever written");
    require_data(stored <= file_size && offset <= static_cast<haddr_t>(file_size - stored), "reading ", what,
                 ": the data lie beyond the end of the file; it is truncated");
  }
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(H5S_MAX_RANK);
    const int axes = H5Pget_chunk(plist, H5S_MAX_RANK, chunk.data());
    double chunk_bytes = static_cast<double>(element_size);
    for (int axis = 0; axis < axes; ++axis) chunk_bytes *= static_cast<double>(chunk[axis]);
    require_data(axes > 0 && chunk_bytes <= std::max(static_cast<double>(most), 64.0 * kSmall), "reading ", what,
                 ": a chunk claims ", chunk_bytes, " bytes; the file is damaged");
  }
}

std::int64_t block_rows(hid_t dataset, const std::vector<std::int64_t>& shape, std::size_t element_size) {
  constexpr std::int64_t kBlockBytes = 4 << 20;
  if (shape.empty()) return 1;
  std::int64_t row_bytes = static_cast<std::int64_t>(element_size);
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row_bytes *= std::max<std::int64_t>(shape[axis], 1);
  const Id plist(H5Dget_create_plist(dataset), H5Pclose);
  std::vector<hsize_t> chunk(H5S_MAX_RANK, 1);
  if (H5Pget_layout(plist) == H5D_CHUNKED) H5Pget_chunk(plist, H5S_MAX_RANK, chunk.data());
  const std::int64_t whole = std::min(static_cast<std::int64_t>(chunk[0]), shape[0]);
  const std::int64_t rows = std::max(kBlockBytes / row_bytes, std::int64_t{1});
  return std::min(std::max((rows + whole - 1) / whole * whole, std::int64_t{1}), std::max(shape[0], std::int64_t{1}));
}

Id checked_transfer() {
  Id plist(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  const auto on_exception = [](H5T_conv_except_t kind, hid_t, hid_t to, void*, void*, void*) {
    const bool overflow = kind == H5T_CONV_EXCEPT_RANGE_HI || kind == H5T_CONV_EXCEPT_RANGE_LOW;
    return overflow && H5Tget_class(to) == H5T_INTEGER ? H5T_CONV_ABORT : H5T_CONV_UNHANDLED;
  };
  H5Pset_type_conv_cb(plist, on_exception, nullptr);
  return plist;
}

Id string_type(std::size_t size) {
  Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, size);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

std::size_t longest(std::span<const std::string> values) {
  std::size_t size = 1;
  for (const std::string& value : values) size = std::max(size, value.size());
  return size;
}

std::string padded(std::span<const std::string> values, std::size_t size) {
  std::string bytes(values.size() * size, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i].copy(bytes.data() + i * size, size);
  return bytes;
}

}  // namespace lockstep::h5

namespace lockstep {

const char* name(H5Type type) {
  constexpr const char* kByType[] = {"u8", "i32", "i64", "f32", "f64", "text"};
  return kByType[static_cast<std::size_t>(type)];
}

}  // namespace lockstep
