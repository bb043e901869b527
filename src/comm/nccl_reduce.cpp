#include "nccl_reduce.hpp"

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/base/stopwatch.hpp"

namespace lockstep {

namespace {

class NcclReduce final : public GpuReduce {
 public:
  NcclReduce(Communicator& comm, Device device, double timeout_s) : timeout_s_(timeout_s) {
    const Stream own(device);  // makes the GPU this thread's
    ncclUniqueId id = {};
    ncclResult_t made = ncclSuccess;
    if (comm.rank() == 0) made = ncclGetUniqueId(&id);
    require(comm.agree(made == ncclSuccess, "NCCL's id"), "starting NCCL: rank 0 got no id: ", ncclGetErrorString(made),
            hint());
    comm.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, "NCCL's id");
    // Not blocking: a rank that never comes must not hold the others past the deadline.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    under_way_ = "its start";
    finish(ncclCommInitRankConfig(&nccl_, comm.size(), id, comm.rank(), &config));
  }

  ~NcclReduce() override {
    if (nccl_ != nullptr) ncclCommAbort(nccl_);  // nothing is under way after wait(); a failed one must not hang here
  }

  void all_reduce(const Stream& stream, void* out, const void* in, std::int64_t count, GpuElement element,
                  const char* what) override {
    under_way_ = what;
    finish(ncclAllReduce(in, out, static_cast<std::size_t>(count), element == GpuElement::f64 ? ncclDouble : ncclFloat,
                         ncclSum, nccl_, static_cast<cudaStream_t>(stream.native())));
  }

  void wait(const Stream& stream) override {
    const Stopwatch watch;
    for (;;) {
      const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream.native()));
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady)
        throw Error(Fault::internal, join("waiting for ", under_way_, ": ", cudaGetErrorString(state)));
      check_async(watch);
    }
  }

 private:
  static const char* hint() { return "; run again with NCCL_DEBUG=INFO"; }

  /// A call that does not block may still be in progress when it returns.
  void finish(ncclResult_t state) {
    const Stopwatch watch;
    while (state == ncclInProgress) {
      ncclCommGetAsyncError(nccl_, &state);
      if (state == ncclInProgress) give_up_after(watch);
    }
    if (state != ncclSuccess) fail(state);
  }

  void check_async(const Stopwatch& watch) {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(nccl_, &state);
    if (state != ncclSuccess && state != ncclInProgress) fail(state);
    give_up_after(watch);
  }

  /// Past the first milliseconds a waiting rank leaves its core to others.
  void give_up_after(const Stopwatch& watch) {
    const double waited = watch.seconds();
    if (timeout_s_ > 0 && waited > timeout_s_) {
      abort();
      throw Error(Fault::internal, join("NCCL, ", under_way_, ": no answer from the other ranks in ", timeout_s_,
                                        " s (dist.timeout): one of them is late, or gone", hint()));
    }
    if (waited > 0.005) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  [[noreturn]] void fail(ncclResult_t state) {
    const std::string said = ncclGetErrorString(state);
    abort();
    throw Error(Fault::internal, join("NCCL, ", under_way_, ": ", said, hint()));
  }

  void abort() {
    if (nccl_ != nullptr) ncclCommAbort(nccl_);
    nccl_ = nullptr;
  }

  double timeout_s_;
  ncclComm_t nccl_ = nullptr;
  const char* under_way_ = "";
};

}  // namespace

std::unique_ptr<GpuReduce> make_nccl_reduce(Communicator& comm, Device device, double timeout_s) {
  return std::make_unique<NcclReduce>(comm, device, timeout_s);
}

}  // namespace lockstep
