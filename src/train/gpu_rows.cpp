#include "train/gpu_rows.hpp"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

/// What a rank says in front of its bitmaps when it has none.
constexpr std::uint64_t kNotNow = 1, kNever = 2;

/// Rows that a message has room for: n and one to an eighth more, so that from step to step the sums seldom change their
/// lengths, and graphs their shapes.
std::int64_t room(std::int64_t n) {
  const auto few =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n))) / 8);
  return (n / few + 1) * few;
}

}  // namespace

GpuRows::GpuRows(Communicator& comm, const ParamStore& params, std::span<const FlatRange> buckets, Gradients& gradients)
    : comm_(comm), gradients_(gradients) {
  for (const FlatRange range : buckets) {
    const RowUnion& rows = buckets_.emplace_back(range, RowUnion(params, range, comm.size())).rows;
    tables_ += std::ranges::count_if(rows.parts(), [](const RowUnion::Part& part) { return part.table != nullptr; });
  }
}

bool GpuRows::on() const {
  return std::ranges::any_of(buckets_, [](const Bucket& bucket) { return bucket.rows.on(); });
}

std::string GpuRows::choice() const {
  std::string text;
  for (const Bucket& bucket : buckets_)
    if (!bucket.rows.choice().empty()) text += (text.empty() ? "" : "; ") + bucket.rows.choice();
  return text;
}

void GpuRows::begin(const GlobalBatch& batch, Given given) {
  require(given == Given::now || ahead_ || !on(), "another rank gives its steps call by call");
  batch_ = batch;
  given_ = given;
  missing_ = tables_;
  packed_.clear();
}

Tensor GpuRows::pack(Stream& stream, Arena& arena, std::size_t bucket) {
  const auto& [range, rows] = buckets_[bucket];
  const Tensor flat = gradients_.flat();
  if (rows.on()) find();
  if (!rows.on()) return flat.slice(range.begin, range.count());
  const auto length = [](const RowUnion::Part& part) {
    return part.table == nullptr ? part.count : room(std::ssize(part.rows)) * part.width();
  };
  std::int64_t size = 0, at = 0;
  for (const RowUnion::Part& part : rows.parts()) size += length(part);
  const Tensor message = allocate(arena, flat.dtype(), {size});
  for (const RowUnion::Part& part : rows.parts()) {
    Tensor gradient = flat.slice(part.begin, part.count);
    if (part.table == nullptr) {
      packed_.push_back({.gradient = gradient, .message = message.slice(at, part.count), .table = false, .rows = {}});
      copy(stream, packed_.back().message, gradient);
    } else {
      const std::int64_t count = std::ssize(part.rows), width = part.width();
      const std::size_t bytes = std::span(part.rows).size_bytes();
      void* pinned = arena.host().allocate(bytes);
      std::ranges::copy(part.rows, static_cast<std::int32_t*>(pinned));
      auto* list = static_cast<std::int32_t*>(arena.allocate(bytes));
      copy_bytes(stream, list, pinned, bytes);
      gradient = gradient.reshaped({part.table->shape[0], width});
      const Tensor there = message.slice(at, count * width).reshaped({count, width});
      packed_.push_back({gradient, there, true, ops::RowSet::list({list, part.rows.size()})});
      ops::copy_block(stream, {there, ops::RowSet::range(0, count)}, {gradient, packed_.back().rows}, width);
      fill_zero(stream, message.slice(at + count * width, length(part) - count * width));
    }
    at += length(part);
  }
  return message;
}

void GpuRows::unpack(Stream& stream) {
  for (const Packed& part : packed_) {
    const auto& [gradient, message, table, rows] = part;
    if (table)
      ops::copy_block(stream, {gradient, rows}, {message, ops::RowSet::range(0, rows.size())}, gradient.columns());
    else
      copy(stream, gradient, message);
  }
}

/// The rows of batch_, unless they are known.
void GpuRows::find() {
  if (asked_ != batch_ || (!complete_ && given_ == Given::now)) exchange(0);
  require(complete_, "another rank has not been able to prepare its part of the step");
}

void GpuRows::end_ahead(const GlobalBatch& batch, bool never) {
  if (!on() || !ahead_ || asked_ == batch) return;
  batch_ = batch;
  exchange(never ? kNever : kNotNow);
}

/// The ranks' round for batch_. standing: 0, or why this rank has no bitmaps.
void GpuRows::exchange(std::uint64_t standing) {
  std::size_t words = 1;
  for (const auto& [range, rows] : buckets_) words += rows.on() ? rows.words() : 0;
  words_.assign(words, 0);
  words_[0] = standing;
  const auto for_each = [&](const auto& call) {
    std::size_t at = 1;
    for (Bucket& bucket : buckets_) {
      if (!bucket.rows.on()) continue;
      const std::size_t length = bucket.rows.words();
      call(bucket.rows, std::span(words_).subspan(at, length));
      at += length;
    }
  };
  if (standing == 0)
    for_each([&](RowUnion& rows, std::span<std::uint64_t> bitmaps) { rows.note(bitmaps, gradients_); });
  comm_.all_reduce(std::span(words_), ReduceOp::bit_or, "touched rows");
  asked_ = batch_;
  complete_ = words_[0] == 0;
  if ((words_[0] & kNever) != 0) ahead_ = false;
  if (complete_)
    for_each([&](RowUnion& rows, std::span<const std::uint64_t> bitmaps) {
      rows.read(bitmaps, size_bytes(gradients_.flat().dtype()));
    });
}

}  // namespace lockstep
