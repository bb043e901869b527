#include "lockstep/base/error.hpp"
#include "lockstep/prep/netcdf.hpp"

/// NcFile in a build with LOCKSTEP_NETCDF=OFF: no file can be opened, so the other members never run.
namespace lockstep::prep {

NcFile NcFile::open(const std::filesystem::path& path) {
  throw Error(Fault::usage, join("opening '", path.string(),
                                 "': this program is built without NetCDF; build it with LOCKSTEP_NETCDF=ON"));
}
NcFile::NcFile(NcFile&& other) noexcept : path_(std::move(other.path_)), id_(-1) {}
NcFile::~NcFile() = default;
bool NcFile::has(const std::string&) const { return false; }
std::vector<std::string> NcFile::variables() const { return {}; }
std::string NcFile::suggestion(const std::string&) const { return {}; }
NcVariable NcFile::describe(const std::string&) const { return {}; }
std::optional<std::string> NcFile::text_attribute(const std::string&, const std::string&) const { return {}; }
std::vector<double> NcFile::read(const std::string&) const { return {}; }
std::vector<double> NcFile::read_slice(const std::string&, std::size_t, std::int64_t) const { return {}; }

}  // namespace lockstep::prep
