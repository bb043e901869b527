#include "files.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/io/seal.hpp"

/// The HDF5 model file: attributes and groups of save_emulator_metadata, /weights/NAME and /selftest/{x,y,J}, with the
/// checksums and the end mark of io/seal.hpp. A training checkpoint has the same contents, with weights in /ema or
/// /model and without self-test.
namespace lockstep::files {
namespace {

constexpr const char* kCheckpointFormat = "lockstep-checkpoint";

void write_tensor(H5File& file, const std::string& path, const NamedArray& tensor) {
  std::visit([&]<class T>(const std::vector<T>& values) { file.write<T>(path, values, tensor.shape); }, tensor.values);
}

Tensors load_group(const H5File& file, const std::string& group, const std::string& prefix) {
  Tensors out;
  for (const std::string& path : file.datasets_under(group)) {
    const H5Type type = file.info(path).type;
    require_model(type == H5Type::f32 || type == H5Type::f64, file.path().string(), "dataset '", path, "' holds ",
                  name(type), ", expected f32 or f64");
  }
  for (NamedArray& array : h5_arrays(file, group).arrays) out.emplace(prefix + array.name, std::move(array));
  return out;
}

}  // namespace

void write_h5model(const std::filesystem::path& path, const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  const auto weights = weights_of(network);
  write_sealed(path, {}, [&](H5File& file) {
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
    save_emulator_metadata(file, network.arch(), network.moments(), metadata);
    for (const NamedArray& tensor : weights) write_tensor(file, "/weights/" + tensor.name, tensor);
    for (const NamedArray& tensor : selftest_of(selftest, network.arch()))
      write_tensor(file, "/selftest/" + tensor.name.substr(tensor.name.find('.') + 1), tensor);
  });
}

TrainedEmulator read_h5model(const std::filesystem::path& path, EmulatorSelfTest& selftest, EmulatorWeights wanted) {
  const std::string source = path.string();
  const auto refuse_damaged = [&](const std::string& defect) {
    require_model(defect.empty(), source, defect, "; use an undamaged copy, or export it again");
  };
  const FileKind kind = file_kind(path);
  require_model_format(kind != FileKind::data_set && kind != FileKind::predictions && kind != FileKind::hdf5, source,
                       "it is ", name(kind), ", not a model file or a checkpoint");
  refuse_damaged(end_mark_defect(path));
  const H5File file = H5File::open(path);
  const std::string format = file.has_attribute("/", "format") ? file.text_attribute("/", "format") : "";
  const bool checkpoint = format == kCheckpointFormat;
  require_model_format(checkpoint || format == kFormat, source, "its format is '", format, "', expected '", kFormat,
                       "' or '", kCheckpointFormat, "'");
  const std::int64_t version = file.int_attribute("/", "version");
  require_model_format(version >= 1 && version <= kVersion, source, "version ", version,
                       " is not supported; this program reads 1 to ", kVersion, "; use a newer one");
  refuse_damaged(contents_defect(file));
  if (checkpoint) {
    const std::string kind = file.text_attribute("/", "model_kind");
    require_model_format(kind == "emulator", source, "a checkpoint of a ", kind, " model, expected an emulator");
  }
  const EmulatorDescription description = read_emulator_metadata(file);
  const bool average = file.has("/ema") && wanted != EmulatorWeights::trained;
  require_model(average || wanted != EmulatorWeights::average, source, "it has no averaged weights; see optim.ema");
  const Tensors weights = load_group(file, !checkpoint ? "/weights" : average ? "/ema" : "/model", "");
  require_usage(!checkpoint || !weights.empty(), "opening model '", source,
                "': a sharded checkpoint, whose parts hold the weights; write one file by lockstep checkpoint merge '",
                source, "' FILE");
  TrainedEmulator out = assemble(description, weights, source);
  if (checkpoint) {
    selftest = make_selftest(out.network);
  } else {
    Tensors rows = load_group(file, "/selftest", "selftest.");
    selftest = take_selftest(rows, description.arch, source);
  }
  return out;
}

}  // namespace lockstep::files
