#include "lockstep/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/profile.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "optim/cuda_kernels.hpp"

namespace lockstep {

namespace {

/// Elements per chunk. On the CPU, values, gradient and two state vectors of a chunk fit the L2 cache. On a GPU a block
/// takes one chunk, and a small network must fill more than one block.
constexpr std::int64_t kChunk = std::int64_t{1} << 14, kGpuChunk = std::int64_t{1} << 11;
/// Upper limit on the chunks of a table of rows. The rows are scattered over memory: prefetching pays in large chunks.
constexpr std::int64_t kRowChunks = 64;
/// Distance of prefetches, in rows.
constexpr std::size_t kRowsAhead = 6;
/// The state of each range begins at a multiple of this, to align the wide loads of a GPU.
constexpr std::int64_t kStateAlignment = 16;
/// With fewer elements, one thread is faster than several.
constexpr std::int64_t kParallelFrom = std::int64_t{1} << 18;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

/// An optimizer whose step is one sweep with the scalars Step<T>.
template <template <class> class Step>
class SweepOptimizer : public Optimizer {
 protected:
  /// `slots` are the names of the states of the rule.
  SweepOptimizer(const OptimizerOptions& options, ParamStore& params, std::vector<FlatRange> ranges, bool lazy,
                 const std::array<const char*, 2>& slots)
      : Optimizer(params, std::move(ranges), lazy ? SparseRows::keep : SparseRows::update), options_(options) {
    for (std::size_t i = 0; i < Step<float>::kStates; ++i) states_[i] = add_state(slots[i]);
  }
  void begin(double lr, double gradient_scale) override {
    now_ = scalars(lr, steps());
    now_[0] = gradient_scale;
  }
  void update(const FlatChunk& chunk, const Tensor& values, const Tensor& gradient) override {
    visit_float(dtype(), [&]<class T>() {
      const auto state = [&](const Tensor& flat) { return flat ? flat.data<T>() + chunk.state : nullptr; };
      optim_kernels::active_update(chunk.end - chunk.begin, values.data<T>() + chunk.begin, state(states_[0]),
                                   state(states_[1]), gradient.data<T>() + chunk.begin,
                                   optim_kernels::step_as<Step<T>>(now_));
    });
  }
  void update(const GpuSweep& sweep) override {
    visit_float(dtype(), [&]<class T>() {
      if constexpr (kHasCuda)
        optim_kernels::cuda::sweep(sweep, states_[0].data<T>(), states_[1].data<T>(),
                                   optim_kernels::step_as<Step<T>>(now_));
    });
  }
  const OptimizerOptions options_;
  std::array<Tensor, 2> states_;

 private:
  StepScalars now_{};
};

class Adam final : public SweepOptimizer<optim_kernels::AdamStep> {
 public:
  Adam(const OptimizerOptions& options, bool decoupled, ParamStore& params, std::vector<FlatRange> ranges)
      : SweepOptimizer(options, params, std::move(ranges), options.lazy, {"exp_avg", "exp_avg_sq"}),
        decoupled_(decoupled) {}
  const char* name() const override { return decoupled_ ? "adamw" : "adam"; }
  StepScalars scalars(double lr, std::int64_t step) const override {
    const auto t = static_cast<double>(step);
    const double decay = options_.weight_decay;
    return {1,
            decoupled_ ? 0 : decay,
            decoupled_ ? 1 - lr * decay : 1,
            options_.beta1,
            1 - options_.beta1,
            options_.beta2,
            1 - options_.beta2,
            lr / (1 - std::pow(options_.beta1, t)),
            1 / std::sqrt(1 - std::pow(options_.beta2, t)),
            options_.eps};
  }
  std::array<Tensor, 2> adam_moments() const override { return is_flat() ? states_ : std::array<Tensor, 2>{}; }

 private:
  bool decoupled_;
};

class AdamAtan2 final : public SweepOptimizer<optim_kernels::AdamAtan2Step> {
 public:
  AdamAtan2(const OptimizerOptions& options, ParamStore& params, std::vector<FlatRange> ranges)
      : SweepOptimizer(options, params, std::move(ranges), false, {"exp_avg", "exp_avg_sq"}) {}
  const char* name() const override { return "adam_atan2"; }
  StepScalars scalars(double lr, std::int64_t step) const override {
    const auto t = static_cast<double>(step);
    const double unbias = 1 / (1 - std::pow(options_.beta1, t));
    const bool inside = options_.atan2_bias == "paper";
    return {1,
            1 - lr * options_.weight_decay,
            1 - options_.beta1,
            1 - options_.beta2,
            inside ? unbias : 1,
            inside ? lr : lr * unbias,
            1 / std::sqrt(1 - std::pow(options_.beta2, t))};
  }
};

/// SgdStep or MomentumStep.
template <template <class> class Step>
class Sgd final : public SweepOptimizer<Step> {
 public:
  Sgd(const OptimizerOptions& options, ParamStore& params, std::vector<FlatRange> ranges)
      : SweepOptimizer<Step>(options, params, std::move(ranges), options.lazy, {"momentum_buffer"}) {}
  const char* name() const override { return "sgd"; }
  StepScalars scalars(double lr, std::int64_t step) const override {
    return {1, this->options_.weight_decay, lr, step == 1 ? 0 : this->options_.momentum};
  }
};

}  // namespace

std::vector<FlatRange> trainable_ranges(const ParamStore& params, const std::function<bool(const Param&)>& select) {
  std::vector<FlatRange> ranges;
  bool adjacent = false;  // whether the previous parameter is in the last range
  for (const Param& p : params.all()) {
    const bool wanted = p.trainable && (!select || select(p));
    if (wanted && adjacent) {
      ranges.back().end = p.offset + p.shape.size();
    } else if (wanted) {
      ranges.push_back({p.offset, p.offset + p.shape.size()});
    }
    adjacent = wanted;
  }
  return ranges;
}

Optimizer::Optimizer(ParamStore& params, std::vector<FlatRange> ranges, SparseRows sparse)
    : params_(params), ranges_(std::move(ranges)), sparse_(sparse) {
  for (const FlatRange& range : ranges_) {
    std::int64_t at = range.begin;
    for (const Param& p : params_.all()) {
      if (sparse == SparseRows::update || !p.row_sparse || p.offset < range.begin || p.offset >= range.end) continue;
      add_chunks(at, p.offset, 0);
      at = p.offset + p.shape.size();
      add_chunks(p.offset, at, p.shape.columns());
    }
    add_chunks(at, range.end, 0);
    state_size_ = aligned(state_size_);
  }
  if (!device().is_cuda()) return;
  gpu_chunks_ = Buffer(device(), chunks_.size() * sizeof(FlatChunk));
  const Stream stream(device());
  copy_bytes(stream, gpu_chunks_.data(), chunks_.data(), gpu_chunks_.size_bytes());
  stream.synchronize();
}

void Optimizer::add_chunks(std::int64_t begin, std::int64_t end, std::int64_t row) {
  const std::int64_t chunk = device().is_cuda() ? kGpuChunk
                             : row == 0         ? kChunk
                                                : std::max(kChunk, (end - begin) / kRowChunks);
  const std::int64_t length = row == 0 ? chunk : std::max<std::int64_t>(1, chunk / row) * row;
  for (std::int64_t first = begin; first < end; first += length) {
    const std::int64_t last = std::min(first + length, end);
    chunks_.push_back({first, last, state_size_, row});
    state_size_ += last - first;
  }
}

bool Optimizer::is_flat() const {
  return ranges_.size() == 1 &&
         std::ranges::all_of(chunks_, [](const FlatChunk& c) { return c.begin == c.state && c.row == 0; });
}

void Optimizer::update_rows(const FlatChunk& chunk, const Tensor& values, const FlatGradient& gradient) {
  thread_local std::vector<std::int64_t> rows;  // the first element of each
  rows.clear();
  gradient.for_each_nonzero({chunk.begin, chunk.end}, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += chunk.row) rows.push_back(first);
  });
  visit_float(dtype(), [&]<class T>() {
    // The rows are scattered: without prefetches, each one waits for memory.
    const auto prefetch = [&](const Tensor& flat, std::int64_t at) {
      constexpr std::int64_t kLine = 64 / sizeof(T);
      for (std::int64_t i = 0; i < chunk.row; i += kLine) __builtin_prefetch(flat.data<T>() + at + i, 1);
    };
    const T* const slopes = gradient.data<T>();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (r + kRowsAhead < rows.size()) {
        const std::int64_t next = rows[r + kRowsAhead];
        prefetch(values, next);
        prefetch(gradient, next);
        for (const OwnedTensor& state : storage_) prefetch(state, next - chunk.begin + chunk.state);
      }
      const std::int64_t first = rows[r], last = first + chunk.row;
      if (sparse_ == SparseRows::defer ||
          std::any_of(slopes + first, slopes + last, [](T value) { return value != 0; }))
        update(FlatChunk{first, last, chunk.state + first - chunk.begin, chunk.row}, values, gradient);
    }
  });
}

void Optimizer::update_only(const std::vector<FlatRange>& own) {
  std::vector<FlatChunk> kept;
  for (const FlatChunk& chunk : chunks_) {
    for (const FlatRange& range : own) {
      const std::int64_t begin = std::max(chunk.begin, range.begin), end = std::min(chunk.end, range.end);
      if (begin < end) kept.push_back({begin, end, chunk.state + begin - chunk.begin});
    }
  }
  chunks_ = std::move(kept);
}

Tensor Optimizer::add_state(const std::string& slot) {
  const Tensor flat = storage_.emplace_back(dtype(), Shape{state_size_}, device(), MemoryUse::optimizer).view();
  for (const Param& p : params_.all()) {
    std::int64_t before = 0;
    for (const FlatRange& range : ranges_) {
      if (p.offset >= range.begin && p.offset < range.end) {
        const std::int64_t at = before + p.offset - range.begin;
        state_.push_back({slot + "/" + p.name, flat.slice(at, p.shape.size()).reshaped(p.shape)});
      }
      before = aligned(before + range.count());
    }
  }
  return flat;
}

void Optimizer::step(const FlatGradient& gradient, double lr, double gradient_scale, Ema* ema) {
  const profile::Span span("optimizer", profile::Kind::phase);
  ++steps_;
  begin(lr, gradient_scale);
  const Tensor values = params_.values();
  if (device().is_cuda()) return update(sweep(gradient, nullptr, ema));
  const auto chunks = std::ssize(chunks_);
#pragma omp parallel for schedule(static) if (state_size_ >= kParallelFrom)
  for (std::int64_t i = 0; i < chunks; ++i) {
    const FlatChunk& chunk = chunks_[i];
    if (chunk.row > 0) {
      update_rows(chunk, values, gradient);
    } else {
      update(chunk, values, gradient);
    }
    if (ema != nullptr) ema->update(values, chunk.begin, chunk.end);
  }
}

void Optimizer::enqueue_step(const Tensor& gradient, const void* now, Ema* ema) {
  const profile::Span span("optimizer", profile::Kind::phase);
  update(sweep(gradient, now, ema));
}

GpuSweep Optimizer::sweep(const Tensor& gradient, const void* now, Ema* ema) const {
  return {.stream = Stream(device()),
          .chunks = reinterpret_cast<const FlatChunk*>(gpu_chunks_.data()),
          .count = std::ssize(chunks_),
          .values = params_.values(),
          .gradient = gradient,
          .average = ema != nullptr ? ema->flat() : Tensor{},
          .decay = ema != nullptr ? ema->decay() : 0,
          .now = now};
}

StepScalars Optimizer::scalars(double, std::int64_t) const {
  throw Error(Fault::internal, join("taking steps of ", name(), " on a GPU alone: it needs the host in each step"));
}

std::int64_t Optimizer::state_bytes(const OptimizerOptions& options, DType dtype) {
  const std::int64_t vectors = options.name == "sgd" ? (options.momentum != 0 ? 1 : 0) : 2;
  return vectors * static_cast<std::int64_t>(size_bytes(dtype));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, ParamStore& params,
                                          std::vector<FlatRange> ranges) {
  if (options.name == "adam") return std::make_unique<Adam>(options, false, params, std::move(ranges));
  if (options.name == "adamw") return std::make_unique<Adam>(options, true, params, std::move(ranges));
  if (options.name == "adam_atan2") return std::make_unique<AdamAtan2>(options, params, std::move(ranges));
  require_usage(options.name == "sgd", "option optim.name = ", options.name,
                ": must be adam, adamw, adam_atan2 or sgd");
  if (options.momentum == 0) return std::make_unique<Sgd<optim_kernels::SgdStep>>(options, params, std::move(ranges));
  return std::make_unique<Sgd<optim_kernels::MomentumStep>>(options, params, std::move(ranges));
}

}  // namespace lockstep
