#include "files.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"

/// The HDF5 model file: attributes and groups of save_emulator_metadata, /weights/NAME and /selftest/{x,y,J}, with the
/// checksums and the end mark of io/seal.hpp. A training checkpoint has the same contents, with weights in /ema or
/// /model and without self-test.
namespace lockstep::files {
namespace {

constexpr const char* kCheckpointFormat = "lockstep-checkpoint";

void write_tensor(H5File& file, const std::string& path, const FileTensor& tensor) {
  const auto n = static_cast<std::size_t>(tensor.count());
  if (tensor.dtype == DType::f64) {
    file.write<double>(path, {static_cast<const double*>(tensor.data), n}, tensor.shape);
  } else {
    file.write<float>(path, {static_cast<const float*>(tensor.data), n}, tensor.shape);
  }
}

/// The tensors of a group, and their memory.
struct LoadedTensors {
  std::vector<std::vector<double>> f64;
  std::vector<std::vector<float>> f32;
  Tensors tensors;
};

LoadedTensors load_group(const H5File& file, const std::string& group, const std::string& prefix) {
  LoadedTensors out;
  for (const std::string& path : file.datasets_under(group)) {
    const H5Info info = file.info(path);
    require_data(info.type == H5Type::f32 || info.type == H5Type::f64, "opening model '", file.path().string(),
                 "': dataset '", path, "' holds ", name(info.type), ", expected f32 or f64");
    FileTensor tensor;
    tensor.name = prefix + path.substr(group.size() + 1);
    tensor.shape = info.shape;
    if (info.type == H5Type::f64) {
      tensor.dtype = DType::f64;
      tensor.data = out.f64.emplace_back(file.read<double>(path)).data();
    } else {
      tensor.data = out.f32.emplace_back(file.read<float>(path)).data();
    }
    const std::string key = tensor.name;
    out.tensors.emplace(key, std::move(tensor));
  }
  return out;
}

}  // namespace

void write_h5model(const std::filesystem::path& path, const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  const auto weights = weights_of(network);
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
    save_emulator_metadata(file, network.arch(), network.moments(), metadata);
    for (const FileTensor& tensor : weights) write_tensor(file, "/weights/" + tensor.name, tensor);
    for (const FileTensor& tensor : selftest_of(selftest, network.arch())) {
      write_tensor(file, "/selftest/" + tensor.name.substr(tensor.name.find('.') + 1), tensor);
    }
    seal_contents(file);
    file.close();
    append_end_mark(temporary);
  });
}

TrainedEmulator read_h5model(const std::filesystem::path& path, EmulatorSelfTest& selftest, EmulatorWeights wanted) {
  const std::string source = path.string();
  const auto refuse_damaged = [&](const std::string& defect) {
    require_data(defect.empty(), "opening model '", source, "': ", defect,
                 "; use an undamaged copy, or export it again");
  };
  refuse_damaged(end_mark_defect(path));
  const H5File file = H5File::open(path);
  const std::string format = file.has_attribute("/", "format") ? file.text_attribute("/", "format") : "";
  const bool checkpoint = format == kCheckpointFormat;
  require_format(checkpoint || format == kFormat, "opening model '", source, "': its format is '", format,
                 "', expected '", kFormat, "' or '", kCheckpointFormat, "'");
  const std::int64_t version = file.int_attribute("/", "version");
  require_format(version >= 1 && version <= kVersion, "opening model '", source, "': version ", version,
                 " is not supported; this program reads 1 to ", kVersion, "; use a newer one");
  refuse_damaged(contents_defect(file));
  if (checkpoint) {
    const std::string kind = file.text_attribute("/", "model_kind");
    require_format(kind == "emulator", "opening model '", source, "': a checkpoint of a ", kind,
                   " model, expected an emulator");
  }
  EmulatorDescription description = read_emulator_metadata(file);
  const bool average = file.has("/ema") && wanted != EmulatorWeights::trained;
  require_data(average || wanted != EmulatorWeights::average, "opening model '", source,
               "': it has no averaged weights; see optim.ema");
  const LoadedTensors weights = load_group(file, !checkpoint ? "/weights" : average ? "/ema" : "/model", "");
  Description known{description.arch, std::move(description.metadata)};
  TrainedEmulator out = assemble(std::move(known), description.moments, weights.tensors, source);
  if (checkpoint) {
    selftest = make_selftest(out.network);
  } else {
    LoadedTensors rows = load_group(file, "/selftest", "selftest.");
    selftest = take_selftest(rows.tensors, description.arch, source);
  }
  return out;
}

}  // namespace lockstep::files
