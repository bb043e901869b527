#include "tasks/kgat/graph_exchange.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/ops/row_blocks.hpp"

namespace lockstep {

namespace {

std::int64_t element_bytes(const Tensor& t) { return static_cast<std::int64_t>(size_bytes(t.dtype())); }
std::span<std::byte> bytes_of(const Tensor& t) { return {static_cast<std::byte*>(t.raw()), t.size_bytes()}; }

std::span<std::byte> reserve_pinned(Buffer& memory, std::size_t size) {
  if (memory.size_bytes() < size) memory = Buffer::pinned(std::max(size, 2 * memory.size_bytes()));
  return {memory.data(), size};
}

}  // namespace

NodeCut::NodeCut(std::span<const std::int64_t> indptr, std::int64_t segments, int ranks) {
  require(segments > 0 && ranks > 0 && !indptr.empty(), "cutting ", indptr.size(), " row offsets into ", segments,
          " segments for ", ranks, " ranks");
  const auto nodes = std::ssize(indptr) - 1;
  const auto cost_before = [&](std::int64_t node) { return indptr[node] - indptr[0] + kRowCost * node; };
  const std::int64_t total = cost_before(nodes);
  begin_.push_back(0);
  for (std::int64_t s = 1; s <= segments; ++s) {
    // total * s / segments without overflow: total may have 62 bits.
    const std::int64_t wanted = total / segments * s + total % segments * s / segments;
    std::int64_t low = begin_.back(), high = nodes;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      cost_before(middle) < wanted ? low = middle + 1 : high = middle;
    }
    begin_.push_back(s == segments ? nodes : low);
  }
  first_segment_.push_back(0);
  for (int r = 0; r < ranks; ++r) first_segment_.push_back(shards_of(segments, r, ranks).end);
}

GraphExchange::GraphExchange(Communicator& comm, NodeCut cut, bool partitioned, Device device,
                             std::unique_ptr<GpuReduce> nccl)
    : comm_(comm),
      cut_(std::move(cut)),
      partitioned_(partitioned && comm.size() > 1),
      stream_(device),
      nccl_(std::move(nccl)) {
  require(cut_.ranks() == comm.size(), "a graph cut for ", cut_.ranks(), " ranks is used by ", comm.size());
}

std::byte* GraphExchange::reserve(Buffer& memory, std::int64_t size) const {
  const auto bytes = static_cast<std::size_t>(size);
  if (memory.size_bytes() < bytes) memory = Buffer(stream_.device(), std::max(bytes, 2 * memory.size_bytes()));
  return memory.data();
}

void GraphExchange::share(const Tensor& table, const PlacedRows& rows, const char* what) {
  if (!partitioned_) return;
  const auto* at = static_cast<const std::byte*>(table.raw());
  if (at >= shared_.data() && at < shared_.data() + shared_.size()) return comm_.barrier(what);
  const std::int64_t columns = table.columns(), row_bytes = columns * element_bytes(table);
  const std::int64_t count = rows.host.size();
  std::vector<std::int64_t> ends, sizes;  // row indices; bytes
  for (int r = 0; r < comm_.size(); ++r) {
    const std::int64_t own_rows = rows.between(cut_.first(r), cut_.last(r)).host.size();
    ends.push_back((ends.empty() ? 0 : ends.back()) + own_rows);
    sizes.push_back(own_rows * row_bytes);
  }
  const auto rank = static_cast<std::size_t>(comm_.rank());
  const std::int64_t end = ends[rank], own = sizes[rank] / row_bytes, begin = end - own;
  const auto packed = [&](Buffer& memory, std::int64_t n) {
    return Tensor(reserve(memory, n * row_bytes), table.dtype(), {n, columns}, stream_.device());
  };
  const Tensor mine = packed(sending_, own), all = packed(arrived_, count);
  ops::copy_block(stream_, {mine, ops::RowSet::range(0, own)}, {table, rows.rows.part(begin, own)});
  all_gather(bytes_of(mine), sizes, bytes_of(all), what);
  for (const auto& [from, n] : {std::pair(std::int64_t{0}, begin), std::pair(end, count - end)})
    ops::copy_block(stream_, {table, rows.rows.part(from, n)}, {all, ops::RowSet::range(from, n)});
}

void GraphExchange::share_ranges(const Tensor& array, std::int64_t unit_bytes,
                                 const std::function<std::int64_t(int)>& begin, const char* what) {
  if (!partitioned_) return;
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < comm_.size(); ++r) sizes.push_back((begin(r + 1) - begin(r)) * unit_bytes);
  const std::span<std::byte> into = bytes_of(array),
                             mine = into.subspan(begin(comm_.rank()) * unit_bytes, sizes[comm_.rank()]);
  std::byte* send = reserve(sending_, std::ssize(mine));
  copy_bytes(stream_, send, mine.data(), mine.size());
  all_gather({send, mine.size()}, sizes, into, what);
}

void GraphExchange::share_values(const Tensor& values, std::span<const std::int64_t> indptr, const char* what) {
  share_ranges(
      values, element_bytes(values), [&](int r) { return indptr[cut_.first(r)]; }, what);
}

void GraphExchange::share_chunks(const Tensor& array, std::int64_t chunks,
                                 const std::function<std::int64_t(std::int64_t)>& at, const char* what) {
  const auto begin = [&](int r) { return at(r == comm_.size() ? chunks : shards_of(chunks, r, comm_.size()).begin); };
  share_ranges(array, array.columns() * element_bytes(array), begin, what);
}

void GraphExchange::all_gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                               std::span<std::byte> into, const char* what) {
  received_ += static_cast<std::int64_t>(into.size() - mine.size());
  if (nccl_) {
    std::vector<std::span<std::byte>> from;
    std::size_t at = 0;
    for (const std::int64_t size : sizes) {
      from.push_back(into.subspan(at, size));
      at += static_cast<std::size_t>(size);
    }
    nccl_->exchange(stream_, from, std::vector<std::span<const std::byte>>(sizes.size(), mine), what);
    return nccl_->join(stream_);
  }
  if (!on_gpu()) return comm_.all_gather_known(mine, sizes, into, what);
  const std::span<std::byte> out = reserve_pinned(host_out_, mine.size()), in = reserve_pinned(host_in_, into.size());
  copy_bytes(stream_, out.data(), mine.data(), mine.size());
  stream_.synchronize();
  comm_.all_gather_known(out, sizes, in, what);
  copy_bytes(stream_, into.data(), in.data(), in.size());
  stream_.synchronize();  // the next call overwrites the page-locked memory
}

void GraphExchange::wait(std::int64_t step) const {
  if (nccl_)
    nccl_->wait(stream_, step);
  else
    stream_.synchronize();
}

}  // namespace lockstep
