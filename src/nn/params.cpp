#include "lockstep/nn/params.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/bitmap.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/quantile.hpp"
#include "lockstep/base/stop_request.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/cuda_types.hpp"
#include "lockstep/ops/cast.hpp"

namespace lockstep {

TouchedRows::TouchedRows(std::int64_t rows, bool packed) : bitmap_(bitmap_words(rows), 0) {
  if (!packed) return;
  places_ = OwnedTensor(DType::i32, Shape{rows});
  place_of_ = places_->data<std::int32_t>();
}

void TouchedRows::clear() {
  for (const std::int64_t row : rows_) bitmap_[row / 64] = 0;
  rows_.clear();
}

namespace {
/// A view of a parameter's elements in a flat vector.
Tensor view_of(const Tensor& flat, const Param& param) {
  auto* begin = static_cast<std::byte*>(flat.raw()) + static_cast<std::size_t>(param.offset) * size_bytes(flat.dtype());
  return {begin, flat.dtype(), param.shape, flat.device()};
}
}  // namespace

Gradients::Gradients(const ParamStore& params) : Gradients(params, params.device()) {}

Gradients::Gradients(const ParamStore& params, Device device)
    : params_(&params),
      storage_(real_dtype(params.storage()), Shape{params.flat_size()}, device, MemoryUse::gradients) {
  require(params.values() || params.all().empty(),
          "creating gradients: the parameters have no values; call ParamStore::allocate first");
  for (const Param& p : params.all())
    touched_.push_back(p.row_sparse ? std::make_unique<TouchedRows>(p.shape[0], !device.is_cuda()) : nullptr);
}

Tensor Gradients::of(const Param& param) const { return view_of(storage_, param); }

TouchedRows* Gradients::touched(const Param& param) const { return touched_[param.index].get(); }

void Gradients::zero() {
  const Stream stream(storage_->device());
  // On a GPU one write of the whole vector is faster than one per row, and a penalty may have changed any row.
  if (storage_->device().is_cuda()) {
    for (const std::unique_ptr<TouchedRows>& rows : touched_)
      if (rows) rows->clear();
    return fill_zero(stream, storage_);
  }
  std::int64_t clean = 0;  // elements before this one are done
  const auto clear_until = [&](std::int64_t end) {
    if (end > clean) fill_zero(stream, storage_.view().slice(clean, end - clean));
  };
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    if (!touched_[i]) continue;
    const Param& p = params_->all()[i];
    clear_until(p.offset);
    fill_zero(stream, of(p).slice(0, std::ssize(touched_[i]->rows())));
    touched_[i]->clear();
    clean = p.offset + p.shape.size();
  }
  clear_until(storage_->size());
}

Param& ParamStore::add(std::string name, Shape shape, Init init) {
  require(!values_.view(), "adding parameter ", name, ": all parameters must be added before allocate()");
  for (const Param& p : params_) require(p.name != name, "adding parameter ", name, ": the name is taken");
  Param& p = params_.emplace_back();
  p.name = std::move(name);
  p.shape = shape;
  p.index = std::ssize(params_) - 1;
  inits_.push_back(std::move(init));
  return p;
}

Param& ParamStore::add_adjoining(std::string name, Shape shape, Init init) {
  Param& p = add(std::move(name), shape, std::move(init));
  p.adjoins = true;
  return p;
}

void ParamStore::allocate() {
  require(!values_.view(), "ParamStore::allocate was called twice");
  const auto step = static_cast<std::int64_t>(Buffer::kAlignment / size_bytes(dtype_));
  const auto round_up = [&] { flat_size_ = (flat_size_ + step - 1) / step * step; };
  for (Param& p : params_) {
    if (!p.adjoins) round_up();
    p.offset = flat_size_;
    flat_size_ += p.shape.size();
  }
  round_up();
  require_memory_for(static_cast<double>(flat_size_) * static_cast<double>(size_bytes(dtype_)),
                     join("building the network: its ", flat_size_, " parameters need"),
                     "lower the sizes of the network, model.*");
  values_ = OwnedTensor(dtype_, Shape{flat_size_}, {}, MemoryUse::parameters);
  set_views();
}

void ParamStore::allocate(std::uint64_t seed) {
  allocate();
  for (Param& p : params_) {
    const Philox draws(seed, 0, Site("init." + p.name));
    visit_float(dtype_, [&]<class T>() {
      T* value = p.value.data<T>();
      const Init& init = inits_[p.index];
      constexpr std::int64_t kChunk = 1 << 16;  // elements between two checks for a stop request
      for (std::int64_t first = 0; first < p.shape.size(); first += kChunk) {
        require_no_stop_request("building the network");
        const std::int64_t end = std::min(first + kChunk, p.shape.size());
#pragma omp parallel for if (end - first == kChunk)
        for (std::int64_t i = first; i < end; ++i)
          value[i] = static_cast<T>(init(draws, static_cast<std::uint64_t>(i)));
      }
    });
  }
}

void ParamStore::move_to(Device device) {
  if (device == this->device()) return;
  const HostView host(values_);
  OwnedTensor moved(dtype_, Shape{flat_size_}, device, MemoryUse::parameters);
  const Stream stream(device);
  copy(stream, moved, host);
  stream.synchronize();
  values_ = std::move(moved);
  store_as(storage_);
}

void ParamStore::store_as(DType storage) {
  require(storage == dtype_ || is_half(storage), "storing parameters of ", dtype_, " as ", storage, ": must be ",
          dtype_, ", bf16 or f16");
  if (device().is_cuda()) require_cuda_type(name(storage));
  storage_ = storage;
  stored_ =
      storage == dtype_ ? OwnedTensor() : OwnedTensor(storage, Shape{flat_size_}, device(), MemoryUse::parameters);
  set_views();
  Stream stream(device());
  refresh(stream);
}

void ParamStore::refresh(Stream& stream) const {
  if (storage_ != dtype_) ops::cast(stream, stored_, values_);
}

void ParamStore::set_views() {
  for (Param& p : params_) {
    p.value = view_of(values_, p);
    p.stored = storage_ == dtype_ ? p.value : view_of(stored_, p);
  }
}

Param& ParamStore::at(const std::string& name) {
  const auto found = std::find_if(params_.begin(), params_.end(), [&](const Param& p) { return p.name == name; });
  require(found != params_.end(), "looking up parameter ", name, ": no parameter has this name");
  return *found;
}

std::int64_t ParamStore::count() const {
  std::int64_t n = 0;
  for (const Param& p : params_) n += p.shape.size();
  return n;
}

std::uint64_t ParamStore::hash() const {
  const HostView host(values_);
  return hash64(host->raw(), host->size_bytes());
}

namespace init {
ParamStore::Init zeros() {
  return [](const Philox&, std::uint64_t) { return 0.0; };
}
ParamStore::Init ones() {
  return [](const Philox&, std::uint64_t) { return 1.0; };
}
ParamStore::Init normal(double std) {
  return [=](const Philox& draws, std::uint64_t i) { return std * draws.normal(i); };
}
ParamStore::Init truncated_normal(double std) {
  return [=](const Philox& draws, std::uint64_t i) { return lockstep::truncated_normal(draws.uniform(i), std); };
}
ParamStore::Init uniform(double bound) {
  return [=](const Philox& draws, std::uint64_t i) { return bound * (2 * draws.uniform(i) - 1); };
}
ParamStore::Init xavier_normal(std::int64_t fan_in, std::int64_t fan_out) {
  return normal(std::sqrt(2.0 / static_cast<double>(fan_in + fan_out)));
}
}  // namespace init

}  // namespace lockstep
