#include "lockstep/checkpoint/checkpoint_copy.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "checkpoint/checkpoint_format.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/disk_sync.hpp"
#include "lockstep/io/seal.hpp"
#include "lockstep/ops/isa.hpp"

namespace lockstep {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// Copies host memory with all threads.
void copy_on_host(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  const auto blocks = static_cast<std::int64_t>((bytes + kBlock - 1) / kBlock);
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::size_t at = static_cast<std::size_t>(b) * kBlock;
    std::memcpy(to + at, from + at, std::min(kBlock, bytes - at));
  }
}

}  // namespace

std::vector<NamedTensor> arrays_of(const CheckpointParts& parts) {
  std::vector<NamedTensor> tensors;
  for (const Param& p : parts.params->all()) tensors.push_back({"/model/" + p.name, p.value});
  for (const NamedOptimizer& o : parts.optimizers)
    for (const NamedTensor& t : o.optimizer->state())
      tensors.push_back({group_of_optimizer(o.name) + "/" + t.name, t.value});
  for (const NamedTensor& t : parts.vectors) tensors.push_back({"/program/" + t.name, t.value});
  if (parts.ema != nullptr)
    for (const NamedTensor& t : parts.ema->state()) tensors.push_back({"/ema/" + t.name, t.value});
  return tensors;
}

void CheckpointCopy::take(const CheckpointParts& from, int part, int parts, bool in_place) {
  constexpr std::size_t kAlignment = 64;
  model_ = from.model;
  parts_ = parts;
  in_place_ = in_place;
  if (in_place) {
    memory_.reset();
    memory_bytes_ = 0;
  }
  config_ = from.config;
  attributes_ = {{"format", std::string(kCheckpointFormat)},
                 {"version", kCheckpointVersion},
                 {"lockstep_version", std::string(LOCKSTEP_VERSION)},
                 {"host", log::speaker().host},
                 {"ranks", static_cast<std::int64_t>(from.ranks)},
                 {"threads", static_cast<std::int64_t>(from.threads)},
                 {"devices", from.devices},
                 {"isa", ops::record_name(ops::active_isa())},
                 {"seed", static_cast<std::int64_t>(from.seed)},
                 {"data_hash", hex64(from.data_hash)}};
  trainable_.clear();
  for (const Param& p : from.params->all()) trainable_.emplace_back("/model/" + p.name, p.trainable);
  optimizers_.clear();
  for (const NamedOptimizer& o : from.optimizers)
    optimizers_.push_back({group_of_optimizer(o.name), std::string(o.optimizer->name()), o.optimizer->steps()});
  ema_decay_ = from.ema != nullptr ? std::optional(from.ema->decay()) : std::nullopt;
  state_ = from.state != nullptr ? std::optional(*from.state) : std::nullopt;

  const std::vector<NamedTensor> tensors = arrays_of(from);
  std::int64_t elements = 0, first = 0;
  for (const NamedTensor& t : tensors) elements += t.value.size();
  const std::int64_t mine_begin = elements * part / parts, mine_end = elements * (part + 1) / parts;
  arrays_.clear();
  std::size_t needed = 0;
  for (const auto& [name, value] : tensors) {
    const std::int64_t begin = std::clamp(mine_begin - first, std::int64_t{0}, value.size()),
                       end = std::clamp(mine_end - first, std::int64_t{0}, value.size());
    first += value.size();
    arrays_.push_back({name, value.shape(), value.dtype(), begin, end - begin, nullptr});
    const std::size_t bytes = static_cast<std::size_t>(end - begin) * lockstep::size_bytes(value.dtype());
    if (in_place && !value.device().is_cuda()) continue;
    needed += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (needed > memory_bytes_) {
    memory_.reset();
    memory_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    memory_bytes_ = needed;
  }
  std::byte* to = memory_.get();
  const Device device = from.params->device();
  const Stream stream(device);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& value = tensors[i].value;
    const std::size_t size = lockstep::size_bytes(value.dtype());
    const std::size_t bytes = static_cast<std::size_t>(arrays_[i].count) * size;
    const std::byte* source =
        static_cast<const std::byte*>(value.raw()) + static_cast<std::size_t>(arrays_[i].begin) * size;
    if (in_place && !value.device().is_cuda()) {
      arrays_[i].data = source;
      continue;
    }
    if (value.device().is_cuda()) {
      copy_bytes(stream, to, source, bytes);
    } else {
      copy_on_host(to, source, bytes);
    }
    arrays_[i].data = to;
    to += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  stream.synchronize();
}

void CheckpointCopy::write_file(const std::filesystem::path& path,
                                const std::function<void(H5File&)>& write_arrays) const {
  write_sealed(path, waits_for_disk ? checkpoint_contents_defect : nullptr, [&](H5File& file) {
    for (const auto& [name, value] : attributes_) file.set_attribute("/", name, value);
    file.set_attribute("/", "written", utc_now());
    if (model_ != nullptr) {
      file.set_attribute("/", "model_kind", std::string(model_->kind()));
      model_->save(file);
    }
    file.create_group("/model");
    write_arrays(file);
    for (const auto& [dataset, trainable] : trainable_)
      file.set_attribute(dataset, "trainable", static_cast<std::int64_t>(trainable));
    for (const NamedSteps& o : optimizers_) {
      file.create_group(o.group);
      file.set_attribute(o.group, "name", o.name);
      file.set_attribute(o.group, "steps", o.steps);
    }
    if (ema_decay_) file.set_attribute("/ema", "decay", *ema_decay_);
    if (state_) write_state(file, *state_);
    file.write_text("/config", {config_});
  });
  note_whole(path);
}

void CheckpointCopy::write(const std::filesystem::path& path) const {
  write_file(path, [&](H5File& file) {
    for (const StoredArray& array : arrays_) write_array(file, array);
  });
}

std::string CheckpointCopy::write_part(const std::filesystem::path& path) const {
  return write_part_file(path, arrays_);
}

void CheckpointCopy::write_manifest(const std::filesystem::path& path, const std::string& number,
                                    const std::vector<std::string>& end_marks) const {
  write_file(path, [&](H5File& file) {
    for (const StoredArray& array : arrays_) write_placeholder(file, array);
    write_part_list(file, path, number, end_marks);
  });
  for (int part = 0; part < static_cast<int>(end_marks.size()); ++part)  // their writers have read them back
    note_whole(part_file(path, number, part, static_cast<int>(end_marks.size())));
}

}  // namespace lockstep
