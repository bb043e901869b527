#include "compressed_sum.hpp"

#include <algorithm>
#include <array>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/error.hpp"
#include "mpi_comm.hpp"

namespace lockstep {

namespace {
constexpr int kFirstTag = 64;          // lower tags belong to other point-to-point traffic
constexpr std::uint64_t kTags = 8192;  // pairs of tags; the standard guarantees 32767 tags
}  // namespace

CompressedSum::CompressedSum(MPI_Comm comm, std::span<float> values, std::uint64_t sequence, const char* what,
                             std::size_t max_message_bytes, Buffers buffers)
    : comm_(comm),
      values_(values),
      what_(what),
      b_(std::move(buffers)),
      tag_(kFirstTag + 2 * static_cast<int>(sequence % kTags)),
      message_values_(max_message_bytes / sizeof(std::uint16_t)) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  const auto others = static_cast<std::size_t>(size_ - 1);
  const Chunk mine = chunk(rank_);
  b_.out.resize(values.size());
  b_.in.resize(std::max(others * mine.count, values.size()));  // first all contributions to my chunk, then the sums
  b_.scatter.clear();
  b_.gather.clear();
  b_.sends.clear();
  for (int shift = 1; shift < size_; ++shift) {
    const int from = (rank_ + size_ - shift) % size_;
    const auto slot = static_cast<std::size_t>(from < rank_ ? from : from - 1);
    receive(b_.in.data() + slot * mine.count, mine.count, from, tag_, b_.scatter);
  }
  for (int shift = 1; shift < size_; ++shift) {
    const int to = (rank_ + shift) % size_;
    const Chunk p = chunk(to);
    std::transform(values.begin() + p.begin, values.begin() + p.begin + p.count, b_.out.begin() + p.begin, to_bf16);
    send(b_.out.data() + p.begin, p.count, to, tag_);
  }
}

void CompressedSum::receive(std::uint16_t* into, std::size_t count, int from, int tag,
                            std::vector<MPI_Request>& requests) const {
  for (std::size_t first = 0; first < count; first += message_values_)
    check_mpi(MPI_Irecv(into + first, static_cast<int>(std::min(message_values_, count - first)), MPI_UINT16_T, from,
                        tag, comm_, &requests.emplace_back(MPI_REQUEST_NULL)),
              join("compressed sum '", what_, "'"));
}

void CompressedSum::send(const std::uint16_t* values, std::size_t count, int to, int tag) {
  for (std::size_t first = 0; first < count; first += message_values_)
    check_mpi(MPI_Isend(values + first, static_cast<int>(std::min(message_values_, count - first)), MPI_UINT16_T, to,
                        tag, comm_, &b_.sends.emplace_back(MPI_REQUEST_NULL)),
              join("compressed sum '", what_, "'"));
}

CompressedSum::Chunk CompressedSum::chunk(int rank) const {
  const auto n = values_.size(), r = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(size_);
  return {n * r / ranks, n * (r + 1) / ranks - n * r / ranks};
}

bool CompressedSum::test() {
  const auto all_done = [&](std::span<MPI_Request> requests) { return complete(requests, "compressed sum", what_); };
  if (stage_ == Stage::scattering) {
    if (!all_done(b_.scatter)) return false;
    add_up();
    send_sum();
    stage_ = Stage::gathering;
  }
  if (stage_ == Stage::gathering) {
    if (!all_done(b_.gather) || !all_done(b_.sends)) return false;
    take_sums();
    stage_ = Stage::done;
  }
  return true;
}

void CompressedSum::add_up() {
  constexpr std::size_t kBlock = 1024;
  std::array<float, kBlock> sum;
  const Chunk mine = chunk(rank_);
  float* own = values_.data() + mine.begin;
  for (std::size_t first = 0; first < mine.count; first += kBlock) {
    const std::size_t count = std::min(kBlock, mine.count - first);
    std::fill_n(sum.begin(), count, 0.0F);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        for (std::size_t i = 0; i < count; ++i) sum[i] += own[first + i];
        continue;
      }
      const std::uint16_t* theirs = b_.in.data() + static_cast<std::size_t>(r < rank_ ? r : r - 1) * mine.count + first;
      for (std::size_t i = 0; i < count; ++i) sum[i] += from_bf16(theirs[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t rounded = to_bf16(sum[i]);
      b_.out[mine.begin + first + i] = rounded;  // no send uses this chunk of b_.out
      own[first + i] = from_bf16(rounded);
    }
  }
}

void CompressedSum::send_sum() {
  const Chunk mine = chunk(rank_);
  for (int shift = 1; shift < size_; ++shift) {
    const int from = (rank_ + size_ - shift) % size_, to = (rank_ + shift) % size_;
    const Chunk theirs = chunk(from);
    receive(b_.in.data() + theirs.begin, theirs.count, from, tag_ + 1, b_.gather);
    send(b_.out.data() + mine.begin, mine.count, to, tag_ + 1);
  }
}

void CompressedSum::take_sums() {
  const Chunk mine = chunk(rank_);
  const auto take = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values_[i] = from_bf16(b_.in[i]);
  };
  take(0, mine.begin);
  take(mine.begin + mine.count, values_.size());
}

}  // namespace lockstep
