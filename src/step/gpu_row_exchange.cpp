#include "step/gpu_row_exchange.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/base/log.hpp"

namespace lockstep {

GpuRowExchange::GpuRowExchange(Communicator& comm, const ParamStore& params, std::span<const FlatRange> buckets,
                               Gradients& gradients, std::int64_t least_bytes)
    : comm_(comm), gradients_(gradients) {
  if (least_bytes == 0) {
    const std::string first = comm.broadcast_text(log::speaker().host, 0, "host of rank 0");
    least_bytes = comm.agree(log::speaker().host == first, "hosts") ? kRowsFromOnHost : kRowsFromBetweenHosts;
  }
  const auto least = least_bytes / static_cast<std::int64_t>(size_bytes(gradients.flat().dtype()));
  for (const FlatRange range : buckets) {
    const RowExchange& rows = buckets_.emplace_back(range, RowExchange(params, range, comm.size(), least)).rows;
    tables_ += std::ranges::count_if(rows.parts(), [](const RowExchange::Part& part) { return part.table != nullptr; });
  }
}

bool GpuRowExchange::on() const {
  return std::ranges::any_of(buckets_, [](const Bucket& bucket) { return bucket.rows.on(); });
}

void GpuRowExchange::begin() {
  found_ = false;
  missing_ = tables_;
  packed_.clear();
}

Tensor GpuRowExchange::pack(Stream& stream, Arena& arena, std::size_t bucket) {
  const auto& [range, rows] = buckets_[bucket];
  const Tensor flat = gradients_.flat();
  if (rows.on()) find();
  if (!rows.on()) return flat.slice(range.begin, range.count());
  const auto length = [](const RowExchange::Part& part) {
    return part.table == nullptr ? part.count : std::max<std::int64_t>(1, std::ssize(part.rows)) * part.width();
  };
  std::int64_t size = 0, at = 0;
  for (const RowExchange::Part& part : rows.parts()) size += length(part);
  const Tensor message = allocate(arena, flat.dtype(), {size});
  for (const RowExchange::Part& part : rows.parts()) {
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
      const Tensor packed = message.slice(at, count * width).reshaped({count, width});
      packed_.push_back({gradient, packed, true, ops::RowSet::list({list, part.rows.size()})});
      ops::copy_block(stream, {packed, ops::RowSet::range(0, count)}, {gradient, packed_.back().rows});
      fill_zero(stream, message.slice(at + count * width, length(part) - count * width));
    }
    at += length(part);
  }
  return message;
}

void GpuRowExchange::unpack(Stream& stream) {
  for (const Packed& part : packed_) {
    const auto& [gradient, message, table, rows] = part;
    if (table)
      ops::copy_block(stream, {gradient, rows}, {message, ops::RowSet::range(0, rows.size())});
    else
      copy(stream, gradient, message);
  }
}

/// ORs the bitmaps of all ranks, once per step.
void GpuRowExchange::find() {
  if (std::exchange(found_, true)) return;
  std::size_t words = 0;
  for (const auto& [range, rows] : buckets_) words += rows.on() ? rows.words() : 0;
  words_.assign(words, 0);
  const auto for_each = [&](const auto& call) {
    std::size_t at = 0;
    for (Bucket& bucket : buckets_) {
      if (!bucket.rows.on()) continue;
      const std::size_t length = bucket.rows.words();
      call(bucket.rows, std::span(words_).subspan(at, length));
      at += length;
    }
  };
  for_each([&](RowExchange& rows, std::span<std::uint64_t> bitmaps) { rows.note(bitmaps, gradients_); });
  comm_.all_reduce(std::span(words_), ReduceOp::bit_or, "touched rows");
  for_each([&](RowExchange& rows, std::span<const std::uint64_t> bitmaps) {
    rows.read(bitmaps, size_bytes(gradients_.flat().dtype()));
  });
}

}  // namespace lockstep
