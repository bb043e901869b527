#include "train/graph_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"

namespace lockstep {

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

ops::RowSet part_of(const ops::RowSet& rows, std::int64_t first, std::int64_t last) {
  const auto place = [&](std::int64_t node) {
    std::int64_t low = 0, high = rows.size();
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      rows[middle] < node ? low = middle + 1 : high = middle;
    }
    return low;
  };
  const std::int64_t begin = place(first);
  return rows.part(begin, place(last) - begin);
}

GraphExchange::GraphExchange(Communicator& comm, NodeCut cut, bool partitioned)
    : comm_(comm), cut_(std::move(cut)), partitioned_(partitioned && comm.size() > 1) {
  require(cut_.ranks() == comm.size(), "a graph cut for ", cut_.ranks(), " ranks is used by ", comm.size());
}

std::byte* GraphExchange::room(std::vector<std::byte>& memory, std::size_t size) {
  if (memory.size() < size) memory.resize(std::max(size, 2 * memory.size()));
  return memory.data();
}

void GraphExchange::share(const Tensor& table, const ops::RowSet& rows, const char* what) {
  if (!partitioned_) return;
  const auto row_bytes = static_cast<std::size_t>(table.columns()) * size_bytes(table.dtype());
  auto* memory = static_cast<std::byte*>(table.raw());
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < comm_.size(); ++r) {
    sizes.push_back(part_of(rows, cut_.first(r), cut_.last(r)).size() * static_cast<std::int64_t>(row_bytes));
  }
  const ops::RowSet mine = own(rows);
  const std::size_t total = static_cast<std::size_t>(rows.size()) * row_bytes,
                    given = static_cast<std::size_t>(mine.size()) * row_bytes;
  std::byte *send = room(sending_, given), *into = room(arrived_, total);
#pragma omp parallel for schedule(static) if (given > (std::size_t{1} << 20))
  for (std::int64_t i = 0; i < mine.size(); ++i) {
    std::memcpy(send + static_cast<std::size_t>(i) * row_bytes, memory + static_cast<std::size_t>(mine[i]) * row_bytes,
                row_bytes);
  }
  comm_.all_gather_known({send, given}, sizes, {into, total}, what);
  received_ += static_cast<std::int64_t>(total - given);
#pragma omp parallel for schedule(static) if (total > (std::size_t{1} << 20))
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::int64_t row = rows[i];
    if (row >= first() && row < last()) continue;
    std::memcpy(memory + static_cast<std::size_t>(row) * row_bytes, into + static_cast<std::size_t>(i) * row_bytes,
                row_bytes);
  }
}

void GraphExchange::share(const Tensor& values, std::span<const std::int64_t> indptr, const char* what) {
  if (!partitioned_) return;
  const std::size_t element = size_bytes(values.dtype());
  const auto bytes_before = [&](std::int64_t node) {
    return static_cast<std::size_t>(indptr[static_cast<std::size_t>(node)]) * element;
  };
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < comm_.size(); ++r) {
    sizes.push_back(static_cast<std::int64_t>(bytes_before(cut_.last(r)) - bytes_before(cut_.first(r))));
  }
  const std::size_t total = values.size_bytes(), from = bytes_before(first()), given = bytes_before(last()) - from;
  std::byte *send = room(sending_, given), *into = static_cast<std::byte*>(values.raw());
  std::memcpy(send, into + from, given);
  comm_.all_gather_known({send, given}, sizes, {into, total}, what);
  received_ += static_cast<std::int64_t>(total - given);
}

void GraphExchange::by_columns(Target y, const Tensor& x, const std::function<void(const Tensor&, const Tensor&)>& f,
                               const char* what) {
  const int ranks = comm_.size();
  const std::int64_t width = x.columns(), nodes = cut_.nodes(), mine = last() - first();
  const auto column = [&](int r) { return width * r / ranks; };
  const auto columns = [&](int r) { return column(r + 1) - column(r); };
  const std::int64_t my_columns = columns(comm_.rank());
  const auto in_bytes = static_cast<std::int64_t>(size_bytes(x.dtype())),
             out_bytes = static_cast<std::int64_t>(size_bytes(y.tensor.dtype()));
  const Shape block = {nodes, my_columns};
  const Tensor in(room(columns_in_, static_cast<std::size_t>(nodes * my_columns * in_bytes)), x.dtype(), block),
      out(room(columns_out_, static_cast<std::size_t>(nodes * my_columns * out_bytes)), y.tensor.dtype(), block);
  const auto bytes = [](std::byte* p, std::int64_t count) { return std::span(p, static_cast<std::size_t>(count)); };

  // My rows, cut into column blocks; the pieces of all ranks, one after another, are all rows of my block.
  std::byte* send = room(sending_, static_cast<std::size_t>(mine * width * in_bytes));
  const auto* rows = static_cast<const std::byte*>(x.raw()) + first() * width * in_bytes;
  std::vector<std::span<const std::byte>> to;
  std::vector<std::int64_t> from;
  for (int r = 0; r < ranks; ++r) {
    std::byte* piece = send + mine * column(r) * in_bytes;
    const std::int64_t part = columns(r) * in_bytes;
#pragma omp parallel for schedule(static) if (mine * width > (1 << 18))
    for (std::int64_t i = 0; i < mine; ++i)
      std::memcpy(piece + i * part, rows + (i * width + column(r)) * in_bytes, static_cast<std::size_t>(part));
    to.push_back(bytes(piece, mine * part));
    from.push_back((cut_.last(r) - cut_.first(r)) * my_columns * in_bytes);
  }
  comm_.all_to_all_known(to, from, bytes(static_cast<std::byte*>(in.raw()), nodes * my_columns * in_bytes), what);

  if (my_columns > 0) f(out, in);

  to.clear(), from.clear();
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t part = my_columns * out_bytes;
    to.push_back(
        bytes(static_cast<std::byte*>(out.raw()) + cut_.first(r) * part, (cut_.last(r) - cut_.first(r)) * part));
    from.push_back(mine * columns(r) * out_bytes);
  }
  std::byte* arrived = room(arrived_, static_cast<std::size_t>(mine * width * out_bytes));
  comm_.all_to_all_known(to, from, bytes(arrived, mine * width * out_bytes), what);
  visit_float(y.tensor.dtype(), [&]<class T>() {
    for (int r = 0; r < ranks; ++r) {
      const T* piece = reinterpret_cast<const T*>(arrived) + mine * column(r);
#pragma omp parallel for schedule(static) if (mine * width > (1 << 18))
      for (std::int64_t i = 0; i < mine; ++i) {
        T* row = y.tensor.data<T>() + (first() + i) * width + column(r);
        for (std::int64_t c = 0; c < columns(r); ++c)
          row[c] = y.accumulate ? row[c] + piece[i * columns(r) + c] : piece[i * columns(r) + c];
      }
    }
  });
  received_ += (nodes - mine) * my_columns * in_bytes + mine * (width - my_columns) * out_bytes;
}

}  // namespace lockstep
