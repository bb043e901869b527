#include "lockstep/tensor/tensor.hpp"

#include <ostream>

namespace lockstep {

std::size_t size_bytes(DType dtype) {
  constexpr std::size_t kByType[] = {4, 8, 2, 2, 4, 8, 1};
  return kByType[static_cast<std::size_t>(dtype)];
}

const char* name(DType dtype) {
  constexpr const char* kByType[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
  return kByType[static_cast<std::size_t>(dtype)];
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  require(extents.size() <= kMaxRank, "a tensor with ", extents.size(), " axes: at most ", kMaxRank,
          " axes are supported");
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    require(extents[axis] >= 0, "a tensor with extent ", extents[axis], " on axis ", axis, ": extents must be >= 0");
    extents_[axis] = extents[axis];
  }
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis ? ", " : "") << shape[axis];
  return out << ')';
}

Tensor Tensor::reshaped(Shape shape) const {
  require(shape.size() == size(), "viewing ", shape_, " as ", shape, ": the sizes ", size(), " and ", shape.size(),
          " differ");
  return {data_, dtype_, shape, device_};
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
  require(shape_.rank() > 0 && first >= 0 && count >= 0 && first + count <= shape_[0], "rows [", first, ", ",
          first + count, ") of a tensor of shape ", shape_, ": out of range");
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (int axis = 0; axis < shape_.rank(); ++axis) extents[axis] = axis == 0 ? count : shape_[axis];
  const std::int64_t row = shape_[0] == 0 ? 0 : size() / shape_[0];
  auto* begin = static_cast<std::byte*>(data_) + static_cast<std::size_t>(first * row) * lockstep::size_bytes(dtype_);
  return {begin, dtype_, Shape(std::span(extents.data(), static_cast<std::size_t>(shape_.rank()))), device_};
}

Tensor allocate(Arena& arena, DType dtype, Shape shape) {
  return {arena.allocate(static_cast<std::size_t>(shape.size()) * size_bytes(dtype)), dtype, shape, arena.device()};
}

void fill_zero(const Stream& stream, const Tensor& t) { zero_bytes(stream, t.raw(), t.size_bytes()); }

void copy(const Stream& stream, const Tensor& to, const Tensor& from) {
  require(to.size() == from.size() && to.dtype() == from.dtype(), "copying ", from.shape(), " of ", from.dtype(),
          " to ", to.shape(), " of ", to.dtype(), ": the sizes or types differ");
  copy_bytes(stream, to.raw(), from.raw(), from.size_bytes());
}

Tensor on_host(const Stream& stream, Arena& arena, const Tensor& t) {
  if (!t.device().is_cuda()) return t;
  const Tensor on_cpu = allocate(arena.host(), t.dtype(), t.shape());
  copy(stream, on_cpu, t);
  stream.synchronize();
  return on_cpu;
}

HostView::HostView(const Tensor& t, Access access) : view_(t) {
  if (!t.device().is_cuda()) return;
  copy_ = OwnedTensor(t.dtype(), t.shape());
  const Stream stream(t.device());
  copy(stream, copy_, t);
  stream.synchronize();
  view_ = copy_;
  if (access == Access::write) target_ = t;
}

HostView::~HostView() noexcept(false) {
  if (!target_) return;
  try {
    const Stream stream(target_.device());
    copy(stream, target_, copy_);
    stream.synchronize();
  } catch (const Error&) {
    if (std::uncaught_exceptions() == 0) throw;  // else the error of the fault is under way
  }
}

}  // namespace lockstep
