#include "lockstep/io/seal.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <span>
#include <system_error>
#include <utility>

#include "h5_internal.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep {

namespace {

constexpr const char* kChecksum = "xxh3";
constexpr const char* kStructure = "structure_xxh3";

std::uint64_t hash_dataset(const H5File& file, const std::string& dataset) {
  if (const h5::Contents* written = file.written())
    if (const auto hash = written->at(dataset).hash()) return *hash;
  const H5Type type = file.info(dataset).type;
  if (type == H5Type::text) return hash_texts(file.read_text(dataset));
  return visit_numbers(type, [&]<class T>() {
    Hash64 hash;
    file.read_blocks<T>(dataset, [&](std::int64_t, std::span<const T> v) {
      hash.add(v.data(), v.size_bytes());
      file_bytes_moved += v.size_bytes();
    });
    return hash.value();
  });
}

/// Hashes texts and numbers together with their lengths, so that ("ab", "c") differs from ("a", "bc").
class Hasher {
 public:
  void add(const std::string& text) {
    const std::string_view stored = text.c_str();  // NOLINT(readability-redundant-string-cstr): up to the first NUL
    number(stored.size());
    hash_ = hash64(stored, hash_);
  }
  void number(auto value) { hash_ = hash64(&value, sizeof value, hash_); }
  void add(const H5Value& value) {
    number(value.index());
    std::visit([this](const auto& v) { one(v); }, value);
  }
  std::uint64_t value() const { return hash_; }

 private:
  void one(std::int64_t v) { number(v); }
  void one(double v) { number(v); }
  void one(const std::string& v) { add(v); }
  template <class T>
  void one(const std::vector<T>& values) {
    number(values.size());
    for (const T& v : values) one(v);
  }
  std::uint64_t hash_ = 0;
};

/// info  of a dataset
void add_object(Hasher& hasher, const std::string& object, const std::map<std::string, H5Value>& attributes,
                const std::optional<H5Info>& info) {
  hasher.add(object);
  for (const auto& [name, value] : attributes) {
    if (object == "/" && name == kStructure) continue;
    hasher.add(name);
    hasher.add(value);
  }
  if (!info) return;
  hasher.number(info->type);
  hasher.number(info->shape.size());
  for (const std::int64_t extent : info->shape) hasher.number(extent);
}

void add_stored(Hasher& hasher, const H5File& file, const std::string& object) {
  std::map<std::string, H5Value> attributes;
  for (const std::string& name : file.attributes(object)) attributes[name] = file.attribute(object, name);
  const bool group = file.is_group(object);
  add_object(hasher, object, attributes, group ? std::nullopt : std::optional(file.info(object)));
  if (!group) return;
  for (const std::string& name : file.list(object))
    add_stored(hasher, file, object == "/" ? "/" + name : object + "/" + name);
}

std::string hash_structure(const H5File& file) {
  Hasher hasher;
  if (const h5::Contents* written = file.written()) {
    for (const auto& [path, object] : *written) add_object(hasher, path, object.attributes, object.info);
  } else {
    add_stored(hasher, file, "/");
  }
  return hex64(hasher.value());
}

constexpr std::size_t kMarkBytes = 64;
constexpr std::string_view kMarkBegin = "\nlockstep end mark 1:         ";

/// kMarkBegin + "LENGTH CHECKSUM\n", exactly kMarkBytes characters.
std::string end_mark(std::uint64_t length, std::uint64_t hash) {
  return std::string(kMarkBegin) + hex64(length) + " " + hex64(hash) + "\n";
}

/// Checksum of the first `length` bytes, block by block.
std::uint64_t hash_file(std::ifstream& in, std::uint64_t length) {
  std::vector<char> block(std::min(length, std::uint64_t{1} << 20));
  std::uint64_t hash = 0;
  while (length > 0) {
    const std::size_t count = length < block.size() ? static_cast<std::size_t>(length) : block.size();
    in.read(block.data(), static_cast<std::streamsize>(count));
    if (!in) break;
    hash = hash64(block.data(), count, hash);
    length -= count;
    file_bytes_moved += count;
  }
  return hash;
}

/// Distinguishes a file from a later one of the same name.
struct FileIdentity {
  ::dev_t device;
  ::ino_t inode;
  ::off_t size;
  std::int64_t seconds, nanoseconds;
  std::string end_mark;
  bool operator==(const FileIdentity&) const = default;
};

std::optional<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  try {
    return FileIdentity{found.st_dev,         found.st_ino,          found.st_size,
                        found.st_mtim.tv_sec, found.st_mtim.tv_nsec, read_end_mark(path)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::mutex whole_mutex;
/// By path and part.
auto& whole_files() {
  static std::map<std::pair<std::filesystem::path, std::string>, FileIdentity> files;
  return files;
}

}  // namespace

void seal_contents(H5File& file) {
  for (const auto& [path, object] : *file.written())
    if (object.info) file.set_attribute(path, kChecksum, hex64(hash_dataset(file, path)));
  file.set_attribute("/", kStructure, hash_structure(file));
}

std::uint64_t hash_texts(std::span<const std::string> texts, std::uint64_t before) {
  std::uint64_t hash = before;
  // NOLINTNEXTLINE(readability-redundant-string-cstr): as they are stored, up to the first NUL
  for (const std::string& text : texts) hash = hash64(std::string_view(text.c_str()), hash + 1);
  return hash;
}

bool is_sealed(const H5File& file) { return file.has_attribute("/", kStructure); }

std::string structure_defect(const H5File& file) {
  (void)file.datasets_under("/");  // refuses links that form a cycle
  const std::string stored = file.text_attribute("/", kStructure), found = hash_structure(file);
  return stored == found
             ? ""
             : join("names, shapes or attributes are damaged (checksum ", found, ", expected ", stored, ")");
}

std::string values_defect(const H5File& file, const std::string& dataset, std::optional<std::uint64_t> hash) {
  const std::string stored = file.text_attribute(dataset, kChecksum),
                    found = hex64(hash ? *hash : hash_dataset(file, dataset));
  return stored == found ? ""
                         : join("dataset '", dataset, "' is damaged (checksum ", found, ", expected ", stored, ")");
}

std::string contents_defect(const H5File& file) {
  try {
    if (!is_sealed(file)) return join("no attribute '", kStructure, "'");
    if (std::string defect = structure_defect(file); !defect.empty()) return defect;
    for (const std::string& dataset : file.datasets_under("/"))
      if (std::string defect = values_defect(file, dataset); !defect.empty()) return defect;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void append_end_mark(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const auto length = static_cast<std::uint64_t>(std::filesystem::file_size(path));
  const std::string mark = end_mark(length, hash_file(in, length));
  require(in.good() && mark.size() == kMarkBytes, "reading back ", path,
          " to compute its checksum: ", std::strerror(errno));
  std::ofstream out(path, std::ios::binary | std::ios::app);
  out << mark;
  out.close();
  require(out.good(), "writing the end mark of ", path, ": ", std::strerror(errno));
}

std::string read_end_mark(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string mark(kMarkBytes, ' ');
  in.seekg(-static_cast<std::streamoff>(kMarkBytes), std::ios::end);
  in.read(mark.data(), static_cast<std::streamsize>(mark.size()));
  require_data(in.good(), "reading the end mark of ", path, ": it is too short or cannot be read");
  return mark.substr(1, kMarkBytes - 2);  // without its line breaks
}

bool has_end_mark(const std::filesystem::path& path) {
  return std::filesystem::file_size(path) >= kMarkBytes &&
         read_end_mark(path).starts_with(kMarkBegin.substr(1));  // without its line break
}

bool is_seal(const std::string& attribute) { return attribute == kChecksum || attribute == kStructure; }

std::string end_mark_defect(const std::filesystem::path& path) {
  std::error_code failure;
  if (std::filesystem::exists(path, failure) && !std::filesystem::is_regular_file(path, failure))
    return "it is not a regular file";
  const auto size = static_cast<std::uint64_t>(std::filesystem::file_size(path, failure));
  if (failure) return failure.message();
  if (size < kMarkBytes) return join("only ", size, " bytes long");
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::strerror(errno);
  const std::uint64_t length = size - kMarkBytes, hash = hash_file(in, length);
  std::array<char, kMarkBytes> stored{};
  in.read(stored.data(), stored.size());
  if (!in) return "it cannot be read to its end";
  const std::string found(stored.data(), stored.size()), expected = end_mark(length, hash);
  if (found == expected) return "";
  constexpr std::size_t kLengthAt = kMarkBegin.size(), kHashAt = 47, kDigits = 16;
  if (!found.starts_with(kMarkBegin))
    return "its end mark is missing: the file is truncated, or another program has written to it";
  if (found.substr(kLengthAt, kDigits) != expected.substr(kLengthAt, kDigits))
    return "its length differs from that in its end mark";
  return join("its bytes are damaged (checksum ", hex64(hash), ", expected ", found.substr(kHashAt, kDigits), ")");
}

void write_sealed(const std::filesystem::path& path, const ContentsDefect& defect,
                  const std::function<void(H5File&)>& fill) {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    fill(file);
    seal_contents(file);
    file.close();
    append_end_mark(temporary);
    if (!defect) return;
    flush_to_disk(temporary);
    const std::string found = defect(temporary);
    require(found.empty(), "writing ", path, ": the file does not read back: ", found);
  });
}

std::string sealed_file_defect(const std::filesystem::path& path, const ContentsDefect& defect) {
  if (known_whole(path)) return "";
  std::string found = end_mark_defect(path);
  if (found.empty()) found = defect(path);
  if (found.empty()) note_whole(path);
  return found;
}

void note_whole(const std::filesystem::path& path, const std::string& part) {
  const std::optional<FileIdentity> identity = identity_of(path);
  if (!identity) return;
  const std::lock_guard lock(whole_mutex);
  whole_files()[{std::filesystem::absolute(path), part}] = *identity;
}

bool known_whole(const std::filesystem::path& path, const std::string& part) {
  const std::optional<FileIdentity> identity = identity_of(path);
  const std::lock_guard lock(whole_mutex);
  const auto known = whole_files().find({std::filesystem::absolute(path), part});
  return identity && known != whole_files().end() && known->second == *identity;
}

}  // namespace lockstep
