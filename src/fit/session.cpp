#include "fit/session.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpoint/checkpoint_copy.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/tasks/emulator/emulator_config.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::fit {

namespace {

/// Keys that mean something here: of these sections, or these.
constexpr const char* kSections[] = {"model.", "loss.", "optim.", "schedule.", "reservoir."};
constexpr const char* kKeys[] = {"run.isa",          "run.backend",  "run.reproducible", "run.device",
                                 "run.graphs",       "run.seed",     "run.precision",    "run.threads",
                                 "dist.shards",      "dist.timeout", "dist.compress",    "dist.check_collectives",
                                 "dist.bucket_bytes"};

constexpr const char* kNoColumns =
    "training step: no rank has observed a column of a weight above 0; call lsfit_observe before";

/// The texts between commas. errors  Error (usage): not `count` of them
std::vector<std::string> words(const std::string& text, std::int64_t count, const char* what) {
  if (text.empty()) return {};
  std::vector<std::string> found = split(text, ',');
  require_usage(std::ssize(found) == count, "opening a session: ", found.size(), " ", what, " for ", count,
                " variables");
  for (std::string& word : found) word = trim(word);
  return found;
}

/// A program that is a guest prints nothing.
const void* quietly(const void* communicator) {
  log::set_detail(LogDetail::nothing);
  return communicator;
}

/// The format of a model file by the ending of its name. errors  Error (usage)
EmulatorFormat format_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  require_usage(!ending.empty(), "exporting to '", path,
                "': the ending of its name says the format: .lsem, .onnx, .pt, .safetensors or .h5model");
  return ending == ".pt" ? EmulatorFormat::torchscript : named<EmulatorFormat>(ending.substr(1), "model format");
}

template <class T>
void append(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// The parts of Session::state(): what an old or another program's state is recognised by, and its length and checksum.
struct StateHead {
  char mark[8] = {'l', 's', 'f', 'i', 't', '-', 's', '2'};
  std::uint64_t bytes = 0, hash = 0;  ///< of what follows
};

}  // namespace

void ObservedTask::observe(std::int64_t first, const Columns& columns) {
  first_ = first;
  const std::int64_t count = columns.count(), known = std::ssize(numbers_);
  if (known < count) {
    numbers_.resize(count);
    std::iota(numbers_.begin() + known, numbers_.end(), static_cast<std::int32_t>(known));
  }
  const auto rows = [&](const std::vector<float>& values, std::int64_t width) {
    return Tensor::of(values.data(), {count, width});
  };
  const bool weighted = std::ranges::any_of(columns.weights, [](float w) { return w != 1; });
  set_samples(rows(columns.x, data().n_in()), rows(columns.y, data().n_out()), Tensor::of(numbers_.data(), {count}),
              weighted ? rows(columns.weights, 1) : Tensor());
  // Launches must not depend on whether the columns of this rank have weights: ranks repeat the same graphs.
  gpu_x_ = columns.gpu_x.data();
  gpu_y_ = columns.gpu_y.data();
  gpu_weights_ = columns.gpu_weights.data();
}

const DrawnShard& ObservedTask::draw(Arena& host, const Shard& shard) const {
  ops::RowDraw order = rows_of(shard);
  const std::int64_t at = shard.first - first_;
  order.rows = numbers_.data() + at;
  if (gpu_x_ != nullptr) {
    order.x = gpu_x_ + at * data().n_in();
    order.y = gpu_y_ + at * data().n_out();
    order.weights = gpu_weights_ + at;
  }
  return draw_rows(host, order, shard);
}

ObservedProgram::ObservedProgram(World& world, const RunConfig& config, ObservedTask& task, int threads)
    : ShardedProgram(world, config, task, threads, 1,
                     {.positions = std::numeric_limits<std::int64_t>::max(), .steps = 1}) {}

GlobalBatch ObservedProgram::batch_at(const TrainState& state) {
  return {.seed = config_.run.seed, .epoch = state.epoch, .step = state.step, .first = 0, .count = samples_};
}

Shard ObservedProgram::part(std::int64_t samples, int rank) {
  return sharded_step().rank_part({.count = samples}, 0, rank);
}

Session::Session(const void* communicator, const std::string& config, std::int64_t n_in, std::int64_t n_out,
                 const std::string& names, const std::string& units)
    : world_(quietly(communicator), {}),
      options_("lsfit_open"),
      n_in_(n_in),
      n_out_(n_out),
      observed_{n_in, n_out},
      columns_{n_in, n_out},
      reservoir_(0, 0, observed_) {
  std::string mine;
  world_.together("opening a session", [&] {
    require_usage(n_in > 0 && n_out > 0, "opening a session: ", n_in, " inputs and ", n_out,
                  " outputs; at least one each");
    read_options(config);
    const std::vector<std::string> all = words(names, n_in + n_out, "names"),
                                   their_units = words(units, n_in + n_out, "units");
    const auto fill = [&](const std::vector<std::string>& from, std::int64_t first, std::int64_t count,
                          const char* otherwise) {
      std::vector<std::string> out;
      for (std::int64_t i = 0; i < count; ++i)
        out.push_back(!from.empty() ? from[first + i] : *otherwise == 0 ? "" : otherwise + std::to_string(i));
      return out;
    };
    variables_.input_names = fill(all, 0, n_in, "x");
    variables_.output_names = fill(all, n_in, n_out, "y");
    const std::string defect = names_defect(variables_);
    require_usage(defect.empty(), "opening a session: ", defect, "; give each variable a name of its own");
    variables_.input_units = fill(their_units, 0, n_in, "");
    variables_.output_units = fill(their_units, n_in, n_out, "");
    variables_.input_cf.resize(n_in);
    variables_.output_cf.resize(n_out);
    variables_.input_level.resize(n_in);
    variables_.output_level.resize(n_out);
    mine = join(n_in, " ", n_out, " ", names, " ", units, "\n", options_.ini());
    // The ranks of a session may be some of those of the program, which has given each its GPU.
    if (config_.run.device == "cuda" && gpu_count() > 0) config_.dist.gpu_ids = {std::to_string(current_gpu().index)};
    device_ = choose_device(world_, config_.run.device, config_.dist.gpu_ids);
    if (device_.is_cuda()) gpu_scratch_ = Buffer(device_, sizeof(std::int64_t));
    reservoir_ = Reservoir(reservoir_columns_, config_.run.seed, observed_);
  });
  const std::string first = world_.communicator().broadcast_text(mine, 0, "options of rank 0");
  world_.together("comparing the options of the ranks", [&] {
    if (mine == first) return;
    const std::vector<std::string> differ =
        options_.differences(first.substr(first.find('\n') + 1), "the options of rank 0");
    throw Error(Fault::usage,
                join("opening a session: the ranks differ: ",
                     differ.empty() ? "in the numbers, names or units of the variables" : listed(differ, "; ")));
  });
  world_.configure({.timeout_s = config_.dist.timeout, .check_collectives = config_.dist.check_collectives});
  choose_isa(world_, config_.run.isa);
}

void Session::read_options(const std::string& config) {
  add_options(options_, config_, "emulator", std::make_unique<EmulatorConfig>(), {"emulator"});
  options_.set_default("schedule.unit", "step");
  options_.section("reservoir", "Past columns");
  options_.add("reservoir.columns", &reservoir_columns_, 0, non_negative, "columns to keep, over all ranks");
  options_.add("reservoir.batch", &reservoir_batch_, 0, non_negative,
               "columns of it in each step; 0: as many as are observed");
  const bool is_file = config.find('=') == std::string::npos && !config.empty();
  options_.parse_ini(is_file ? Options::read_file(config) : config, is_file ? config : "the options of the session");
  for (const std::string& key : options_.keys()) {
    const auto starts = [&](const char* section) { return key.starts_with(section); };
    if (options_.given(key) && key != "model.kind" && std::ranges::none_of(kSections, starts) &&
        std::ranges::find(kKeys, key) == std::end(kKeys))
      options_.reject(key, "has no meaning in a session; leave it out");
  }
  config_.data.path = "observed columns";
  if (config_.run.threads == 0) config_.run.threads = 1;
  if (config_.schedule.unit != "step") options_.reject("schedule.unit", "a session has steps only; use step");
  if (config_.schedule.name == "plateau")
    options_.reject("schedule.name", "a session has no evaluations; use another one");
  if (config_.precision() != "fp32" && config_.precision() != "fp64")
    options_.reject("run.precision", "a session computes in fp32 or fp64");
  check(config_);
  if (options_.given("reservoir.batch") && reservoir_columns_ == 0)
    options_.reject("reservoir.batch", "needs reservoir.columns > 0");
  config_.text = options_.ini();
  config_.text.resize(config_.text.find("\n[reservoir]"));  // which `lockstep` does not know
  schedule_.emplace(config_.schedule, config_.optim.lr);
}

std::string Session::where() const {
  return join("rank ", world_.rank(), " of ", world_.size(), " (", world_.host(), "), step ", state_.step);
}

void Session::set_moments(Moments moments) {
  require_usage(!learner_, "setting the moments of a session: it has taken ", state_.step,
                " steps; set them before the first one");
  check_moments(moments, n_in_, n_out_, "the moments of the session");
  moments_ = std::move(moments);
}

template <class S>
void Session::observe(std::int64_t n, StateView<const S> x, StateView<const S> y, std::span<const S> weights,
                      std::span<const long> ids, const Stream* gpu) {
  std::vector<std::pair<std::int64_t, std::int64_t>> kept;  // first and count of the columns whose weight is not 0
  for (std::int64_t j = 0; j < n; ++j) {
    if (!weights.empty() && weights[j] == 0) continue;
    if (kept.empty() || kept.back().first + kept.back().second != j) kept.emplace_back(j, 0);
    ++kept.back().second;
  }
  if (kept.empty()) return;
  if (gpu == nullptr) observed_.to_host(device_);
  const std::int64_t before = observed_.count();
  require_usage(!ids.empty() || reservoir_.capacity() == 0, where(),
                ": columns without identities, which the reservoir needs; pass ids");
  require_usage(before == 0 || ids.empty() == observed_.ids.empty(), where(),
                ": identities of some columns only; pass ids in all calls, or in none");
  const auto refuse = [&](std::int64_t column, const std::string& what, float value) {
    throw Error(Fault::data, join(where(), ": column ", column, " of the call: ", what, " is ", value));
  };
  const auto take = [&](StateView<const S> from, std::int64_t width, const std::vector<std::string>& names,
                        std::vector<float>& to, GpuValues& on_gpu) {
    std::int64_t at = before;
    for (const auto& [first, count] : kept) {
      if (gpu != nullptr) {
        const Tensor all = on_gpu.range(device_, at * width, (at + count) * width).reshaped({count, width});
        const std::int64_t bad = ops::copy_columns(*gpu, all, from.from(first), gpu_scratch_);
        if (bad >= 0) refuse(first + bad / width, names[bad % width], HostView(all)->data<float>()[bad]);
      } else {
        to.resize((at + count) * width);
        float* values = to.data() + at * width;
        for (std::int64_t j = first; j < first + count; ++j)
          for (std::int64_t i = 0; i < width; ++i) {
            *values = static_cast<float>(from.at(j, i));
            if (!std::isfinite(*values)) refuse(j, names[i], *values);
            ++values;
          }
      }
      at += count;
    }
  };
  try {
    take(x, n_in_, variables_.input_names, observed_.x, observed_.gpu_x);
    take(y, n_out_, variables_.output_names, observed_.y, observed_.gpu_y);
    for (const auto& [first, count] : kept)
      for (std::int64_t j = first; j < first + count; ++j) {
        const float weight = weights.empty() ? 1 : static_cast<float>(weights[j]);
        if (!std::isfinite(weight) || weight < 0) refuse(j, "its weight", weight);
        observed_.weights.push_back(weight);
        if (!ids.empty()) observed_.ids.push_back(ids[j]);
      }
    observed_.on_gpu = gpu != nullptr;
  } catch (const std::exception& problem) {
    if (gpu == nullptr) {
      observed_.x.resize(before * n_in_);
      observed_.y.resize(before * n_out_);
    }
    observed_.weights.resize(before);
    if (!ids.empty()) observed_.ids.resize(before);
    if (refused_.empty()) refused_ = problem.what();
    throw;
  }
}
template void Session::observe(std::int64_t, StateView<const float>, StateView<const float>, std::span<const float>,
                               std::span<const long>, const Stream*);
template void Session::observe(std::int64_t, StateView<const double>, StateView<const double>, std::span<const double>,
                               std::span<const long>, const Stream*);

std::unique_ptr<Session::Learner> Session::build(Moments moments) {
  EmulatorData data;
  data.path = "observed columns";
  data.moments = std::move(moments);
  data.variables = variables_;
  data.x = Tensor(nullptr, DType::f32, {0, n_in_}, Device{});
  data.y = Tensor(nullptr, DType::f32, {0, n_out_}, Device{});
  data.order = Tensor(nullptr, DType::i32, {0});
  const auto& kind = static_cast<const EmulatorConfig&>(*config_.task);
  std::unique_ptr<Learner> made;
  world_.together("building the network", [&] {
    ObservedTask::Options options = kind.model_options(config_.dtype(), config_.run.seed);
    made.reset(new Learner{{std::move(options), std::move(data)}, {}, {}});
    made->task.move_to(device_);
  });
  world_.together("preparing the training", [&] {  // with GPUs also collective within
    made->program.emplace(world_, config_, made->task, static_cast<int>(config_.run.threads));
    if (config_.optim.ema > 0) made->ema.emplace(made->task.params(), config_.optim.ema);
  });
  return made;
}

void Session::share_columns(const Parts& part) {
  Communicator& comm = world_.communicator();
  const std::int64_t mine[] = {observed_.count(), std::ssize(observed_.ids)};
  const std::vector<std::int64_t> all =
      values_of<std::int64_t>(comm.all_gather(std::as_bytes(std::span(mine)), "numbers of columns").bytes);
  std::vector<Run> order;
  std::vector<std::int64_t> counts;
  std::int64_t identified = 0;
  samples_ = 0;
  for (int r = 0; r < comm.size(); ++r) {
    counts.push_back(all[2 * r]);
    identified += all[2 * r + 1];
    order.push_back({r, 0, counts.back()});
    samples_ += counts.back();
  }
  require_usage(identified == 0 || identified == samples_, "training step: ", identified, " of ", samples_,
                " columns have an identity; give one to all or to none");
  ids_.clear();
  if (identified > 0)
    order = by_identity(comm.all_gather(std::as_bytes(std::span(observed_.ids)), "identities of columns"), ids_);
  samples_ += reservoir_.draw(state_.step, reservoir_batch_ > 0 ? reservoir_batch_ : samples_, comm.rank(), order,
                              observed_, counts);
  parts_.clear();
  for (int r = 0; r < comm.size(); ++r) parts_.push_back(part(samples_, r));
  move_columns(comm, device_, observed_, columns_, order, parts_);
}

Moments Session::moments_of_columns() {
  Communicator& comm = world_.communicator();
  observed_.to_host(device_);
  // As many for any number of ranks up to this one.
  const auto all_shards = static_cast<std::int64_t>(std::bit_ceil(std::max(4096U, static_cast<unsigned>(comm.size()))));
  const auto part = [&](std::int64_t samples, int rank) {
    const ShardRange shards = shards_of(all_shards, rank, comm.size());
    return parts_of({.count = samples}, shards.begin, shards.end, all_shards);
  };
  share_columns(part);
  const std::int64_t width = n_in_ + n_out_;
  const ShardRange shards = shards_of(all_shards, comm.rank(), comm.size());
  const std::int64_t first = parts_[comm.rank()].first;
  std::vector<double> mean(width, 0), sum(mean.size());
  /// The means of (value - mean)^power over all columns.
  const auto average = [&](int power) {
    std::vector<std::vector<double>> sums(shards.count(), std::vector<double>(mean.size(), 0));
    std::vector<std::span<double>> local(sums.begin(), sums.end());
    for (std::int64_t s = shards.begin; s < shards.end; ++s) {
      const Shard rows = part_of({.count = samples_}, s, all_shards);
      for (std::int64_t r = rows.first - first; r < rows.first - first + rows.count; ++r)
        for (std::int64_t c = 0; c < width; ++c) {
          const float value = c < n_in_ ? columns_.x[r * n_in_ + c] : columns_.y[r * n_out_ + c - n_in_];
          const double d = static_cast<double>(value) - mean[c];
          local[s - shards.begin][c] += power == 1 ? d : d * d;
        }
    }
    tree_all_reduce(comm, all_shards, local, std::span(sum), "moments of the columns");
    for (double& v : sum) v /= static_cast<double>(samples_);
  };
  average(1);
  mean = sum;
  average(2);
  const auto deviation = [&](std::size_t c) {  // as lockstep-prep: a constant variable counts as 1
    const double std = std::sqrt(sum[c]);
    return std <= std::max(1e-7 * std::abs(mean[c]), 1e-30) ? 1 : std;
  };
  Moments moments;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const bool input = std::cmp_less(c, n_in_);
    (input ? moments.input_mean : moments.output_mean).push_back(mean[c]);
    (input ? moments.input_std : moments.output_std).push_back(deviation(c));
  }
  if (!ids_.empty()) columns_.ids.assign(ids_.begin() + first, ids_.begin() + first + columns_.count());
  std::swap(columns_, observed_);  // for the part of the step
  return moments;
}

double Session::step() {
  struct Drop {
    Columns& columns;
    ~Drop() { columns.clear(); }
  } drop{observed_};
  const std::string refused = std::exchange(refused_, {});
  world_.together("training step", [&] {
    if (!refused.empty()) throw Error(Fault::data, refused + "; the step is not taken");
  });
  if (!learner_) {
    const bool given = world_.communicator().agree(moments_.has_value(), "moments of the session");
    const bool none = world_.communicator().agree(!moments_.has_value(), "moments of the session");
    require_usage(given || none,
                  "training step: some ranks have set moments, others have not; set them on all or none");
    Moments moments = given ? *moments_ : moments_of_columns();
    require_usage(given || samples_ > 0, kNoColumns);
    std::uint64_t hash = 0;
    for (const auto& [name, part] : kMoments)
      hash = hash64((moments.*part).data(), (moments.*part).size() * sizeof(double), hash);
    require_usage(same_on_all_ranks(world_, hash),
                  "training step: the ranks have set different moments; set the same on all");
    learner_ = build(std::move(moments));
  }
  ObservedProgram& program = *learner_->program;
  share_columns([&](std::int64_t samples, int rank) { return program.part(samples, rank); });
  require_usage(samples_ > 0, kNoColumns);
  const int rank = world_.rank();
  world_.together("training step", [&] {
    if (device_.is_cuda()) columns_.to_gpu(device_);
    learner_->task.observe(parts_[rank].first, columns_);
    reservoir_.reserve(samples_, columns_.count());
  });
  program.expect(samples_);
  world_.at("train", state_.step);
  StepResult done = program.step(state_, schedule_->lr(state_.step, 0), learner_->average(), 0);
  if (const auto on_gpu = program.settle(UpTo::outcomes)) done.outcome = on_gpu;
  require_usage(done.outcome->weight > 0, "training step: the weights of all ", samples_, " columns are 0");
  reservoir_.offer(state_.step, ids_, parts_, rank, columns_);
  ++state_.step;
  state_.row_decisions = done.row_decisions;
  return done.outcome->loss / done.outcome->weight;
}

void Session::require_built() const {
  require_usage(learner_ != nullptr, "the network does not exist yet: take a step, or continue from a state, before");
}

CheckpointParts Session::parts(Learner& learner) {
  return {.model = &learner.task,
          .params = &learner.task.params(),
          .optimizers = learner.program->state().optimizers,
          .vectors = learner.program->state().vectors,
          .ema = learner.average(),
          .state = &state_,
          .config = config_.text,
          .seed = config_.run.seed,
          .data_hash = 0,
          .ranks = world_.size(),
          .threads = static_cast<int>(config_.run.threads),
          .devices = world_.size()};
}

TrainedEmulator Session::network() {
  require_built();
  const WithAverage with(learner_->average(), learner_->task.params());
  return {learner_->task.emulator().as(config_.dtype()), learner_->task.metadata()};
}

void Session::export_to(const std::string& path) {
  world_.together("exporting the network", [&] {
    const TrainedEmulator trained = network();
    if (world_.rank() == 0) write_emulator(path, format_of(path), trained.network, trained.metadata);
  });
}

void Session::save(const std::string& path) {
  world_.together("saving the session", [&] {
    require_built();
    if (world_.rank() == 0) save_checkpoint(path, parts(*learner_));
  });
}

std::vector<std::byte> Session::state() {
  require_built();
  std::vector<std::byte> bytes(sizeof(StateHead));
  const auto text = [&](const std::string& s) {
    const std::uint64_t length = s.size();
    append(bytes, std::span(&length, 1));
    append(bytes, std::span(s.data(), s.size()));
  };
  text(variables_text());
  for (const auto& [name, part] : kMoments) append(bytes, std::span<const double>(learner_->task.data().moments.*part));
  text(pack(state_));
  const CheckpointParts all = parts(*learner_);
  const std::int64_t steps = all.optimizers.front().optimizer->steps();
  append(bytes, std::span(&steps, 1));
  for (const NamedTensor& array : arrays_of(all)) {
    text(join(array.name, " ", array.value.dtype(), " ", array.value.shape()));
    append(bytes, std::span(static_cast<const std::byte*>(HostView(array.value)->raw()), array.value.size_bytes()));
  }
  text(reservoir_.capacity() > 0 ? reservoir_.state(world_.communicator()) : "");
  StateHead head;
  head.bytes = bytes.size() - sizeof head;
  head.hash = hash64(bytes.data() + sizeof head, head.bytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

void Session::set_state(std::span<const std::byte> bytes) {
  StateHead head;
  TrainState state;
  Moments moments;
  std::int64_t steps = 0;
  Reservoir reservoir(reservoir_columns_, config_.run.seed, observed_);
  std::span<const std::byte> rest = bytes;
  const auto take = [&](void* to, std::size_t size) {
    require_data(size <= rest.size(), "a state ends within its contents");
    std::memcpy(to, rest.data(), size);
    rest = rest.subspan(size);
  };
  const auto text = [&] {
    std::uint64_t length = 0;
    take(&length, sizeof length);
    require_data(length <= rest.size(), "a state ends within its contents");
    std::string s(length, ' ');
    take(s.data(), s.size());
    return s;
  };
  world_.together("continuing from a state", [&] {
    const StateHead ours;
    require_data(bytes.size() >= sizeof head, "a state of ", bytes.size(), " bytes: it is cut");
    take(&head, sizeof head);
    require_usage(std::memcmp(head.mark, ours.mark, sizeof head.mark) == 0,
                  "these bytes are no state of a session, or that of another version of Lockstep");
    require_data(rest.size() == head.bytes && hash64(rest.data(), rest.size()) == head.hash, "a state of ",
                 bytes.size(), " bytes, of which ", head.bytes + sizeof head, " were written: it is cut or changed");
    const std::string theirs = text();
    require_usage(theirs == variables_text(), "a state of a session with other variables: ", theirs, ", here ",
                  variables_text());
    for (const auto& [name, part] : kMoments) {
      std::vector<double>& values = moments.*part;
      values.resize(std::string_view(name).starts_with("input") ? n_in_ : n_out_);
      take(values.data(), values.size() * sizeof(double));
    }
    state = unpack(text());
    take(&steps, sizeof steps);
  });
  std::unique_ptr<Learner> made = build(std::move(moments));
  world_.together("continuing from a state", [&] {
    const CheckpointParts all = parts(*made);
    for (const NamedTensor& array : arrays_of(all)) {
      const std::string here = join(array.name, " ", array.value.dtype(), " ", array.value.shape()), there = text();
      require_usage(here == there, "a state of another network or optimizer: ", there, ", here ", here);
      take(HostView(array.value, HostView::Access::write)->raw(), array.value.size_bytes());
    }
    all.optimizers.front().optimizer->set_steps(steps);
    reservoir.set_state(text(), world_.rank(), world_.size());
  });
  require_usage(same_on_all_ranks(world_, head.hash),
                "continuing from a state: the ranks have passed different ones; pass the same on all");
  learner_ = std::move(made);
  reservoir_ = std::move(reservoir);
  state_ = state;
}

std::string Session::variables_text() const {
  return join(listed(variables_.input_names, ","), " -> ", listed(variables_.output_names, ","));
}

}  // namespace lockstep::fit
