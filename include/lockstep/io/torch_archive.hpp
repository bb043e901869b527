#pragma once
#include <map>
#include <string>
#include <string_view>

#include "lockstep/io/unpickle.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/io/zip.hpp"

/// The archive of torch.save and of TorchScript: pickles, and storages beside them.
/// source  PyTorch torch/serialization.py, torch/csrc/jit/docs/serialization.md
namespace lockstep {

/// Whether the pickle of a dictionary of tensors may name this class or function.
bool is_torch_global(std::string_view name);

/// `value` if it is a tensor, its data if it is a parameter, otherwise null.
const PickleValue* torch_tensor(const PickleValue& value);

/// The folder of data.pkl, with a trailing slash, or "". errors  data, beginning with `reading`: no data.pkl, or
/// big-endian
std::string torch_folder(const ZipReader& archive, const std::string& reading);

/// The tensors of one pickle.
class TorchTensors {
 public:
  /// folder: of the storages, with a trailing slash. `archive` must outlive this; error messages begin with `reading`.
  TorchTensors(const ZipReader& archive, std::string folder, std::string reading)
      : archive_(archive), folder_(std::move(folder)), reading_(std::move(reading)) {}
  /// tensor: a result of torch_tensor(). errors  data: damaged, or of another dtype than read_weights() reads
  NamedArray read(const std::string& name, const PickleValue& tensor);

 private:
  const std::string& storage(const std::string& key);

  const ZipReader& archive_;
  std::string folder_, reading_;
  std::map<std::string, std::string> storages_;
  std::map<std::string, std::size_t> shared_;
};

}  // namespace lockstep
