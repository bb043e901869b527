#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/shard.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::fit {

/// Numbers in the memory of a GPU.
class GpuValues {
 public:
  /// The elements [from, to), of which there may be more than before. Earlier elements keep their values.
  Tensor range(Device gpu, std::int64_t from, std::int64_t to);
  const float* data() const { return reinterpret_cast<const float*>(buffer_.data()); }

 private:
  Buffer buffer_;
};

/// Columns in physical units, one after another: x (count, n_in), y (count, n_out), weights (count) in the loss, and
/// identities: count, or none. x and y may be on a GPU, in place of the vectors or as a copy.
struct Columns {
  std::int64_t n_in, n_out;
  std::vector<float> x = {}, y = {}, weights = {};
  std::vector<std::int64_t> ids = {};
  bool on_gpu = false;
  GpuValues gpu_x = {}, gpu_y = {}, gpu_weights = {};
  std::int64_t count() const { return std::ssize(weights); }
  /// Copies x and y to a GPU, unless they are there, and the weights.
  void to_gpu(Device gpu);
  /// Moves x and y to the host, if they are on a GPU alone.
  void to_host(Device gpu);
  void clear() {
    x.clear();
    y.clear();
    weights.clear();
    ids.clear();
    on_gpu = false;
  }
};

/// Columns that follow one another in a batch, and on the rank that has them.
struct Run {
  int rank = 0;
  std::int64_t first = 0, count = 0;
};

/// All columns in the order of their identities, which `sorted` receives. of_rank: the identities of each rank's columns
/// errors  Error (usage): an identity that occurs twice
std::vector<Run> by_identity(const Gathered& of_rank, std::vector<std::int64_t>& sorted);

/// Moves the columns between ranks, so that each has its part of a batch. `from` is empty afterwards. Columns on a GPU
/// stay there if all ranks have their parts already. Collective.
///
/// gpu    of the columns, or the CPU
/// order  all columns of the batch
/// parts  of the batch, of each rank
void move_columns(Communicator& comm, Device gpu, Columns& from, Columns& to, const std::vector<Run>& order,
                  const std::vector<Shard>& parts);

}  // namespace lockstep::fit
