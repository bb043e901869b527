#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>

#include "h5_internal.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/file_system.hpp"

namespace lockstep {

namespace fs = std::filesystem;

H5File::H5File(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
H5File::H5File(H5File&&) noexcept = default;
H5File& H5File::operator=(H5File&&) noexcept = default;
H5File::~H5File() = default;

const fs::path& H5File::path() const { return handle_->path; }
const h5::Contents* H5File::written() const { return handle_->written ? &*handle_->written : nullptr; }

h5::Id h5::plain_object(hid_t kind) {
  constexpr unsigned kCompact = 64;  // with the default, 8, longer lists get an index, slower to write and to read
  h5::Id creation(H5Pcreate(kind), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  H5Pset_attr_phase_change(creation, kCompact, kCompact);
  if (kind != H5P_DATASET_CREATE) H5Pset_link_phase_change(creation, kCompact, kCompact);
  return creation;
}

namespace {
h5::Id access_properties() {
  h5::Id plist(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(plist, H5F_CLOSE_STRONG);
  H5Pset_libver_bounds(plist, H5F_LIBVER_V110, H5F_LIBVER_V110);
  return plist;
}
}  // namespace

H5File H5File::open(const fs::path& path, const fs::path& copy) {
  const h5::LibraryLock lock;
  std::error_code error;
  const fs::path& source = copy.empty() ? path : copy;
  if (copy.empty()) require_file(path, "opening");
  std::ifstream in(source, std::ios::binary);
  require_usage(in.good(), "opening '", path.string(), "': ", std::strerror(errno));

  auto handle = std::make_unique<Handle>();
  handle->path = path;
  handle->file_size = static_cast<std::int64_t>(fs::file_size(source, error));
  const h5::Id access = access_properties();
  // The default driver resolves the real path behind a name in /proc. A file that is removed but open has none.
  if (!copy.empty()) H5Pset_fapl_stdio(access);
  handle->file = h5::Id(H5Fopen(source.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (!handle->file.valid()) {
    const std::string reason = h5::innermost_error();
    std::string head(4, ' ');
    const bool foreign = !in.read(head.data(), 4) || head != "\x89HDF";
    throw Error(Fault::data, join("opening '", path.string(), "' as HDF5: ", reason,
                                  foreign ? join("; it is ", name(file_kind(source))) : ""));
  }
  return H5File(std::move(handle));
}

H5File H5File::create(const fs::path& path) {
  const h5::LibraryLock lock;
  auto handle = std::make_unique<Handle>();
  handle->path = path;
  handle->written.emplace().try_emplace("/");
  handle->file_size = h5::kNoLimit;  // written data may be read back before the file grows
  const h5::Id access = access_properties();
  const h5::Id creation = h5::plain_object(H5P_FILE_CREATE);
  handle->file = h5::Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  require(handle->file.valid(), "creating '", path.string(), "': ", h5::kReason);
  return H5File(std::move(handle));
}

void H5File::prepare_library() {
  H5dont_atexit();
  struct sigaction now {};
  if (sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGXFSZ, SIG_IGN);
}

void H5File::close() {
  if (!handle_->file.valid()) return;
  const h5::LibraryLock lock;
  std::string reason;
  const auto note = [&](bool good) {
    if (!good && reason.empty()) reason = h5::innermost_error();
  };
  handle_->object_id.reset();
  if (handle_->written) {
    for (auto& [object, known] : *handle_->written) note(known.id.reset());
    note(H5Fflush(handle_->file, H5F_SCOPE_LOCAL) >= 0);
  }
  const bool closed = handle_->file.reset();
  require(reason.empty(), "writing '", path().string(), "': ", reason);
  require(closed, "closing '", path().string(), "': ", h5::kReason);
}

bool H5File::has(const std::string& object) const {
  if (const h5::Contents* known = written()) return known->contains(h5::absolute(object));
  const h5::LibraryLock lock;
  return h5::exists(handle_->file, object, *this);
}

bool H5File::is_group(const std::string& object) const {
  const h5::LibraryLock lock;
  if (handle_->object_id.valid() && handle_->object == object) return H5Iget_type(handle_->object_id) == H5I_GROUP;
  return has(object) && h5::object_type(handle_->file, object) == H5O_TYPE_GROUP;
}

std::vector<std::string> H5File::list(const std::string& group) const {
  const h5::LibraryLock lock;
  h5::require_hard_links(handle_->file, group, *this);
  const h5::Id id(H5Gopen2(handle_->file, h5::absolute(group).c_str(), H5P_DEFAULT), H5Gclose);
  require_data(id.valid(), "listing ", h5::quoted(group, *this), ": ", h5::kReason);
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  hsize_t position = 0;
  require_data(H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, &position, keep, &names) >= 0, "listing ",
               h5::quoted(group, *this), ": ", h5::kReason);
  std::sort(names.begin(), names.end());
  return names;
}

namespace {
constexpr int kDeepestGroup = 32;

/// visited  addresses of the groups so far: hard links can make a group its own ancestor
void collect(const H5File& file, hid_t id, const std::string& group, int depth, std::set<hobj_ref_t>& visited,
             std::vector<std::string>& out) {
  require_data(depth < kDeepestGroup, "listing ", h5::quoted(group, file), ": groups nested deeper than ",
               kDeepestGroup);
  hobj_ref_t address{};
  require_data(H5Rcreate(&address, id, group.c_str(), H5R_OBJECT, -1) >= 0, "listing ", h5::quoted(group, file), ": ",
               h5::kReason);
  require_data(visited.insert(address).second, "listing ", h5::quoted(group, file), ": the group has a second name");
  for (const auto& member : file.list(group)) {
    const std::string path = group == "/" ? "/" + member : group + "/" + member;
    h5::require_hard_links(id, path, file);
    const H5O_type_t type = h5::object_type(id, path);
    if (type == H5O_TYPE_DATASET) out.push_back(path);
    if (type == H5O_TYPE_GROUP) collect(file, id, path, depth + 1, visited, out);
    require_data(type != H5O_TYPE_UNKNOWN, "listing ", h5::quoted(group, file), ": '", member,
                 "' is neither a dataset nor a group");
  }
}
}  // namespace

std::vector<std::string> H5File::datasets_under(const std::string& group) const {
  const h5::LibraryLock lock;
  std::vector<std::string> out;
  std::set<hobj_ref_t> visited;
  collect(*this, handle_->file, h5::absolute(group), 0, visited, out);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lockstep
