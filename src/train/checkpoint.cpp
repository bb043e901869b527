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
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/ops/isa.hpp"
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

/// A number that is new on this host: nanoseconds since 1970.
std::int64_t fresh_number() { return std::chrono::system_clock::now().time_since_epoch().count(); }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

constexpr const char* kHistory = "/state/history";

/// The link name of a series in the file. Names hold class labels and variables, so they may contain '/' or be ".".
std::string link_name(const std::string& series) {
  if (series == ".") return "%2E";
  std::string link;
  for (const char c : series) link += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return link;
}

std::string series_name(const std::string& link) {
  std::string series;
  for (std::size_t i = 0; i < link.size(); ++i) {
    const std::string code = link.substr(i, 3);
    const char c = code == "%2F" ? '/' : code == "%25" ? '%' : code == "%2E" ? '.' : '\0';
    series += c != '\0' ? c : link[i];
    if (c != '\0') i += 2;
  }
  return series;
}

void write_state(H5File& file, const TrainState& state) {
  file.create_group(kHistory);
  TrainState::visit(state, [&]<class T>(const char* name, const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      file.set_attribute("/state", name, static_cast<std::int64_t>(field));
    } else {
      file.set_attribute("/state", name, H5Value(field));
    }
  });
  for (const auto& [name, values] : state.history.all()) {
    file.write<double>(join(kHistory, "/", link_name(name)), values, {static_cast<std::int64_t>(values.size())});
  }
}

TrainState read_state(const H5File& file) {
  TrainState state;
  TrainState::visit(state, [&]<class T>(const char* name, T& field) {
    const bool recent = std::string_view(name).starts_with("loss_scale");  // missing in older files
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
  // Older files have a group for each '/' in a name.
  for (const std::string& dataset : file.datasets_under(kHistory))
    series[series_name(dataset.substr(std::string_view(kHistory).size() + 1))] = file.read<double>(dataset);
  state.history.restore(std::move(series));
  return state;
}

/// checkpoint_defect() of one file, without the parts of a manifest.
std::string file_defect(const std::filesystem::path& path) {
  if (std::string defect = end_mark_defect(path); !defect.empty()) return defect;
  try {
    const H5File file = H5File::open(path);
    if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kFormat)
      return "it is not a checkpoint of lockstep";
    const std::int64_t version = file.int_attribute("/", "version");
    if (version != kVersion) return join("its format version is ", version, ", this program reads ", kVersion);
    if (std::string defect = contents_defect(file); !defect.empty()) return defect;
    if (file.has("/state")) (void)read_state(file);
    return "";
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

/// Writes a checkpoint, whole or not at all. `write` stores an array, `finish` adds the last objects before the
/// checksums.
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
    file.set_attribute("/", "devices", parts.devices);
    file.set_attribute("/", "isa", std::string(ops::name(ops::active_isa())));
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
    require(defect.empty(), "writing ", path, ": the file does not read back: ", defect);
  });
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts) {
  write_file(path, parts, write_array);
}

void save_sharded_checkpoint(World& world, const std::filesystem::path& path, const CheckpointParts& parts) {
  // A new number for each attempt, so that parts of a good checkpoint are never overwritten.
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
      write_file(path, parts, write_placeholder, [&](H5File& file) { write_part_list(file, path, number, marks); });
    });
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(mine, ignored);
    throw;
  }
}

namespace {

/// errors  Error: usage if the file is missing; data if it is not a whole checkpoint
H5File open_verified(const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "opening checkpoint ", path, ": no such file");
  const std::string defect = checkpoint_defect(path);
  const FileKind kind = defect.empty() ? FileKind::checkpoint : file_kind(path);
  require_data(kind == FileKind::checkpoint || kind == FileKind::damaged_hdf5, "opening checkpoint ", path, ": it is ",
               name(kind), ", not a checkpoint of lockstep");
  require_data(defect.empty(), "checkpoint ", path, " is refused: ", defect);
  return H5File::open(path);
}

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
  const H5File from = open_verified(manifest);
  require_usage(is_manifest(from), "checkpoint ", manifest, ": it is not a manifest; it needs no merge");
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
  H5File file = open_verified(path);
  if (!is_manifest(file)) return file;
  // The reader uses a merged file in the temporary folder. Its name is removed at once, its contents with the reader.
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
void CheckpointReader::require_data_of(const Task& task, const std::string& path) const {
  const std::string now = hex64(task.data_hash());
  require_data(
      !task.tied_to_data() || now == data_hash(), "checkpoint ", path_, ": it was trained on other data (hash ",
      data_hash(), ") than ", path, " (hash ", now,
      "); name the data set of its training, or add --other-data if both number users, items or puzzles alike");
}
std::int64_t CheckpointReader::devices() const {
  const std::int64_t n = file_.int_attribute("/", file_.has_attribute("/", "devices") ? "devices" : "ranks");
  require_data(n >= 1, "checkpoint ", path_, ": it is of a run on ", n, " devices");
  return n;
}
std::string CheckpointReader::isa() const {
  return file_.has_attribute("/", "isa") ? file_.text_attribute("/", "isa") : std::string();
}
TrainState CheckpointReader::state() const { return read_state(file_); }
bool CheckpointReader::has_ema() const { return file_.has("/ema"); }
bool CheckpointReader::has_optimizer() const { return file_.has("/optim"); }

void CheckpointReader::load(const std::string& dataset, const Tensor& into) const {
  require_data(file_.has(dataset), "checkpoint ", path_, ": no dataset '", dataset,
               "': it belongs to a model or optimizer of another kind");
  const std::vector<std::int64_t> expected = extents(into.shape()), found = file_.info(dataset).shape;
  const Shape found_shape{std::span<const std::int64_t>(found)};
  require_data(found == expected, "checkpoint ", path_, ": '", dataset, "' has shape ", found_shape, ", but ",
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
    require_data(known, "checkpoint ", path_, ": '", dataset, "' is not a parameter of this configuration's model");
  }
}

void CheckpointReader::load_weights(ParamStore& params) const { load_params("/model", params); }
void CheckpointReader::load_average_or_weights(ParamStore& params) const {
  load_params(has_ema() ? "/ema" : "/model", params);
}

void CheckpointReader::load_optimizer(const NamedOptimizer& o) const {
  require_data(has_optimizer(), "checkpoint ", path_,
               ": it has no optimizer state, so no run can continue from it; use a step-N.h5 or final.h5");
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
