#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/device/event.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

namespace {

/// One rank, its device and its communicator.
struct Rank {
  int rank, ranks;
  ncclComm_t comm;
  Stream stream;
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }
};

/// Runs f as every rank of a communicator, each in a thread with its own device, or all with `shared_device`. Returns
/// the ranks' error messages.
std::vector<std::string> as_ranks(int ranks, const std::function<void(Rank&)>& f, int shared_device = -1) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::string> complaints(to_size(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Rank rank{r, ranks, nullptr, Stream({DeviceKind::cuda, shared_device < 0 ? r : shared_device})};
      try {
        const ncclResult_t started = ncclCommInitRankConfig(&rank.comm, ranks, id, r, nullptr);
        require(started == ncclSuccess, ncclGetErrorString(started));
        f(rank);
        rank.stream.synchronize();
      } catch (const Error& e) {
        complaints[to_size(r)] = e.what();
      }
      if (rank.comm) ncclCommDestroy(rank.comm);
    });
  for (auto& thread : threads) thread.join();
  return complaints;
}

template <class T = float>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>((rank + 1) * static_cast<int>(i % 1000));
  return x;
}

}  // namespace

TEST_SUITE("cuda_host.nccl") {
  TEST_CASE_TEMPLATE("sums over threads with a device each are right, also in several pieces and in place", T, float,
                     double) {
    constexpr ncclDataType_t kType = std::is_same_v<T, double> ? ncclDouble : ncclFloat;
    for (const int ranks : {1, 2, 4})
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{200000}}) {
        std::vector<std::vector<T>> sums(to_size(ranks));
        const auto complaints = as_ranks(ranks, [&](Rank& r) {
          DeviceArray<T> x(values_of<T>(r.rank, count), r.rank);
          for (int twice = 0; twice < 2; ++twice)
            ncclAllReduce(x.data(), x.data(), count, kType, ncclSum, r.comm, r.native());
          sums[to_size(r.rank)] = x.read();
        });
        for (const auto& complaint : complaints) CHECK(complaint == "");
        for (const auto& sum : sums)
          for (std::size_t i = 0; i < count; ++i)
            REQUIRE(sum[i] == static_cast<T>(ranks * ranks * (ranks + 1) / 2 * static_cast<int>(i % 1000)));
      }
  }

  TEST_CASE("messages of any length between ranks, grouped, arrive whole") {
    for (const int ranks : {2, 3}) {
      const auto size_of = [](int from, int to) { return to_size((3 * from + to) % 5) * 17001; };
      const auto complaints = as_ranks(ranks, [&](Rank& r) {
        std::vector<DeviceArray<float>> out, in;
        for (int other = 0; other < ranks; ++other) {
          out.emplace_back(std::vector<float>(std::max<std::size_t>(1, size_of(r.rank, other)),
                                              static_cast<float>(10 * r.rank + other)),
                           r.rank);
          in.emplace_back(std::vector<float>(std::max<std::size_t>(1, size_of(other, r.rank)), -1.0F), r.rank);
        }
        ncclGroupStart();
        for (int other = 0; other < ranks; ++other) {
          if (other == r.rank) continue;
          const auto o = to_size(other);
          ncclSend(out[o].data(), size_of(r.rank, other), ncclFloat, other, r.comm, r.native());
          ncclRecv(in[o].data(), size_of(other, r.rank), ncclFloat, other, r.comm, r.native());
        }
        ncclGroupEnd();
        for (int other = 0; other < ranks; ++other) {
          if (other == r.rank) continue;
          const std::vector<float> got = in[to_size(other)].read();
          const bool none = size_of(other, r.rank) == 0;
          for (const float x : got)
            require(x == (none ? -1.0F : static_cast<float>(10 * other + r.rank)), "a wrong value");
        }
      });
      for (const auto& complaint : complaints) CHECK(complaint == "");
    }
  }

  TEST_CASE("arrays of several pieces are gathered in the order of ranks") {
    constexpr std::size_t kCount = 70000;
    const auto complaints = as_ranks(3, [&](Rank& r) {
      const DeviceArray<float> x(values_of(r.rank, kCount), r.rank);
      DeviceArray<float> gathered(3 * kCount, r.rank);
      ncclAllGather(x.data(), gathered.data(), kCount, ncclFloat, r.comm, r.native());
      const auto all = gathered.read();
      for (int from = 0; from < 3; ++from) {
        const auto first = all.begin() + from * static_cast<std::ptrdiff_t>(kCount);
        require(std::vector<float>(first, first + kCount) == values_of(from, kCount), "wrong elements of rank ", from);
      }
    });
    for (const auto& complaint : complaints) CHECK(complaint == "");
  }

  TEST_CASE("two processes as ranks get the right sum") {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    const auto be = [&](int rank) {
      const Stream stream({DeviceKind::cuda, rank});
      ncclComm_t comm;
      if (ncclCommInitRankConfig(&comm, 2, id, rank, nullptr) != ncclSuccess) return false;
      DeviceArray<float> x(values_of(rank, 100000), rank);
      ncclAllReduce(x.data(), x.data(), 100000, ncclFloat, ncclSum, comm, static_cast<cudaStream_t>(stream.native()));
      const auto sum = x.read();
      ncclCommDestroy(comm);
      return sum[99] == 297;
    };
    const pid_t child = fork();
    if (child == 0) _exit(be(1) ? 0 : 1);
    CHECK(be(0));
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }

  TEST_CASE("ranks that call different collectives get an error, and so do two ranks on one device") {
    const auto different = as_ranks(2, [&](Rank& r) {
      DeviceArray<float> x(100, r.rank);
      const ncclResult_t result =
          ncclAllReduce(x.data(), x.data(), r.rank == 0 ? 100 : 99, ncclFloat, ncclSum, r.comm, r.native());
      require(result == ncclSuccess, ncclGetErrorString(result));
    });
    for (const auto& complaint : different) {
      CHECK(complaint.find("ncclAllReduce of 100 elements") != std::string::npos);
      CHECK(complaint.find("ncclAllReduce of 99 elements") != std::string::npos);
    }
    for (const auto& complaint : as_ranks(
             2, [](Rank&) {}, 1))
      CHECK(complaint.find("NCCL: ranks 0 and 1 both use cuda:1") != std::string::npos);
  }

  TEST_CASE("memory of the host, or of another device, is an error") {
    const auto complaints = as_ranks(2, [&](Rank& r) {
      std::vector<float> host(10);
      const DeviceArray<float> x(10, r.rank), other(10, 1 - r.rank);
      require(ncclAllReduce(host.data(), x.data(), 10, ncclFloat, ncclSum, r.comm, r.native()) == ncclInvalidArgument,
              "host");
      require(ncclAllReduce(x.data(), other.data(), 10, ncclFloat, ncclSum, r.comm, r.native()) == ncclInvalidArgument,
              "other");
      require(ncclAllReduce(x.data(), x.data(), 17, ncclFloat, ncclSum, r.comm, r.native()) == ncclInvalidArgument,
              "size");
    });
    for (const auto& complaint : complaints) CHECK(complaint == "");
  }

  TEST_CASE("a missing rank leaves the stream busy, and the others can abort") {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const Stream stream({DeviceKind::cuda, 0});
    ncclComm_t comm;
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    DeviceArray<float> x(10);
    const auto native = static_cast<cudaStream_t>(stream.native());
    CHECK(ncclAllReduce(x.data(), x.data(), 10, ncclFloat, ncclSum, comm, native) == ncclSuccess);
    const Event end(stream.device());
    end.record(stream);
    CHECK_FALSE(end.passed());
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm, &state);
    CHECK(state == ncclInProgress);
    ncclCommAbort(comm);
    CHECK(end.passed());
  }
}
