#include "lockstep/io/file_system.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
struct Known {
  std::uint32_t type;
  const char* name;
};
/// source  statfs(2); linux/magic.h; the headers of Lustre, GPFS, BeeGFS, PanFS and WekaFS
constexpr std::array kKnown = {
    Known{0x6969, "NFS"},        Known{0x0BD00BD0, "Lustre"}, Known{0x47504653, "GPFS (Storage Scale)"},
    Known{0x19830326, "BeeGFS"}, Known{0x00C36400, "CephFS"}, Known{0x20030528, "OrangeFS"},
    Known{0xAAD7AAEA, "PanFS"},  Known{0xFF534D42, "CIFS"},   Known{0xFE534D42, "SMB"},
    Known{0x5346414F, "AFS"},    Known{0x01021997, "9P"},     Known{0x01161970, "GFS2"},
    Known{0x7461636F, "OCFS2"},  Known{0x73757245, "Coda"},   Known{0x19800202, "WekaFS"},
};
}  // namespace

std::string shared_file_system(long type) {
  const auto found = std::ranges::find(kKnown, static_cast<std::uint32_t>(type), &Known::type);
  return found == kKnown.end() ? "" : found->name;
}

std::string shared_file_system(const std::filesystem::path& path) {
  struct statfs system {};
  return statfs(path.c_str(), &system) == 0 ? shared_file_system(static_cast<long>(system.f_type)) : "";
}

void require_file(const std::filesystem::path& path, const char* doing) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const std::string what = join(doing, " '", path.string(), "': ");
  require_usage(status.type() != fs::file_type::not_found, what, "no such file");
  require_usage(fs::status_known(status), what, error.message());
  const fs::path best = path / "checkpoints" / "best.h5";  // what a run directory has
  require_usage(!fs::is_directory(status), what, "it is a directory; name a file",
                fs::exists(best, error) ? ", such as " + best.string() : "");
  require_usage(fs::is_regular_file(status), what, "not a regular file");
}

void require_different(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code error;
  const auto place = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  require_usage(place(one) != place(other), "writing '", one.string(), "' and '", other.string(),
                "': they are the same file; choose two");
}

}  // namespace lockstep
