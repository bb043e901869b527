#include "train/graph_exchange.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/ops/row_blocks.hpp"

namespace lockstep {

namespace {

std::int64_t element_bytes(const Tensor& t) { return static_cast<std::int64_t>(size_bytes(t.dtype())); }
std::span<std::byte> bytes_of(const Tensor& t) { return {static_cast<std::byte*>(t.raw()), t.size_bytes()}; }

}  // namespace

NodeCut::NodeCut(std::span<const std::int64_t> indptr, std::int64_t segments, int ranks) {
  require(segments > 0 && ranks > 0 && !indptr.empty(), "cutting ", indptr.size(), " row offsets into ", segments,
          " segments for ", ranks, " ranks");
  const auto nodes = static_cast<std::int64_t>(indptr.size()) - 1;
  const auto cost_before = [&](std::int64_t node) {
    return indptr[static_cast<std::size_t>(node)] - indptr[0] + kRowCost * node;
  };
  const std::int64_t total = cost_before(nodes);
  begin_.push_back(0);
  for (std::int64_t s = 1; s <= segments; ++s) {
    // total s / segments without overflow: total may take up to 62 bits.
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
    : cut_(std::move(cut)),
      partitioned_(partitioned && comm.size() > 1),
      device_(device),
      transport_(comm, device, std::move(nccl)) {
  require(cut_.ranks() == comm.size(), "a graph cut for ", cut_.ranks(), " ranks is used by ", comm.size());
}

std::byte* GraphExchange::room(Buffer& memory, std::int64_t size) const {
  const auto bytes = static_cast<std::size_t>(size);
  if (memory.size_bytes() < bytes) memory = Buffer(device_, std::max(bytes, 2 * memory.size_bytes()));
  return memory.data();
}

void GraphExchange::share(const Tensor& table, const PlacedRows& rows, const char* what) {
  if (!partitioned_) return;
  const std::int64_t columns = table.columns(), row_bytes = columns * element_bytes(table);
  const std::int64_t count = rows.host.size();
  std::vector<std::int64_t> ends, sizes;  // places among the rows; bytes
  for (int r = 0; r < comm().size(); ++r) {
    const std::int64_t own_rows = rows.between(cut_.first(r), cut_.last(r)).host.size();
    ends.push_back((ends.empty() ? 0 : ends.back()) + own_rows);
    sizes.push_back(own_rows * row_bytes);
  }
  const auto rank = static_cast<std::size_t>(comm().rank());
  const std::int64_t end = ends[rank], given = sizes[rank] / row_bytes, begin = end - given;
  const auto packed = [&](Buffer& memory, std::int64_t n) {
    return Tensor(room(memory, n * row_bytes), table.dtype(), {n, columns}, device_);
  };
  const Tensor mine = packed(sending_, given), all = packed(arrived_, count);
  Stream stream(device_);
  ops::copy_block(stream, {mine, ops::RowSet::range(0, given)}, {table, rows.rows.part(begin, given)}, columns);
  transport_.all_gather(bytes_of(mine), sizes, bytes_of(all), what);
  received_ += (count - given) * row_bytes;
  for (const auto& [from, n] : {std::pair(std::int64_t{0}, begin), std::pair(end, count - end)})
    ops::copy_block(stream, {table, rows.rows.part(from, n)}, {all, ops::RowSet::range(from, n)}, columns);
}

void GraphExchange::share_pieces(const Tensor& array, std::span<const std::int64_t> begin, const char* what) {
  std::vector<std::int64_t> sizes;
  for (std::size_t r = 0; r + 1 < begin.size(); ++r) sizes.push_back(begin[r + 1] - begin[r]);
  const std::span<std::byte> into = bytes_of(array);
  const auto rank = static_cast<std::size_t>(comm().rank());
  const auto given = static_cast<std::size_t>(sizes[rank]);
  std::byte* send = room(sending_, sizes[rank]);
  copy_bytes(Stream(device_), send, into.data() + begin[rank], given);
  transport_.all_gather({send, given}, sizes, into, what);
  received_ += static_cast<std::int64_t>(into.size() - given);
}

void GraphExchange::share(const Tensor& values, std::span<const std::int64_t> indptr, const char* what) {
  if (!partitioned_) return;
  std::vector<std::int64_t> begin;
  for (int r = 0; r <= comm().size(); ++r) {
    const std::int64_t node = r == comm().size() ? cut_.nodes() : cut_.first(r);
    begin.push_back(indptr[static_cast<std::size_t>(node)] * element_bytes(values));
  }
  share_pieces(values, begin, what);
}

void GraphExchange::share_chunks(const Tensor& array, std::int64_t chunks,
                                 const std::function<std::int64_t(std::int64_t)>& at, const char* what) {
  if (!partitioned_) return;
  const std::int64_t row_bytes = array.columns() * element_bytes(array);
  std::vector<std::int64_t> begin;
  for (int r = 0; r < comm().size(); ++r) begin.push_back(at(shards_of(chunks, r, comm().size()).begin) * row_bytes);
  begin.push_back(at(chunks) * row_bytes);
  share_pieces(array, begin, what);
}

void GraphExchange::by_columns(Target y, const Tensor& x, const std::function<void(const Tensor&, const Tensor&)>& f,
                               const char* what) {
  const int ranks = comm().size();
  const std::int64_t width = x.columns(), nodes = cut_.nodes(), mine = last() - first();
  const auto column = [&](int r) { return width * r / ranks; };
  const auto columns = [&](int r) { return column(r + 1) - column(r); };
  const std::int64_t my_columns = columns(comm().rank());
  const std::int64_t in_bytes = element_bytes(x), out_bytes = element_bytes(y.tensor);
  const auto array = [&](Buffer& memory, DType dtype, const Shape& shape) {
    return Tensor(room(memory, shape.size() * static_cast<std::int64_t>(size_bytes(dtype))), dtype, shape, device_);
  };
  const Tensor in = array(columns_in_, x.dtype(), {nodes, my_columns}),
               out = array(columns_out_, y.tensor.dtype(), {nodes, my_columns});
  // A rank's rows, cut into column blocks: one contiguous piece for each rank, in their order.
  const auto piece = [&](const Tensor& pieces, int r) {
    return pieces.slice(mine * column(r), mine * columns(r)).reshaped({mine, columns(r)});
  };
  const ops::RowSet own = ops::RowSet::range(first(), mine), packed = ops::RowSet::range(0, mine);
  Stream stream(device_);

  // My rows by columns; the pieces of all ranks, one after another, are all rows of my columns.
  const Tensor sent = array(sending_, x.dtype(), {mine * width});
  std::vector<std::int64_t> to, from;
  for (int r = 0; r < ranks; ++r) {
    ops::copy_block(stream, {piece(sent, r), packed}, {x, own, column(r)}, columns(r));
    to.push_back(mine * columns(r) * in_bytes);
    from.push_back((cut_.last(r) - cut_.first(r)) * my_columns * in_bytes);
  }
  transport_.all_to_all(bytes_of(sent), to, from, bytes_of(in), what);

  if (my_columns > 0) f(out, in);

  to.clear(), from.clear();
  for (int r = 0; r < ranks; ++r) {
    to.push_back((cut_.last(r) - cut_.first(r)) * my_columns * out_bytes);
    from.push_back(mine * columns(r) * out_bytes);
  }
  const Tensor arrived = array(arrived_, y.tensor.dtype(), {mine * width});
  transport_.all_to_all(bytes_of(out), to, from, bytes_of(arrived), what);
  const ops::BlockWrite write = y.accumulate ? ops::BlockWrite::add : ops::BlockWrite::store;
  for (int r = 0; r < ranks; ++r)
    ops::copy_block(stream, {y.tensor, own, column(r)}, {piece(arrived, r), packed}, columns(r), write);
  received_ += (nodes - mine) * my_columns * in_bytes + mine * (width - my_columns) * out_bytes;
}

}  // namespace lockstep
