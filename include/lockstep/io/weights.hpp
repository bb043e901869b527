#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

class H5File;

/// A named array of a weight file, contiguous and row-major.
struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;  ///< no axes for a scalar
  std::variant<std::vector<float>, std::vector<double>, std::vector<std::int64_t>> values;
  std::string stored = {};  ///< name of the dtype in the file: halves are read as f32, all integers as i64

  std::size_t count() const;
  /// "f32", "f64" or "i64".
  const char* dtype() const;
  bool operator==(const NamedArray&) const = default;
};

/// The contents of a weight file.
struct NamedArrays {
  std::vector<NamedArray> arrays;               ///< sorted by name, all different
  std::map<std::string, std::string> metadata;  ///< of safetensors; empty for other formats

  /// errors  Error if no array has this name
  const NamedArray& at(const std::string& name) const;
  /// Null if no array has this name.
  const NamedArray* find(const std::string& name) const;
};

/// Reads a file of arrays for import, recognised by its first bytes:
///
/// - safetensors: F64, F32, F16, BF16, I64 to I8, U32 to U8, BOOL
/// - .npz of NumPy: stored or deflated members NAME.npy, f2 f4 f8 i1 to i8 u1 to u4 and booleans, in C or Fortran order
/// - .pt, .pth of torch.save (PyTorch 1.6 or newer): a dictionary of tensors, alone or inside of other dictionaries.
///   Sparse tensors are left out.
///   The pickle may name only the classes and functions that tensors need. It is read as data, never executed.
///
/// key  path of the dictionary in a .pt file, such as "model" or "ema.state_dict"; "" for the only one
/// errors  usage: missing, not readable, several dictionaries without `key`; data: damaged, foreign, another dtype, a
///         name twice, values that are not finite (naming the arrays)
NamedArrays read_weights(const std::filesystem::path& path, const std::string& key = "");

/// errors  data, beginning with `what`: names the arrays with infinite or NaN values
void require_finite(const NamedArrays& arrays, const std::string& what);

/// One reader per format. `source` names the file in error messages. Values may be infinite or NaN.
NamedArrays safetensors_arrays(std::string_view bytes, const std::string& source);
NamedArrays npz_arrays(std::string_view bytes, const std::string& source);
NamedArrays torch_arrays(std::string_view bytes, const std::string& source, const std::string& key = "");
/// The datasets of numbers below a group, named by their paths from it.
NamedArrays h5_arrays(const H5File& file, const std::string& group);
/// An array of NumPy's own format, versions 1 to 3. errors  data, beginning with `what`
NamedArray npy_array(std::string_view bytes, const std::string& what);

/// A safetensors file of f32, f64 and i64 arrays. The entries data_xxh3 and metadata_xxh3 are added to the metadata;
/// safetensors_arrays() verifies them.
std::string safetensors_bytes(const NamedArrays& arrays);
bool is_safetensors(std::string_view bytes);

}  // namespace lockstep
