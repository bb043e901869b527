#include "lockstep/train/checkpoint.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"
#include "train/checkpoint_parts.hpp"

namespace lockstep {

namespace {

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr std::int64_t kVersion = 1;

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> result;
  for (int axis = 0; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

void write_tensor(H5File& file, const std::string& dataset, const Tensor& value) {
  const HostView host(value);
  visit_stored(value.dtype(),
               [&]<class T>() { file.write<T>(dataset, std::span<const T>(host->span<T>()), extents(value.shape())); });
}

std::string group_of(const NamedOptimizer& o) { return o.name.empty() ? "/optim" : "/optim/" + o.name; }

/// A number that this host has not given before.
std::int64_t fresh_number() { return std::chrono::system_clock::now().time_since_epoch().count(); }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void write_state(H5File& file, const TrainState& state) {
  file.create_group("/state/history");
  TrainState::visit(state, [&]<class T>(const char* name, const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      file.set_attribute("/state", name, static_cast<std::int64_t>(field));
    } else {
      file.set_attribute("/state", name, H5Value(field));
    }
  });
  for (const auto& [name, values] : state.history.all()) {
    file.write<double>("/state/history/" + name, values, {static_cast<std::int64_t>(values.size())});
  }
}

TrainState read_state(const H5File& file) {
  TrainState state;
  TrainState::visit(state, [&]<class T>(const char* name, T& field) {
    const bool recent = std::string_view(name).starts_with("loss_scale");  // older files have none
    if (recent && !file.has_attribute("/state", name)) return;
    if constexpr (std::is_same_v<T, std::string>) {
      field = file.text_attribute("/state", name);
    } else if constexpr (std::is_same_v<T, double>) {
      field = file.real_attribute("/state", name);
    } else {
      field = static_cast<T>(file.int_attribute("/state", name));
    }
  });
  std::map<std::string, std::vector<double>> series;
  for (const std::string& name : file.list("/state/history"))
    series[name] = file.read<double>("/state/history/" + name);
  state.history.restore(std::move(series));
  return state;
}

}  // namespace

namespace {

/// Of one file, whatever its parts are like.
std::string file_defect(const std::filesystem::path& path) {
  if (std::string defect = end_mark_defect(path); !defect.empty()) return defect;
  try {
    const H5File file = H5File::open(path);
    if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kFormat)
      return "it is not a checkpoint of lockstep";
    const std::int64_t version = file.int_attribute("/", "version");
    if (version != kVersion) return join("its format version is ", version, ", this program reads ", kVersion);
    return contents_defect(file);
  } catch (const Error& error) {
    return error.what();
  }
}

/// The large arrays of a checkpoint, in the order of its file.
std::vector<StoredArray> arrays_of(const CheckpointParts& parts) {
  std::vector<StoredArray> arrays;
  for (const Param& p : parts.params->all()) arrays.push_back({"/model/" + p.name, p.value});
  for (const NamedOptimizer& o : parts.optimizers) {
    for (const NamedTensor& t : o.optimizer->state()) arrays.push_back({group_of(o) + "/" + t.name, t.value});
  }
  for (const NamedTensor& t : parts.vectors) arrays.push_back({"/program/" + t.name, t.value});
  if (parts.ema != nullptr) {
    for (const NamedTensor& t : parts.ema->state()) arrays.push_back({"/ema/" + t.name, t.value});
  }
  return arrays;
}

void write_array(H5File& file, const StoredArray& array) { write_tensor(file, array.dataset, array.value); }

/// A checkpoint, whole or not at all. `write` puts an array into the file, `finish` what comes last before the seals.
void write_file(const std::filesystem::path& path, const CheckpointParts& parts,
                const std::function<void(H5File&, const StoredArray&)>& write,
                const std::function<void(H5File&)>& finish = {}) {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
    file.set_attribute("/", "lockstep_version", std::string(LOCKSTEP_VERSION));
    file.set_attribute("/", "written", utc_now());
    file.set_attribute("/", "host", log::speaker().host);
    file.set_attribute("/", "ranks", static_cast<std::int64_t>(parts.ranks));
    file.set_attribute("/", "threads", static_cast<std::int64_t>(parts.threads));
    file.set_attribute("/", "seed", static_cast<std::int64_t>(parts.seed));
    file.set_attribute("/", "data_hash", hex64(parts.data_hash));
    if (parts.model != nullptr) {
      file.set_attribute("/", "model_kind", std::string(parts.model->kind()));
      parts.model->save(file);
    }
    file.create_group("/model");
    for (const StoredArray& array : arrays_of(parts)) write(file, array);
    for (const Param& p : parts.params->all())
      file.set_attribute("/model/" + p.name, "trainable", static_cast<std::int64_t>(p.trainable));
    for (const NamedOptimizer& o : parts.optimizers) {
      const std::string group = group_of(o);
      file.create_group(group);
      file.set_attribute(group, "name", std::string(o.optimizer->name()));
      file.set_attribute(group, "steps", o.optimizer->steps());
    }
    if (parts.ema != nullptr) file.set_attribute("/ema", "decay", parts.ema->decay());
    if (parts.state != nullptr) write_state(file, *parts.state);
    file.write_text("/config", {parts.config});
    if (finish) finish(file);
    seal_contents(file);
    file.close();
    append_end_mark(temporary);
    const std::string defect = file_defect(temporary);
    require(defect.empty(), "writing ", path, ": what was written does not read back: ", defect);
  });
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts) {
  write_file(path, parts, write_array);
}

void save_sharded_checkpoint(World& world, const std::filesystem::path& path, const CheckpointParts& parts) {
  // A number that no earlier attempt had: parts of a good checkpoint are never overwritten.
  const std::string number =
      world.communicator().broadcast_text(hex64(static_cast<std::uint64_t>(fresh_number())), 0, "checkpoint's number");
  const std::filesystem::path mine = part_file(path, number, world.rank(), world.size());
  std::string mark;
  try {
    world.together("writing a part of the checkpoint",
                   [&] { mark = write_part(mine, arrays_of(parts), world.rank(), world.size()); });
    const std::vector<std::string> marks = world.communicator().all_gather_text(mark, "end marks of the parts");
    world.together("writing the checkpoint", [&] {
      if (world.rank() != 0) return;
      write_file(path, parts, write_placeholder, [&](H5File& file) { write_part_list(file, number, marks); });
    });
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(mine, ignored);
    throw;
  }
}

namespace {
void write_whole(const H5File& manifest, const std::filesystem::path& into) {
  write_atomically(into, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    assemble(manifest, file);
    seal_contents(file);
    file.close();
    append_end_mark(temporary);
  });
}
}  // namespace

void merge_checkpoint(const std::filesystem::path& manifest, const std::filesystem::path& into) {
  require_usage(std::filesystem::exists(manifest), "opening checkpoint ", manifest, ": no such file");
  const std::string defect = checkpoint_defect(manifest);
  require_data(defect.empty(), "checkpoint ", manifest, " is refused: ", defect);
  const H5File from = H5File::open(manifest);
  require_usage(is_manifest(from), "checkpoint ", manifest, ": it is one file already");
  write_whole(from, into);
}

std::string checkpoint_defect(const std::filesystem::path& path) {
  if (std::string defect = file_defect(path); !defect.empty()) return defect;
  try {
    const H5File file = H5File::open(path);
    return is_manifest(file) ? parts_defect(file) : "";
  } catch (const Error& error) {
    return error.what();
  }
}

namespace {
H5File open_whole(const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "opening checkpoint ", path, ": no such file");
  const std::string defect = checkpoint_defect(path);
  require_data(defect.empty(), "checkpoint ", path, " is refused: ", defect);
  H5File file = H5File::open(path);
  if (!is_manifest(file)) return file;
  // Read through a file that is put together in the temporary folder; its name goes at once, its contents with the reader.
  const std::filesystem::path whole =
      std::filesystem::temp_directory_path() / join("lockstep-", getpid(), "-", fresh_number(), ".h5");
  write_whole(file, whole);
  file = H5File::open(whole);
  std::filesystem::remove(whole);
  return file;
}
}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& path) : path_(path), file_(open_whole(path)) {}

std::string CheckpointReader::config() const {
  const std::vector<std::string> text = file_.read_text("/config");
  require_data(text.size() == 1, "checkpoint ", path_, ": /config holds ", text.size(), " texts instead of one");
  return text.front();
}
std::string CheckpointReader::model_kind() const { return file_.text_attribute("/", "model_kind"); }
std::uint64_t CheckpointReader::seed() const { return static_cast<std::uint64_t>(file_.int_attribute("/", "seed")); }
std::string CheckpointReader::data_hash() const { return file_.text_attribute("/", "data_hash"); }
TrainState CheckpointReader::state() const { return read_state(file_); }
bool CheckpointReader::has_ema() const { return file_.has("/ema"); }
bool CheckpointReader::has_optimizer() const { return file_.has("/optim"); }

void CheckpointReader::load(const std::string& dataset, const Tensor& into) const {
  require_data(file_.has(dataset), "checkpoint ", path_, ": no dataset '", dataset,
               "': it belongs to a model or optimizer of another kind");
  const std::vector<std::int64_t> expected = extents(into.shape()), found = file_.info(dataset).shape;
  const Shape found_shape{std::span<const std::int64_t>(found)};
  require_data(found == expected, "checkpoint ", path_, ": '", dataset, "' is ", found_shape, " there, but ",
               into.shape(), " in this configuration");
  const HostView host(into, HostView::Access::write);
  visit_stored(into.dtype(), [&]<class T>() { file_.read_into<T>(dataset, host->span<T>(), expected); });
}

void CheckpointReader::load_params(const std::string& group, ParamStore& params) const {
  for (const Param& p : params.all()) load(group + "/" + p.name, p.value);
  for (const std::string& dataset : file_.datasets_under(group)) {
    const std::string name = dataset.substr(group.size() + 1);
    const bool known =
        std::any_of(params.all().begin(), params.all().end(), [&](const Param& p) { return p.name == name; });
    require_data(known, "checkpoint ", path_, ": '", dataset, "' is no parameter of this configuration's model");
  }
}

void CheckpointReader::load_weights(ParamStore& params) const { load_params("/model", params); }
void CheckpointReader::load_average_or_weights(ParamStore& params) const {
  load_params(has_ema() ? "/ema" : "/model", params);
}

void CheckpointReader::load_optimizer(const NamedOptimizer& o) const {
  require_data(has_optimizer(), "checkpoint ", path_,
               ": it holds no optimizer state, so no run can continue from it; use a step-N.h5 or final.h5");
  const std::string group = group_of(o);
  require_data(file_.is_group(group), "checkpoint ", path_, ": no optimizer '", group,
               "': it belongs to a model of another kind");
  const std::string found = file_.text_attribute(group, "name");
  require_data(found == o.optimizer->name(), "checkpoint ", path_, ": its optimizer is ", found,
               ", this configuration's is ", o.optimizer->name());
  for (const NamedTensor& t : o.optimizer->state()) load(group + "/" + t.name, t.value);
  o.optimizer->set_steps(file_.int_attribute(group, "steps"));
}
void CheckpointReader::load_vectors(const std::vector<NamedTensor>& vectors) const {
  for (const NamedTensor& t : vectors) load("/program/" + t.name, t.value);
}

void CheckpointReader::load_ema(Ema& ema) const {
  for (const NamedTensor& t : ema.state()) load("/ema/" + t.name, t.value);
}

}  // namespace lockstep
