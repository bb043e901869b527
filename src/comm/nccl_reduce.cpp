#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/deadline.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/device/cuda_check.hpp"

namespace lockstep {

namespace {

/// A high-priority stream beside the main stream, and the two events that order them.
class SideStream {
 public:
  SideStream() {
    int least = 0, greatest = 0;
    gpu::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading the stream priorities");
    gpu::check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "creating a stream for NCCL");
    for (cudaEvent_t* event : {&reached_, &done_})
      gpu::check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "creating an event for NCCL");
  }
  ~SideStream() {
    cudaEventDestroy(reached_);
    cudaEventDestroy(done_);
    cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  /// Makes later work of this stream wait for the work enqueued on `main` so far.
  void follow(cudaStream_t main) const { order(stream_, reached_, main); }
  /// Makes later work of `main` wait for the work enqueued on this stream so far.
  void be_followed_by(cudaStream_t main) const { order(main, done_, stream_); }
  cudaStream_t native() const { return stream_; }

 private:
  static void order(cudaStream_t later, cudaEvent_t event, cudaStream_t earlier) {
    gpu::check(cudaEventRecord(event, earlier), "ordering two streams");
    gpu::check(cudaStreamWaitEvent(later, event, 0), "ordering two streams");
  }
  cudaStream_t stream_ = nullptr;
  cudaEvent_t reached_ = nullptr, done_ = nullptr;
};

/// Progress of a round of collectives: the stream sets one byte of host memory after each but the last, whose end
/// nothing needs to wait longer for. Unlike events, this works inside graphs.
class Progress {
 public:
  explicit Progress(const Stream& main) : seen_(Buffer::pinned(kMost)), source_(main.device(), kMost + 1) {
    const std::byte one{1};
    copy_bytes(main, source_.data() + kMost, &one, 1);
    main.synchronize();
  }
  void begin_round(cudaStream_t stream) const { set(stream, 0, source_.data(), kMost); }
  void passed(cudaStream_t stream, std::size_t collective) const {
    if (collective < kMost) set(stream, collective, source_.data() + kMost, 1);
  }
  /// Number of completed collectives of the round.
  std::size_t ended() const {
    const volatile std::byte* seen = seen_.data();
    std::size_t n = 0;
    while (n < kMost && seen[n] != std::byte{0}) ++n;
    return n;
  }

 private:
  static constexpr std::size_t kMost = 1024;  ///< collectives beyond these are not tracked
  void set(cudaStream_t stream, std::size_t at, const std::byte* from, std::size_t count) const {
    gpu::check(cudaMemcpyAsync(seen_.data() + at, from, count, cudaMemcpyDeviceToHost, stream),
               "recording the progress of collectives");
  }
  Buffer seen_;
  Buffer source_;  ///< zeros followed by a one
};

/// Owns an NCCL communicator. After an error it is aborted, because destroying it may hang. Otherwise the ranks finalize
/// it together: none frees what another still reads (NVIDIA/nccl#863). Graphs that contain its collectives must be
/// destroyed first.
struct Handle {
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (comm == nullptr) return;
    if (aborting.joinable()) {
      aborting.join();
    } else if (std::uncaught_exceptions() == 0 && finalized()) {
      ncclCommDestroy(comm);
    } else {
      limit_abort("");
      ncclCommAbort(comm);
    }
  }
  /// Whether all ranks have ended their use of the communicator in time.
  bool finalized() const {
    ncclResult_t state = ncclCommFinalize(comm);
    for (const Stopwatch watch; state == ncclInProgress && watch.seconds() < longest_abort_s;) {
      ncclCommGetAsyncError(comm, &state);
      if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return state == ncclSuccess;
  }
  /// After an error, collectives in progress may never end, and a call that frees memory waits for them. So the abort
  /// begins here: it ends them at once, but returns only when no graph contains a collective any more. If it has not
  /// returned after longest_abort_s, the process ends. No other call of the communicator may follow.
  void fail(const std::string& why) {
    failure = why;
    limit_abort(" because of: " + why);
    aborting = helper_thread([this] { ncclCommAbort(comm); });
  }
  void limit_abort(const std::string& reason) {
    deadline.emplace(longest_abort_s, who, "this rank was ending" + reason);
    deadline->at("ncclCommAbort");
  }
  ncclComm_t comm = nullptr;
  double longest_abort_s = 20;
  std::string who, failure;
  std::optional<Deadline> deadline;
  std::jthread aborting;
};

class NcclReduce final : public GpuReduce {
 public:
  NcclReduce(Communicator& comm, Device device, double timeout_s)
      : timeout_s_(timeout_s),
        rank_(comm.rank()),
        comm_(comm),
        threads_(std::string_view(comm.backend()) == "threads" ? &comm : nullptr),
        main_(device),
        progress_(main_) {
    if (timeout_s > 0) nccl_.longest_abort_s = std::min(nccl_.longest_abort_s, timeout_s);
    nccl_.who = lockstep::join("rank ", rank_, "/", comm.size(), ", ", log::speaker().host);
    // Registering the buffers of a captured step would take an exchange between the ranks, in which a rank whose
    // capture has failed is missing.
    [[maybe_unused]] static const int kept = setenv("NCCL_GRAPH_REGISTER", "0", 0);
    ncclUniqueId id = {};
    ncclResult_t made = ncclSuccess;
    if (comm.rank() == 0) made = ncclGetUniqueId(&id);
    require(comm.agree(made == ncclSuccess, "NCCL's id"),
            "starting NCCL: rank 0 cannot create an id: ", ncclGetErrorString(made), hint());
    comm.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, "NCCL's id");
    // Non-blocking: a rank that never arrives must not hold the others past the deadline.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    finish(ncclCommInitRankConfig(&nccl_.comm, comm.size(), id, comm.rank(), &config), "starting NCCL");
  }

  void all_reduce(const Stream& stream, void* out, const void* in, std::int64_t count, GpuElement element,
                  const char* what) override {
    begin(stream, what);
    launched(ncclAllReduce(in, out, static_cast<std::size_t>(count),
                           element == GpuElement::f64 ? ncclDouble : ncclFloat, ncclSum, nccl_.comm, side_.native()),
             what);
  }

  void all_gather(const Stream& stream, void* out, const void* in, std::size_t size_bytes, const char* what) override {
    begin(stream, what);
    launched(ncclAllGather(in, out, size_bytes, ncclUint8, nccl_.comm, side_.native()), what);
  }

  void exchange(const Stream& stream, std::span<const std::span<std::byte>> from,
                std::span<const std::span<const std::byte>> to, const char* what) override {
    begin(stream, what);
    const auto own = static_cast<std::size_t>(rank_);
    if (!to[own].empty())
      gpu::check(
          cudaMemcpyAsync(from[own].data(), to[own].data(), to[own].size(), cudaMemcpyDeviceToDevice, side_.native()),
          "copying a rank's data for itself");
    ncclResult_t state = ncclGroupStart();
    const auto call = [&](ncclResult_t result) {
      if (state == ncclSuccess && result != ncclInProgress) state = result;
    };
    for (std::size_t r = 0; r < to.size(); ++r) {
      if (r == own) continue;
      const int other = static_cast<int>(r);
      if (!to[r].empty()) call(ncclSend(to[r].data(), to[r].size(), ncclUint8, other, nccl_.comm, side_.native()));
      if (!from[r].empty())
        call(ncclRecv(from[r].data(), from[r].size(), ncclUint8, other, nccl_.comm, side_.native()));
    }
    const ncclResult_t ended = ncclGroupEnd();
    launched(state == ncclSuccess ? ended : state, what);
  }

  void join(const Stream& stream) override {
    if (next_ > 0) side_.be_followed_by(static_cast<cudaStream_t>(stream.native()));
    next_ = 0;
  }

  void wait(const Stream& stream, std::int64_t step) override {
    const Event end(stream.device());
    end.record(stream);
    wait(end, step);
  }

  void wait(const Event& event, std::int64_t step) override {
    const auto passed = [&] {
      try {
        return event.passed();
      } catch (const Error& e) {
        throw Error(Fault::internal, lockstep::join("step ", step, ": ", e.what()));
      }
    };
    require_alive();
    for (const Stopwatch watch; !passed();) {
      ncclResult_t sums = ncclSuccess;
      ncclCommGetAsyncError(nccl_.comm, &sums);
      if (sums != ncclSuccess && sums != ncclInProgress) fail(sums, position(step));
      if (late(watch)) give_up(position(step));
    }
  }

 private:
  static const char* hint() { return "; run again with NCCL_DEBUG=INFO"; }

  /// A capture that ends with an error of NCCL is discarded, and the error is thrown again.
  void require_alive() const {
    if (!nccl_.failure.empty()) throw Error(Fault::internal, nccl_.failure);
  }

  void begin(const Stream& stream, const char* what) {
    require_alive();
    // Ranks as threads: memory calls of one rank may wait for the work of all GPUs, including a collective that the
    // rank has not started yet. So no rank starts one before all are ready for it, or goes on before all have started
    // it (NVIDIA/nccl#48, #613, #744).
    meet(what);
    if (next_ > 0) progress_.passed(side_.native(), next_ - 1);
    side_.follow(static_cast<cudaStream_t>(stream.native()));
    if (next_ == 0) progress_.begin_round(side_.native());
    if (names_.size() <= next_) names_.resize(next_ + 1);
    names_[next_] = what;
  }

  void meet(const char* what) {
    if (threads_ != nullptr) threads_->barrier(what);
  }
  /// Completes the launch of a collective.
  void launched(ncclResult_t state, const char* what) {
    finish(state, what);
    ++next_;
    meet(what);
  }

  /// Completes a non-blocking call, which may return while in progress.
  void finish(ncclResult_t state, const char* what) {
    const Stopwatch watch;
    while (state == ncclInProgress) {
      ncclCommGetAsyncError(nccl_.comm, &state);
      if (state == ncclInProgress && late(watch)) give_up(what);
    }
    if (state != ncclSuccess) fail(state, what);
  }

  /// "step 12, gradient bucket 3 (collective 4 of 7)".
  std::string position(std::int64_t step) const {
    const std::size_t ended = progress_.ended();
    if (names_.empty()) return lockstep::join("step ", step, ", before the first collective");
    return lockstep::join("step ", step, ", ", names_[ended], " (collective ", ended + 1, " of ", names_.size(), ")");
  }

  /// Whether the wait exceeds the deadline. Sleeps after the first milliseconds to yield the CPU.
  bool late(const Stopwatch& watch) const {
    const double waited = watch.seconds();
    if (waited > 0.005) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return timeout_s_ > 0 && waited > timeout_s_;
  }

  [[noreturn]] void give_up(const std::string& doing) {
    end(lockstep::join("NCCL, ", doing, ": no answer from the other ranks in ", timeout_s_,
                       " s (dist.timeout): one of them is late, or gone"),
        true);
  }
  [[noreturn]] void fail(ncclResult_t state, const std::string& doing) {
    end(lockstep::join("NCCL, ", doing, ": ", ncclGetErrorString(state)), false);
  }
  [[noreturn]] void end(const std::string& why, bool late) {
    comm_.wait_failed(why + hint(), late);
    nccl_.fail(why + hint());
    if (late) throw LostRank(Fault::internal, nccl_.failure);
    throw Error(Fault::internal, nccl_.failure);
  }

  double timeout_s_;
  int rank_;
  Communicator& comm_;
  Communicator* threads_;  ///< the ranks' communicator if they are threads of this process, else null
  Stream main_;            ///< makes its GPU current for this thread
  SideStream side_;
  Progress progress_;
  std::vector<const char*> names_;  ///< of the collectives of a round
  std::size_t next_ = 0;            ///< index of the next collective in its round
  Handle nccl_;                     ///< destroyed first: ends work that the streams would wait for
};

}  // namespace

std::unique_ptr<GpuReduce> make_nccl_reduce(Communicator& comm, Device device, double timeout_s) {
  return std::make_unique<NcclReduce>(comm, device, timeout_s);
}

}  // namespace lockstep
