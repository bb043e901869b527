#include "lockstep/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "checkpoint/checkpoint_format.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/checkpoint/checkpoint_copy.hpp"
#include "lockstep/checkpoint/checkpoint_parts.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {
/// errors  Error: usage if the file is missing; data if it is not a whole checkpoint
H5File open_verified(const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "opening checkpoint ", path, ": no such file");
  const std::string defect = checkpoint_defect(path);
  const FileKind kind = defect.empty() ? FileKind::checkpoint : file_kind(path);
  const bool weights = kind == FileKind::safetensors || kind == FileKind::pytorch || kind == FileKind::numpy;
  const bool model = kind == FileKind::model || kind == FileKind::onnx || kind == FileKind::torchscript;
  require_data(kind == FileKind::checkpoint || kind == FileKind::damaged_hdf5, "opening checkpoint ", path, ": it is ",
               name(kind), ", not a checkpoint of lockstep",
               weights ? "; lockstep import makes one of it"
               : model ? "; lockstep predict, jacobian, export and info take it"
                       : "");
  require_data(defect.empty(), "checkpoint ", path, " is refused: ", defect);
  return H5File::open(path);
}
}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts) {
  CheckpointCopy copy;
  copy.take(parts);
  copy.write(path);
}

std::string fresh_number() {
  return hex64(static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
}

void finish_sharded_checkpoint(World& world, const std::filesystem::path& path, const std::string& number,
                               const std::function<std::string()>& mark_of_part, const CheckpointCopy& copy) {
  try {
    std::string mark;
    world.together("writing a part of the checkpoint", [&] { mark = mark_of_part(); });
    const std::vector<std::string> marks = world.communicator().all_gather_text(mark, "end marks of the parts");
    world.together("writing the checkpoint", [&] {
      if (world.rank() == 0) copy.write_manifest(path, number, marks);
    });
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(part_file(path, number, world.rank(), world.size()), ignored);
    throw;
  }
}

void merge_checkpoint(const std::filesystem::path& manifest, const std::filesystem::path& into, bool force) {
  const H5File from = open_verified(manifest);
  require_usage(is_manifest(from), "checkpoint ", manifest, ": it is not a manifest; it needs no merge");
  std::vector<std::filesystem::path> read = part_files(from);
  read.push_back(manifest);
  require_replaceable(into, FileKind::checkpoint, force, read);
  write_sealed(into, {}, [&](H5File& file) { assemble(from, file); });
}

std::string checkpoint_defect(const std::filesystem::path& path) {
  if (std::string defect = sealed_file_defect(path, checkpoint_contents_defect); !defect.empty()) return defect;
  try {
    const H5File file = H5File::open(path);
    return is_manifest(file) ? parts_defect(file) : "";
  } catch (const Error& error) {
    return error.what();
  }
}

CheckpointReader::CheckpointReader(const std::filesystem::path& path, bool verified)
    : path_(path), file_(verified ? H5File::open(path) : open_verified(path)) {
  if (is_manifest(file_)) sharded_ = std::make_shared<const ShardedArrays>(file_);
}

std::uintmax_t CheckpointReader::size_bytes() const {
  std::uintmax_t bytes = std::filesystem::file_size(path_);
  if (sharded_)
    for (const std::filesystem::path& part : part_files(file_)) bytes += std::filesystem::file_size(part);
  return bytes;
}

std::vector<std::string> CheckpointReader::arrays(const std::string& group) const {
  std::vector<std::string> names;
  if (file_.is_group(group)) names = file_.datasets_under(group);
  if (sharded_) {
    for (std::string& name : sharded_->under(group)) names.push_back(std::move(name));
    std::erase_if(names, [](const std::string& name) { return name == kPartList; });
    std::ranges::sort(names);
  }
  return names;
}

bool CheckpointReader::has(const std::string& array) const {
  return sharded_ && sharded_->has(array) ? true : file_.has(array) && !file_.is_group(array);
}

H5Info CheckpointReader::info(const std::string& array) const {
  return sharded_ && sharded_->has(array) ? sharded_->info(array) : file_.info(array);
}

template <class T>
void CheckpointReader::read_into(const std::string& array, std::span<T> out) const {
  if (sharded_ && sharded_->has(array)) return sharded_->read_into<T>(array, out);
  file_.read_into<T>(array, out);
}
template void CheckpointReader::read_into(const std::string&, std::span<std::uint8_t>) const;
template void CheckpointReader::read_into(const std::string&, std::span<std::int32_t>) const;
template void CheckpointReader::read_into(const std::string&, std::span<std::int64_t>) const;
template void CheckpointReader::read_into(const std::string&, std::span<float>) const;
template void CheckpointReader::read_into(const std::string&, std::span<double>) const;

std::string CheckpointReader::config() const {
  const std::vector<std::string> text = file_.read_text("/config");
  require_data(text.size() == 1, "checkpoint ", path_, ": /config holds ", text.size(), " texts instead of one");
  return text.front();
}
std::string CheckpointReader::model_kind() const { return file_.text_attribute("/", "model_kind"); }
std::uint64_t CheckpointReader::seed() const { return static_cast<std::uint64_t>(file_.int_attribute("/", "seed")); }
std::string CheckpointReader::data_hash() const { return file_.text_attribute("/", "data_hash"); }
void CheckpointReader::require_data_of(const CheckpointedModel& model, const std::string& path) const {
  const std::string now = hex64(model.data_hash());
  require_data(
      !model.tied_to_data() || now == data_hash(), "checkpoint ", path_, ": it was trained on other data (hash ",
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
  require_data(has(dataset), "checkpoint ", path_, ": no dataset '", dataset,
               "': it belongs to a model or optimizer of another kind");
  const std::vector<std::int64_t> expected = extents(into.shape()), found = info(dataset).shape;
  const Shape found_shape{std::span<const std::int64_t>(found)};
  require_data(found == expected, "checkpoint ", path_, ": '", dataset, "' has shape ", found_shape, ", but ",
               into.shape(), " in this configuration");
  const HostView host(into, HostView::Access::write);
  visit_stored(into.dtype(), [&]<class T>() { read_into<T>(dataset, host->span<T>()); });
}

void CheckpointReader::load_params(const std::string& group, ParamStore& params) const {
  for (const Param& p : params.all()) load(group + "/" + p.name, p.value);
  for (const std::string& dataset : arrays(group)) {
    const std::string name = dataset.substr(group.size() + 1);
    const bool known =
        std::any_of(params.all().begin(), params.all().end(), [&](const Param& p) { return p.name == name; });
    require_data(known, "checkpoint ", path_, ": '", dataset, "' is not a parameter of this configuration's model");
  }
}

void CheckpointReader::require_arrays_of(const ParamStore& params) const {
  const std::string group = has_ema() ? "/ema" : "/model";
  std::string list;
  std::set<std::string> known;
  for (const Param& p : params.all()) {
    const std::string array = group + "/" + p.name;
    known.insert(array);
    if (!has(array)) {
      list += join("\n  ", p.name, " ", p.value.shape(), ": missing");
    } else if (const auto found = info(array).shape; found != extents(p.value.shape())) {
      list += join("\n  ", p.name, " ", p.value.shape(), ": has shape ", Shape{std::span<const std::int64_t>(found)});
    }
  }
  for (const std::string& array : arrays(group))
    if (!known.contains(array))
      list += join("\n  ", array.substr(group.size() + 1), ": not in this configuration's model");
  require_data(list.empty(), "checkpoint ", path_, " does not fit the model of this configuration:", list);
}

void CheckpointReader::load_weights(ParamStore& params) const { load_params("/model", params); }
void CheckpointReader::load_average_or_weights(ParamStore& params) const {
  load_params(has_ema() ? "/ema" : "/model", params);
}

void CheckpointReader::load_optimizer(const NamedOptimizer& o) const {
  require_data(has_optimizer(), "checkpoint ", path_,
               ": it has no optimizer state, so no run can continue from it; use a step-N.h5 or final.h5");
  const std::string group = group_of_optimizer(o.name);
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
