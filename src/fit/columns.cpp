#include "fit/columns.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::fit {

namespace {

/// Columns that go from one rank to another: `row` is the first one's place on the one, `place` that on the other.
struct Piece {
  int from, to;
  std::int64_t row, place, count;
};

std::vector<Piece> pieces_of(const std::vector<Run>& order, const std::vector<Shard>& parts) {
  std::vector<Piece> pieces;
  std::int64_t position = 0;
  std::size_t to = 0;
  for (Run run : order)
    while (run.count > 0) {
      while (position >= parts[to].first + parts[to].count) ++to;
      const std::int64_t count = std::min(run.count, parts[to].first + parts[to].count - position);
      pieces.push_back({run.rank, static_cast<int>(to), run.first, position - parts[to].first, count});
      run.first += count;
      run.count -= count;
      position += count;
    }
  return pieces;
}

/// count: columns of this rank afterwards
template <class T>
void exchange(Communicator& comm, const std::vector<T>& from, std::vector<T>& to, const std::vector<Piece>& pieces,
              std::int64_t width, std::int64_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::vector<T>> out(ranks);
  std::vector<std::int64_t> sizes(ranks, 0), next(ranks, 0);  // of what arrives from each rank
  for (const Piece& p : pieces) {
    if (p.to == comm.rank()) sizes[p.from] += p.count * width;
    if (p.from != comm.rank()) continue;
    std::vector<T>& piece = out[p.to];
    piece.insert(piece.end(), from.begin() + p.row * width, from.begin() + (p.row + p.count) * width);
  }
  std::vector<std::span<const std::byte>> bytes;
  for (const std::vector<T>& piece : out) bytes.push_back(std::as_bytes(std::span(piece)));
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), std::int64_t{0});
  for (std::int64_t& size : sizes) size *= static_cast<std::int64_t>(sizeof(T));
  std::vector<T> arrived(count * width);
  comm.all_to_all_known(bytes, sizes, std::as_writable_bytes(std::span(arrived)), "columns");
  to.resize(arrived.size());
  for (const Piece& p : pieces) {
    if (p.to != comm.rank()) continue;
    std::int64_t& at = next[p.from];
    std::copy_n(arrived.begin() + at, p.count * width, to.begin() + p.place * width);
    at += p.count * width;
  }
}

}  // namespace

Tensor GpuValues::range(Device gpu, std::int64_t from, std::int64_t to) {
  const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); };
  if (bytes(to) > buffer_.size_bytes()) {
    Buffer larger(gpu, std::max(bytes(to), 2 * buffer_.size_bytes()), MemoryUse::data);
    const Stream stream(gpu);
    copy_bytes(stream, larger.data(), buffer_.data(), bytes(from));
    stream.synchronize();
    buffer_ = std::move(larger);
  }
  return {buffer_.data() + bytes(from), DType::f32, {to - from}, gpu};
}

void Columns::to_gpu(Device gpu) {
  const Stream stream(gpu);
  const auto put = [&](GpuValues& to, const std::vector<float>& from) {
    copy(stream, to.range(gpu, 0, std::ssize(from)), Tensor::of(from.data(), {std::ssize(from)}));
  };
  if (!on_gpu) {
    put(gpu_x, x);
    put(gpu_y, y);
  }
  put(gpu_weights, weights);
  stream.synchronize();
  on_gpu = true;
}

void Columns::to_host(Device gpu) {
  if (!on_gpu || !x.empty()) return;
  const Stream stream(gpu);
  const auto get = [&](std::vector<float>& to, GpuValues& from, std::int64_t width) {
    to.resize(count() * width);
    copy(stream, Tensor::of(to.data(), {std::ssize(to)}), from.range(gpu, 0, std::ssize(to)));
  };
  get(x, gpu_x, n_in);
  get(y, gpu_y, n_out);
  stream.synchronize();
  on_gpu = false;
}

std::vector<Run> by_identity(const Gathered& of_rank, std::vector<std::int64_t>& sorted) {
  struct Place {
    std::int64_t id, row;
    int rank;
  };
  std::vector<Place> places;
  for (int rank = 0; rank < of_rank.ranks(); ++rank) {
    std::int64_t row = 0;
    for (const std::int64_t id : values_of<std::int64_t>(of_rank.of(rank))) places.push_back({id, row++, rank});
  }
  if (!std::ranges::is_sorted(places, {}, &Place::id)) std::ranges::sort(places, {}, &Place::id);
  const auto twice = std::ranges::adjacent_find(places, {}, &Place::id);
  if (twice != places.end())
    throw Error(Fault::usage, join("training step: two columns have the identity ", twice->id, ", on rank ",
                                   std::min(twice->rank, (twice + 1)->rank), " and rank ",
                                   std::max(twice->rank, (twice + 1)->rank), "; give each column of a step its own"));
  std::vector<Run> order;
  sorted.clear();
  for (const Place& p : places) {
    if (order.empty() || order.back().rank != p.rank || order.back().first + order.back().count != p.row)
      order.push_back({p.rank, p.row, 0});
    ++order.back().count;
    sorted.push_back(p.id);
  }
  return order;
}

void move_columns(Communicator& comm, Device gpu, Columns& from, Columns& to, const std::vector<Run>& order,
                  const std::vector<Shard>& parts) {
  const std::vector<Piece> pieces = pieces_of(order, parts);
  if (std::ranges::all_of(pieces, [](const Piece& p) { return p.from == p.to && p.row == p.place; })) {
    std::swap(from, to);
  } else {
    const std::int64_t count = parts[comm.rank()].count;
    from.to_host(gpu);
    to.clear();
    exchange(comm, from.x, to.x, pieces, from.n_in, count);
    exchange(comm, from.y, to.y, pieces, from.n_out, count);
    exchange(comm, from.weights, to.weights, pieces, 1, count);
  }
  from.clear();
}

}  // namespace lockstep::fit
