#include "lockstep/data/row_source.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/data/data_memory.hpp"

namespace lockstep {

namespace {

constexpr const char* kLoading = "loading the data set";
constexpr std::int64_t kReadBytes = std::int64_t{4} << 20;  // of one read, and of a fetch of a rank from memory

std::size_t slot_of(std::int64_t row, std::size_t slots) {
  return static_cast<std::size_t>((static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15u) >> 32) & (slots - 1);
}

std::int64_t padded(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }

/// The shape of `count` units of rows of an array with this shape.
Shape units_of(const Shape& all, std::int64_t count) {
  std::vector<std::int64_t> extents = {count};
  for (int axis = 1; axis < all.rank(); ++axis) extents.push_back(all[axis]);
  return Shape(extents);
}

/// Rows of a column, as its function reads them.
struct RowBlock {
  std::vector<std::byte> bytes;
  const std::byte* read(const RowColumn& column, const RowSizes& sizes, std::int64_t first, std::int64_t count) {
    bytes.resize(sizes.bytes(first, count));
    if (!bytes.empty())
      column.read(first, Tensor(bytes.data(), column.dtype, units_of(column.shape, sizes.units(first, count))));
    return bytes.data();
  }
};

}  // namespace

/// The identity of an open file's contents.
struct RowSource::Stamp {
  explicit Stamp(const std::filesystem::path& file) : path(file) { known = read(size, time); }
  bool read(off_t& bytes, timespec& modified) const {
    struct stat now {};
    if (::stat(path.c_str(), &now) != 0) return false;
    bytes = now.st_size;
    modified = now.st_mtim;
    return true;
  }
  void require_same() const {
    off_t bytes = 0;
    timespec modified{};
    require_data(!known || (read(bytes, modified) && bytes == size && modified.tv_sec == time.tv_sec &&
                            modified.tv_nsec == time.tv_nsec),
                 "reading rows of '", path.string(), "': the file has changed since the run opened it (", size,
                 " bytes then, ", bytes,
                 " now); continue the run from its checkpoint with the data set that it began "
                 "with");
  }
  std::filesystem::path path;
  off_t size = 0;
  timespec time{};
  bool known = false;
};

RowArray::RowArray(const Tensor& all) : shape_(all.shape()), held_(all), count_(all ? all.shape()[0] : 0) {
  if (count_ > 0) sizes_.unit_bytes = static_cast<std::int64_t>(all.size_bytes()) / count_;
}

bool RowArray::whole() const { return source_ == nullptr || source_->whole(); }

const std::byte* RowArray::fetched(std::int64_t n) const { return source_->fetched(n, column_); }

void RowArray::fetch(std::vector<std::int64_t> rows) const {
  if (!whole()) source_->fetch(std::move(rows));
}

void RowArray::sum_over(std::int64_t count, const std::function<std::int64_t(std::int64_t i)>& row_of,
                        const std::function<void(std::int64_t i)>& add, std::span<double> sums) const {
  if (whole()) {
    for (std::int64_t i = 0; i < count; ++i) add(i);
    return;
  }
  Communicator& comm = source_->world_->communicator();
  const std::int64_t most = (count + comm.size() - 1) / comm.size(), begin = std::min(count, comm.rank() * most),
                     mine = std::min(most, count - begin),
                     each = std::max<std::int64_t>(1, source_->fetch_rows_ / comm.size());
  for (std::int64_t first = 0; first < most; first += each) {
    const std::int64_t end = std::min(mine, first + each);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = first; i < end; ++i) rows.push_back(row_of(begin + i));
    source_->fetch(std::move(rows));
    for (std::int64_t i = first; i < end; ++i) add(begin + i);
  }
  comm.all_reduce(sums, ReduceOp::sum, "sums over rows");
}

RowSource::RowSource(DataMemory& memory, World* world, const RowOptions& options)
    : memory_(memory), world_(world), options_(options) {}
RowSource::~RowSource() {
  if (traffic_.rows > 0)
    log::info("rows: this rank fetched ", traffic_.rows, " (", human_bytes(traffic_.received),
              in_file_ ? join("; it read ", human_bytes(traffic_.read), " from the file") : std::string(),
              ") and waited ", human_seconds(traffic_.waited_s), " for them");
}

std::int64_t RowSource::begin_of(std::size_t holder) const {
  const auto all = std::ssize(holders_), h = static_cast<std::int64_t>(holder);
  const auto share = [&](std::int64_t of) { return of / all * h + of % all * h / all; };
  const std::int64_t* starts = columns_.front().sizes.starts;
  if (starts == nullptr || h == all) return share(rows_);
  return std::lower_bound(starts, starts + rows_, share(starts[rows_])) - starts;
}

std::int64_t RowSource::offset(std::int64_t row, std::size_t column) const {
  std::int64_t bytes = 0;
  for (std::size_t c = 0; c < column; ++c) bytes += padded(columns_[c].sizes.bytes(row, 1));
  return bytes;
}

std::int64_t RowSource::record_bytes(std::span<const std::byte> row_numbers) const {
  std::int64_t bytes = 0;
  for (const std::int64_t row : values_of<std::int64_t>(row_numbers)) bytes += offset(row, columns_.size());
  return bytes;
}

void RowSource::choose_layout() {
  if (world_ == nullptr || options_.layout == DataLayout::replicate) return;
  Communicator& comm = world_->communicator();
  world_->together(kLoading, [] {});  // matches the call of a rank that has failed earlier
  const std::int64_t nodes = world_->nodes();
  const double bytes = static_cast<double>(rows_) * static_cast<double>(mean_record_),
               own = options_.memory_bytes > 0 ? options_.memory_bytes : memory_limit().bytes / 2,
               memory = comm.all_reduced(own, ReduceOp::min, "memory of the nodes");
  const RowPlace place = place_of_rows(options_.layout, bytes, nodes, memory);
  if (place == RowPlace::replicated) {
    if (options_.layout == DataLayout::divided)
      log::info("data.layout = divided: there is one node, and the ", human_bytes(bytes), " of the rows fit into the ",
                human_bytes(memory), " of its memory for them: it holds them all, as with replicate");
    return;
  }
  world_->together(kLoading, [&] {
    require_usage(rows_ >= world_->size(), "option data.layout = divided: ", rows_, " rows for ", nodes, " nodes and ",
                  world_->size(), " ranks; use replicate");
  });
  in_file_ = place == RowPlace::in_file;
  const std::int64_t mine = in_file_ ? world_->rank() : world_->node();
  const Gathered all = comm.all_gather(std::as_bytes(std::span(&mine, 1)), "holders of the rows");
  holders_.resize(in_file_ ? world_->size() : nodes);
  for (int r = 0; r < all.ranks(); ++r) holders_[values_of<std::int64_t>(all.of(r))[0]].push_back(r);
  // This memory has the rows of a fetch and of the next one, those that other ranks get, and row numbers and slots.
  constexpr double kNumbers = 104;
  const double copies = comm.size() > 1 ? 3 : 2, record = static_cast<double>(mean_record_);
  fetch_rows_ = std::clamp<std::int64_t>(
      in_file_ ? static_cast<std::int64_t>(static_cast<double>(nodes) * memory / (copies * record + kNumbers))
               : comm.size() * (kReadBytes / mean_record_),
      1, rows_);
  const std::string share = human_bytes(bytes / static_cast<double>(nodes));
  if (in_file_)
    log::info("rows: stay in the file, because a share of ", share, " exceeds the ", human_bytes(memory),
              " of a node's memory for them; ", fetch_rows_, " of ", rows_, " are read ahead at a time");
  else
    log::info("rows: divided over ", nodes, " nodes, ", share, " of ", human_bytes(bytes), " on each");
}

std::vector<RowArray> RowSource::place(std::int64_t n, const std::vector<RowColumn>& columns,
                                       const std::filesystem::path& path) {
  rows_ = n;
  mean_record_ = 0;
  columns_.clear();
  for (const RowColumn& column : columns) {
    const std::int64_t units = column.starts.empty() ? n : column.starts[n],
                       values = units > 0 ? column.shape.size() / units : 0;
    const RowSizes sizes = {.unit_bytes = values * static_cast<std::int64_t>(size_bytes(column.dtype)),
                            .starts = column.starts.empty() ? nullptr : column.starts.data()};
    columns_.push_back({.of = {}, .sizes = sizes});
    mean_record_ += n > 0 ? padded((sizes.bytes(0, n) + n - 1) / n) : 0;
  }
  choose_layout();
  if (in_file_) {
    stamp_ = std::make_unique<Stamp>(memory_.reads_copy() ? std::filesystem::path() : path);
  } else {
    const auto node = static_cast<std::size_t>(whole() ? 0 : world_->node());
    first_ = whole() ? 0 : begin_of(node);
    count_ = whole() ? n : begin_of(node + 1) - first_;
  }
  std::vector<RowArray> arrays;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const RowColumn& of = columns[c];
    Column& column = columns_[c];
    RowArray& array = arrays.emplace_back();
    array.shape_ = of.shape;
    array.first_ = first_;
    array.count_ = count_;
    array.sizes_ = column.sizes;
    array.start_ = column.sizes.start(first_);
    array.source_ = this;
    array.column_ = c;
    array.held_ = Tensor(nullptr, of.dtype, {});
    if (in_file_) {
      column.of = of;
      continue;
    }
    array.held_ = memory_.place(of.dtype, units_of(of.shape, column.sizes.units(first_, count_)),
                                [&](const Tensor& to) { of.read(first_, to); });
    column.held = static_cast<const std::byte*>(array.held_.raw());
  }
  return arrays;
}

void RowSource::add_rows(const Column& column, std::int64_t begin, std::int64_t end, Hash64& hash) {
  const std::int64_t bytes = column.sizes.bytes(begin, end - begin);
  if (!in_file_)
    return hash.add(column.held + column.sizes.bytes(first_, begin - first_), static_cast<std::size_t>(bytes));
  const std::int64_t most = std::max<std::int64_t>(1, (end - begin) * kReadBytes / bytes);
  RowBlock block;
  const Stopwatch whole;
  for (std::int64_t first = begin; first < end; first += most) {
    const std::byte* values = block.read(column.of, column.sizes, first, std::min(most, end - first));
    hash.add(values, block.bytes.size());
  }
  const double bytes_per_s = static_cast<double>(bytes) / std::max(whole.seconds(), 1e-9);
  constexpr std::int64_t kTrials = 16;
  const Stopwatch trials;
  for (std::int64_t i = 0; i < kTrials; ++i)
    block.read(column.of, column.sizes, begin + (end - begin) * i / kTrials, 1);
  const double passes = trials.seconds() / kTrials * bytes_per_s;
  gap_bytes_ = std::clamp<std::int64_t>(std::llround(passes), gap_bytes_, kReadBytes);
}

std::uint64_t RowSource::hash(const RowArray& array, std::uint64_t seed, std::int64_t first, std::int64_t count) {
  const Column& column = columns_[array.column_];
  const std::int64_t end = count < 0 ? rows_ : first + count;
  if (whole())
    return memory_.hash([&] {
      return hash64(column.held + column.sizes.bytes(0, first),
                    static_cast<std::size_t>(column.sizes.bytes(first, end - first)), seed);
    });
  Hash64 hash(seed);
  for (std::size_t h = 0; h < holders_.size(); ++h) {  // each holder continues the hash of the previous one
    const std::int64_t from = std::max(first, begin_of(h)), to = std::min(end, begin_of(h + 1));
    if (from >= to || column.sizes.bytes(from, to - from) == 0) continue;
    const int root = holders_[h].front();
    world_->together(kLoading, [&] {
      if (world_->rank() == root) add_rows(column, from, to, hash);
    });
    std::vector<std::byte> state = hash.state();
    world_->communicator().broadcast(state, root, "hash of the rows");
    hash.take(state);
  }
  return hash.value();
}

void RowSource::start(std::vector<std::int64_t> rows) {
  if (request_ || reader_.joinable()) finish();  // an evaluation interrupts the reading ahead
  wanted_ = std::move(rows);
  std::erase_if(wanted_, [&](std::int64_t row) { return row >= first_ && row < first_ + count_; });
  std::ranges::sort(wanted_);
  wanted_.erase(std::ranges::unique(wanted_).begin(), wanted_.end());
  Communicator& comm = world_->communicator();
  const auto ranks = static_cast<std::size_t>(comm.size());
  pieces_.assign(ranks, {});
  auto begin = wanted_.begin();
  for (std::size_t h = 0; h < holders_.size(); ++h) {
    const auto end = std::lower_bound(begin, wanted_.end(), begin_of(h + 1));
    const std::vector<int>& serving = holders_[h];
    const int rank = serving[static_cast<std::size_t>(world_->node_rank()) % serving.size()];
    pieces_[rank] = std::as_bytes(std::span(begin, end));
    begin = end;
  }
  asked_ = comm.all_to_all(pieces_, "numbers of rows");
  sizes_.assign(ranks, 0);
  for (std::size_t r = 0; r < ranks; ++r) sizes_[r] = record_bytes(pieces_[r]);
  incoming_.resize(std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0}));
  served_.resize(record_bytes(asked_.bytes));
  ++fetches_;
  if (in_file_) {
    reader_ = helper_thread([this] {
      try {
        serve_from_file();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
    return;
  }
  serve_from_memory();
  const std::vector<std::span<const std::byte>> reply = replies();
  request_ = comm.start_all_to_all(reply, sizes_, incoming_, "rows");
}

std::vector<std::span<const std::byte>> RowSource::replies() const {
  std::vector<std::span<const std::byte>> to;
  std::size_t begin = 0;
  for (int r = 0; r < asked_.ranks(); ++r) {
    to.push_back(std::span(served_).subspan(begin, record_bytes(asked_.of(r))));
    begin += to.back().size();
  }
  return to;
}

void RowSource::serve_from_memory() {
  const auto rows = values_of<std::int64_t>(asked_.bytes);
  constexpr std::size_t kAhead = 16;  // rows are scattered in memory, so that they are prefetched
  std::byte* to = served_.data();
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const Column& column : columns_) {
      const auto at = [&](std::int64_t row) { return column.held + column.sizes.bytes(first_, row - first_); };
      const auto bytes = [&](std::int64_t row) { return column.sizes.bytes(row, 1); };
      if (i + kAhead < rows.size())
        for (std::int64_t next = rows[i + kAhead], line = 0; line < bytes(next); line += 64)
          __builtin_prefetch(at(next) + line);
      std::copy_n(at(rows[i]), bytes(rows[i]), to);
      to += padded(bytes(rows[i]));
    }
}

void RowSource::serve_from_file() {
  stamp_->require_same();
  const auto rows = values_of<std::int64_t>(asked_.bytes);
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!std::ranges::is_sorted(rows))
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return rows[a] < rows[b]; });
  std::vector<std::int64_t> records;
  for (std::int64_t at = 0; const std::int64_t row : rows)
    records.push_back(std::exchange(at, at + offset(row, columns_.size())));
  RowBlock block;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    for (std::size_t i = 0, end = 0; i < order.size(); i = end) {
      const std::int64_t first = rows[order[i]];
      std::int64_t after = first + 1;  // past the last row of the read
      for (end = i + 1; end < order.size(); ++end) {
        const std::int64_t next = rows[order[end]];
        if (next > after && column.sizes.bytes(after, next - after) > gap_bytes_) break;
        if (next >= after && column.sizes.bytes(first, next + 1 - first) > kReadBytes) break;
        after = next + 1;
      }
      const std::byte* from = block.read(column.of, column.sizes, first, after - first);
      traffic_.read += static_cast<double>(block.bytes.size());
      for (std::size_t k = i; k < end; ++k) {
        const std::int64_t row = rows[order[k]];
        std::copy_n(from + column.sizes.bytes(first, row - first), column.sizes.bytes(row, 1),
                    served_.data() + records[order[k]] + offset(row, c));
      }
    }
  }
  stamp_->require_same();
}

void RowSource::finish() {
  const Stopwatch waiting;
  if (in_file_) {
    reader_.join();
    if (failure_) std::rethrow_exception(failure_);
    if (world_->size() == 1)
      incoming_.swap(served_);
    else
      world_->communicator().all_to_all_known(replies(), sizes_, incoming_, "rows");
  } else {
    request_->wait();
    request_.reset();
  }
  traffic_.waited_s += waiting.seconds();
  traffic_.rows += std::ssize(wanted_);
  traffic_.received += static_cast<double>(incoming_.size());
  fetched_.swap(incoming_);
  slots_.assign(std::bit_ceil(2 * wanted_.size() + 1), {});
  std::int64_t at = 0;
  for (const std::span<const std::byte> piece : pieces_)
    for (const std::int64_t row : values_of<std::int64_t>(piece)) {
      std::size_t slot = slot_of(row, slots_.size());
      while (slots_[slot].row >= 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {row, at};
      at += offset(row, columns_.size());
    }
}

const std::byte* RowSource::fetched(std::int64_t row, std::size_t column) const {
  std::size_t slot = slots_.empty() ? 0 : slot_of(row, slots_.size());
  while (!slots_.empty() && slots_[slot].row != row && slots_[slot].row >= 0) slot = (slot + 1) & (slots_.size() - 1);
  require(!slots_.empty() && slots_[slot].row == row, "reading row ", row, ": this rank has not fetched it");
  return fetched_.data() + slots_[slot].at + offset(row, column);
}

}  // namespace lockstep
