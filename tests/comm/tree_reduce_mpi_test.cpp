#include "lockstep/comm/tree_reduce.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

namespace {
/// Numbers of very different magnitudes: any other order of addition changes the bits.
template <class T>
std::vector<std::vector<T>> make_shards(std::int64_t shards, std::int64_t n) {
  std::vector<std::vector<T>> all(to_size(shards), std::vector<T>(to_size(n)));
  std::uint64_t state = 88172645463325252ull;
  for (auto& shard : all) {
    for (T& value : shard) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const double size = static_cast<double>(1 << (state % 20)) * 1e-3;
      value = static_cast<T>((static_cast<double>(state >> 11) * 0x1p-52 - 1.0) * size);
    }
  }
  return all;
}

/// The tree by its definition, one vector at a time.
template <class T>
std::vector<T> serial_tree(std::vector<std::vector<T>> shards) {
  for (std::size_t width = 1; width < shards.size(); width *= 2)
    for (std::size_t s = 0; s < shards.size(); s += 2 * width)
      for (std::size_t i = 0; i < shards[s].size(); ++i) shards[s][i] += shards[s + width][i];
  return shards[0];
}

template <class T>
void check_against_serial(std::int64_t shards, std::int64_t n) {
  CAPTURE(shards);
  CAPTURE(n);
  CAPTURE(sizeof(T));
  Communicator& comm = test_world().communicator();
  std::vector<std::vector<T>> all = make_shards<T>(shards, n);
  const std::vector<T> wanted = serial_tree(all);
  const ShardRange mine = shards_of(shards, comm.rank(), comm.size());
  const std::vector<std::span<T>> local(all.begin() + mine.begin, all.begin() + mine.end);
  std::vector<T> sum(to_size(n), T{-1});
  tree_all_reduce(comm, shards, local, std::span<T>(sum), "test");
  CHECK((n == 0 || std::memcmp(sum.data(), wanted.data(), sum.size() * sizeof(T)) == 0));
}
}  // namespace

TEST_SUITE("comm.tree_reduce") {
  TEST_CASE("the bits equal those of the serial tree for any number of ranks") {
    for (const std::int64_t shards : {1, 2, 4, 8, 16, 32}) {
      for (const std::int64_t n : {0, 1, 3, 1023, 1025, 20011}) {  // the last is too long for one all-gather
        check_against_serial<float>(shards, n);
        check_against_serial<double>(shards, n);
      }
    }
  }

  TEST_CASE("vectors summed by threads have the same bits") { check_against_serial<float>(4, 400003); }

  TEST_CASE("a number of shards that is not a power of two is an error on every rank") {
    Communicator& comm = test_world().communicator();
    const ShardRange mine = shards_of(6, comm.rank(), comm.size());
    std::vector<std::vector<float>> shards(to_size(mine.count()), std::vector<float>(3));
    const std::vector<std::span<float>> local(shards.begin(), shards.end());
    std::vector<float> sum(3);
    CHECK_THROWS_AS(tree_all_reduce(comm, 6, local, std::span<float>(sum), "test"), Error);
  }
}
