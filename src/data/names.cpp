#include "lockstep/data/names.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

namespace {
constexpr const char* kAttribute = "names_xxh3";
}

std::uint64_t hash_of_names(const std::vector<std::string>& names) {
  Hash64 hash;
  for (const std::string& name : names) hash.add(name.c_str(), name.size() + 1);
  return hash.value();
}

void save_names(H5File& checkpoint, std::uint64_t hash) { checkpoint.set_attribute("/", kAttribute, hex64(hash)); }

void require_names(const H5File& checkpoint, std::uint64_t hash, const std::string& data_path, const char* what) {
  if (!checkpoint.has_attribute("/", kAttribute)) return;
  const std::string trained = checkpoint.text_attribute("/", kAttribute);
  require_data(trained == hex64(hash), "checkpoint '", checkpoint.path().string(), "' was trained with other ", what,
               " (hash of their names ", trained, ") than those of '", data_path, "' (", hex64(hash),
               "), so its weights mean nothing for them; name a data set with the same ", what, " in the same order");
}

}  // namespace lockstep
