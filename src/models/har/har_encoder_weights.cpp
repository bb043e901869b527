#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/har/har_weights.hpp"

namespace lockstep {

void load_encoder_weights(Har& network, const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "option model.encoder_weights: no file '", path.string(), "'");
  constexpr std::string_view kEncoder = "encoder.";
  NamedArrays arrays = path.extension() == ".h5" || file_kind(path) == FileKind::hdf5
                           ? h5_arrays(H5File::open(path), "/")
                           : read_weights(path);
  for (NamedArray& array : arrays.arrays)
    if (array.name.starts_with(kEncoder)) array.name.erase(0, kEncoder.size());
  std::ranges::sort(arrays.arrays, {}, &NamedArray::name);
  load_arrays_below(std::string(kEncoder), network.params(), arrays, "reading encoder weights '" + path.string() + "'");
}

}  // namespace lockstep
