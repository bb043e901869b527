#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "error.hpp"
#include "memory.hpp"
#include "nccl_pipes.hpp"
#include "streams.hpp"

using namespace cuda_host;

namespace {

std::size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat ? 4 : 8; }

/// out_i = sum over ranks, in the order of ranks.
template <class T>
void sum(std::byte* out, const std::vector<const std::byte*>& from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T total = 0;
    for (const std::byte* values : from) {
      T value;
      std::memcpy(&value, values + i * sizeof(T), sizeof value);
      total += value;
    }
    std::memcpy(out + i * sizeof(T), &total, sizeof total);
  }
}

constexpr int kMostRanks = 16;
constexpr std::size_t kPieceBytes = 256 << 10;

enum class Collective : std::uint32_t { all_reduce, all_gather };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather"};

/// The arguments of a collective, which all ranks must agree on.
struct Call {
  Collective collective;
  ncclDataType_t type;
  std::uint64_t count;
  bool captured;  ///< NCCL: a collective property
  bool operator==(const Call&) const = default;
};
std::string describe(const Call& call) {
  return text(kNames[static_cast<int>(call.collective)], " of ", call.count, " elements of type ", call.type,
              call.captured ? ", in a graph" : "");
}

/// Memory shared by the ranks of a communicator. A rank writes one piece of its data, advances its phase, and reads the
/// others' pieces once all have reached that phase. Pieces alternate between two slots: a rank that writes a slot again
/// knows from the others' phases that they have read its first contents.
struct Shared {
  struct Rank {
    alignas(64) std::atomic<std::uint64_t> phase;
    Call calls[2];  // of the pieces
    int device;
    char host[64];
    alignas(64) std::byte pieces[2][kPieceBytes];
  };
  std::atomic<int> joined;
  Rank ranks[kMostRanks];
  Pipe pipes[kMostRanks][kMostRanks];  // from, to
};

/// One rank's end of a communicator. Submitted work keeps it alive.
class Comm {
 public:
  Comm(const ncclUniqueId& id, int ranks, int rank, int device) : ranks_(ranks), rank_(rank), device_(device) {
    require(ranks >= 1 && ranks <= kMostRanks && rank >= 0 && rank < ranks, cudaErrorInvalidValue, "rank ", rank,
            " of ", ranks, ", of at most ", kMostRanks);
    name_.assign(id.internal, strnlen(id.internal, sizeof id.internal));
    const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
    require(file >= 0 && ftruncate(file, sizeof(Shared)) == 0, cudaErrorUnknown, "opening shared memory ", name_);
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    require(memory != MAP_FAILED, cudaErrorUnknown, "mapping shared memory ", name_);
    shared_ = static_cast<Shared*>(memory);
    own().device = number_on_host(device);
    gethostname(own().host, sizeof own().host - 1);
    if (shared_->joined.fetch_add(1) + 1 == ranks) forget_name();
  }
  ~Comm() {
    forget_name();
    munmap(shared_, sizeof(Shared));
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int device() const { return device_; }
  bool aborted() const { return aborted_; }
  void abort() { aborted_ = true; }
  ncclResult_t state() const { return failed_ ? ncclInvalidUsage : everyone_here() ? ncclSuccess : ncclInProgress; }
  const std::string& said() const { return said_; }

  /// NCCL rejects two ranks on one GPU. Call when all ranks have joined.
  void check_devices() {
    for (int other = 0; other < ranks_; ++other) {
      const auto& theirs = shared_->ranks[other];
      if (other != rank_ && theirs.device == own().device && std::strcmp(theirs.host, own().host) == 0)
        fail(text("ranks ", std::min(rank_, other), " and ", std::max(rank_, other), " both use cuda:", device_));
    }
  }
  bool everyone_here() const { return shared_->joined.load() >= ranks_; }
  Pipe& pipe(int from, int to) const { return shared_->pipes[from][to]; }

  void begin_piece(const Call& call, const std::byte* data, std::size_t size) {
    own().calls[phase_ % 2] = call;
    std::memcpy(own().pieces[phase_ % 2], data, size);
    own().phase.store(++phase_, std::memory_order_release);
  }
  bool piece_has_come() const {
    for (int rank = 0; rank < ranks_; ++rank)
      if (shared_->ranks[rank].phase.load(std::memory_order_acquire) < phase_) return false;
    return true;
  }
  std::vector<const std::byte*> pieces() const {
    std::vector<const std::byte*> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(shared_->ranks[rank].pieces[(phase_ - 1) % 2]);
    return all;
  }
  void check_calls(const Call& mine) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const Call& theirs = shared_->ranks[rank].calls[(phase_ - 1) % 2];
      if (theirs != mine)
        fail(text("rank ", rank_, " calls ", describe(mine), ", but rank ", rank, " calls ", describe(theirs)));
    }
  }

 private:
  Shared::Rank& own() const { return shared_->ranks[rank_]; }
  [[noreturn]] void fail(const std::string& why) {
    failed_ = true;
    said_ = why;
    throw Failure{cudaErrorLaunchFailure, "NCCL: " + why};
  }
  void forget_name() {
    if (!name_.empty()) shm_unlink(name_.c_str());
    name_.clear();
  }

  std::string name_;
  int ranks_, rank_, device_;
  Shared* shared_ = nullptr;
  std::uint64_t phase_ = 0;
  std::atomic<bool> aborted_ = false;
  bool failed_ = false;
  std::string said_;
};

/// A collective in progress, processed piece by piece.
class Running {
 public:
  Running(std::shared_ptr<Comm> comm, const Call& call, const void* in, void* out)
      : comm_(std::move(comm)),
        call_(call),
        in_(static_cast<const std::byte*>(in)),
        out_(static_cast<std::byte*>(out)) {}

  bool go_on() {
    if (comm_->aborted()) return true;
    if (!comm_->everyone_here()) return false;
    if (done_ == 0 && !begun_) comm_->check_devices();
    const DeviceAccess access;
    while (!ended_) {
      const std::size_t element = size_of(call_.type), count = std::min(kPieceBytes / element, call_.count - done_);
      if (!begun_) comm_->begin_piece(call_, in_ + done_ * element, count * element);
      begun_ = true;
      if (!comm_->piece_has_come()) return false;
      begun_ = false;
      comm_->check_calls(call_);
      take(count);
      done_ += count;
      ended_ = done_ == call_.count;  // an empty call is one empty piece, so that the ranks still compare their calls
    }
    return true;
  }

 private:
  void take(std::size_t count) {
    const std::size_t element = size_of(call_.type);
    const auto pieces = comm_->pieces();
    if (call_.collective == Collective::all_reduce)
      return (call_.type == ncclFloat ? sum<float> : sum<double>)(out_ + done_ * element, pieces, count);
    for (std::size_t r = 0; r < pieces.size(); ++r)
      std::memcpy(out_ + (r * call_.count + done_) * element, pieces[r], count * element);
  }

  std::shared_ptr<Comm> comm_;
  Call call_;
  const std::byte* in_;
  std::byte* out_;
  std::size_t done_ = 0;  // elements
  bool begun_ = false, ended_ = false;
};

thread_local std::string said_last;
thread_local int groups = 0;

ncclResult_t guarded_nccl(auto&& f) {
  try {
    f();
    return ncclSuccess;
  } catch (const Failure& failure) {
    said_last = failure.message;
    return failure.error == cudaErrorInvalidValue    ? ncclInvalidArgument
           : failure.error == cudaErrorLaunchFailure ? ncclInvalidUsage
                                                     : ncclSystemError;
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Comm> comm;
  bool blocking, finalizing = false;
};

namespace {

/// Checks that the memory of a call is on the communicator's device and large enough.
void check_memory(const char* name, const Comm& comm, const char* what, const void* data, std::size_t size) {
  if (size == 0) return;
  const auto found = find_allocation(data);
  require(found && found->kind == MemoryKind::device && found->device == comm.device(), cudaErrorInvalidValue, name,
          ": ", what, " is at ", describe_address(data), ", not on cuda:", comm.device());
  check_range(text(name, ": ", what, " is").c_str(), data, size);
}
void check_stream(const char* name, const Comm& comm, cudaStream_t stream) {
  require(device_of(stream) == comm.device(), cudaErrorInvalidValue, name,
          ": the communicator is of cuda:", comm.device(), ", but the stream is of cuda:", device_of(stream));
}

/// Messages between two ranks that are submitted together at the end of the group.
struct Asked {
  std::shared_ptr<Comm> comm;
  cudaStream_t stream;
  std::vector<Transfer> transfers;
  Uses uses;
};
thread_local std::vector<Asked> asked;

void begin_asked() {
  for (Asked& a : std::exchange(asked, {})) {
    submit_lasting(a.stream, std::move(a.uses), [comm = a.comm, transfers = std::move(a.transfers)] {
      return [comm, left = transfers]() mutable {
        if (comm->aborted()) return true;
        if (!comm->everyone_here()) return false;
        const DeviceAccess access;
        std::erase_if(left, [](Transfer& t) { return t.go_on(); });
        return left.empty();
      };
    });
  }
}

ncclResult_t ask(bool sends, void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                 cudaStream_t stream) {
  return guarded_nccl([&] {
    const auto& comm = handle->comm;
    const char* name = sends ? "ncclSend" : "ncclRecv";
    check_stream(name, *comm, stream);
    require(peer >= 0 && peer < comm->ranks(), cudaErrorInvalidValue, name, ": rank ", peer, " of ", comm->ranks());
    const std::size_t size = count * size_of(type);
    check_memory(name, *comm, "the message", data, size);
    auto at =
        std::find_if(asked.begin(), asked.end(), [&](const Asked& a) { return a.comm == comm && a.stream == stream; });
    if (at == asked.end()) at = asked.insert(at, {comm, stream, {}, {.name = "ncclSend and ncclRecv", .ranges = {}}});
    Pipe& pipe = sends ? comm->pipe(comm->rank(), peer) : comm->pipe(peer, comm->rank());
    require(std::none_of(at->transfers.begin(), at->transfers.end(),
                         [&](const Transfer& t) { return t.goes_through(pipe); }),
            cudaErrorNotSupported, name, ": a second message between the same ranks in one group");
    if (size > 0) {
      at->transfers.emplace_back(pipe, sends, static_cast<std::byte*>(data), size);
      at->uses.ranges.push_back({data, size, !sends});
    }
    if (groups == 0) begin_asked();
  });
}

ncclResult_t start(Collective collective, const void* in, void* out, std::size_t count, ncclDataType_t type,
                   ncclComm_t handle, cudaStream_t stream) {
  return guarded_nccl([&] {
    const auto& comm = handle->comm;
    const char* name = kNames[static_cast<int>(collective)];
    check_stream(name, *comm, stream);
    const std::size_t in_size = count * size_of(type);
    const std::size_t out_size =
        in_size * (collective == Collective::all_gather ? static_cast<std::size_t>(comm->ranks()) : 1);
    check_memory(name, *comm, "the input", in, in_size);
    check_memory(name, *comm, "the output", out, out_size);
    submit_lasting(stream, {.name = name, .ranges = {{in, in_size, false}, {out, out_size, true}}},
                   [=, comm = comm, call = Call{collective, type, count, is_capturing(stream)}] {
                     auto running = std::make_shared<Running>(comm, call, in, out);
                     return [running] { return running->go_on(); };
                   });
  });
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && !said_last.empty()) return said_last.c_str();
  constexpr const char* kMeanings[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
  return kMeanings[result];
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  *id = {};
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "/lockstep-nccl-%d-%d-%08x", getpid(), made++, random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *handle = nullptr;
  bool in_progress = false;
  const ncclResult_t result = guarded_nccl([&] {
    auto comm = std::make_shared<Comm>(id, ranks, rank, current_device());
    const bool blocking = config == nullptr || config->blocking != 0;
    *handle = new ncclComm{comm, blocking};
    in_progress = !blocking && !comm->everyone_here();
    if (!blocking) return;
    while (!comm->everyone_here()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    comm->check_devices();
  });
  return result == ncclSuccess && in_progress ? ncclInProgress : result;
}
// Complete when no collective is in progress and no graph contains one. See ncclCommGetAsyncError.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalizing = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
// Ends the collectives in progress, and then waits, as NCCL does, until no graph contains one.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  while (std::getenv("LOCKSTEP_CUDA_HOST_ABORT_HANGS")) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!handle) return ncclSuccess;
  const std::shared_ptr<Comm> comm = std::move(handle->comm);
  delete handle;
  comm->abort();
  // The work may touch protected memory, in a thread that blocks all signals.
  sigset_t faults, before;
  sigemptyset(&faults);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaddset(&faults, signal);
  pthread_sigmask(SIG_UNBLOCK, &faults, &before);
  while (comm.use_count() > 1) {
    advance_device(comm->device());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  advance_all();
  *state = comm->finalizing && comm->comm.use_count() > 1 ? ncclInProgress : comm->comm->state();
  if (*state == ncclInvalidUsage) said_last = comm->comm->said();
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--groups > 0) return ncclSuccess;
  return guarded_nccl(begin_asked);
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  return ask(true, const_cast<void*>(in), count, type, to, comm, stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  return ask(false, out, count, type, from, comm, stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum || type == ncclUint8) {
    said_last = "the stand-in's ncclAllReduce only sums, ncclFloat or ncclDouble";
    return ncclInvalidArgument;
  }
  return start(Collective::all_reduce, in, out, count, type, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(Collective::all_gather, in, out, count, type, comm, stream);
}
