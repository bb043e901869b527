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
#include "streams.hpp"

using namespace cuda_host;

namespace {

std::size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat ? 4 : 8; }

/// out_i = sum over ranks, in the order of ranks, of vectors of this length one after another.
template <class T>
void sum(std::byte* out, const std::byte* from, int ranks, std::size_t count) {
  const auto* values = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    T total = 0;
    for (int r = 0; r < ranks; ++r) total += values[static_cast<std::size_t>(r) * count + i];
    reinterpret_cast<T*>(out)[i] = total;
  }
}

constexpr int kMostRanks = 16;

enum class Kind : std::uint32_t { all_reduce, all_gather, message };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclSend or ncclRecv"};

/// The arguments of a call, which all ranks must agree on.
struct Call {
  Kind kind;
  ncclDataType_t type;
  std::uint64_t count;
  bool captured;  ///< NCCL: a collective property
  bool operator==(const Call&) const = default;
};
std::string describe(const Call& call) {
  return text(kNames[static_cast<int>(call.kind)], " of ", call.count, " elements of type ", call.type,
              call.captured ? ", in a graph" : "");
}

/// The channel from one rank to another. A message is sent piece by piece. Room for two: a rank can begin a collective
/// before the others have read its part of the one before.
struct Pipe {
  static constexpr std::size_t kPieces = 2, kBytes = 128 << 10;
  struct Piece {
    Call call;
    alignas(64) std::byte bytes[kBytes];
  };
  alignas(64) std::atomic<std::uint64_t> written;  ///< pieces, by the sender
  alignas(64) std::atomic<std::uint64_t> read;     ///< pieces, by the receiver
  Piece pieces[kPieces];
};

/// Memory shared by the ranks of a communicator, initially zero.
struct Shared {
  struct Rank {
    int device;
    char host[64];
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

  void check_call(int peer, const Call& mine, const Call& theirs) {
    if (theirs != mine)
      fail(text("rank ", rank_, " calls ", describe(mine), ", but rank ", peer, " calls ", describe(theirs)));
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
  std::atomic<bool> aborted_ = false;
  bool failed_ = false;
  std::string said_;
};

/// One end of a message in transfer. An empty one is an empty piece, so that the ranks still compare their calls.
class Transfer {
 public:
  Transfer(Comm& comm, int peer, bool sends, const Call& call, std::byte* data)
      : comm_(&comm), peer_(peer), sends_(sends), call_(call), data_(data), size_(call.count * size_of(call.type)) {}
  bool is(const Comm& comm, int peer, bool sends) const { return comm_ == &comm && peer_ == peer && sends_ == sends; }

  /// Transfers as much as possible without waiting. Returns whether the transfer is complete.
  ///
  /// errors   Failure if the two ranks differ in their calls
  bool go_on() {
    Pipe& pipe = sends_ ? comm_->pipe(comm_->rank(), peer_) : comm_->pipe(peer_, comm_->rank());
    while (!ended_) {
      const std::uint64_t written = pipe.written.load(std::memory_order_acquire);
      const std::uint64_t read = pipe.read.load(std::memory_order_acquire);
      if (sends_ ? written - read == Pipe::kPieces : written == read) return false;
      Pipe::Piece& piece = pipe.pieces[(sends_ ? written : read) % Pipe::kPieces];
      const std::size_t count = std::min(Pipe::kBytes, size_ - done_);
      if (sends_) {
        piece.call = call_;
        std::copy_n(data_ + done_, count, piece.bytes);
        pipe.written.store(written + 1, std::memory_order_release);
      } else {
        comm_->check_call(peer_, call_, piece.call);
        std::copy_n(piece.bytes, count, data_ + done_);
        pipe.read.store(read + 1, std::memory_order_release);
      }
      done_ += count;
      ended_ = done_ == size_;
    }
    return true;
  }

 private:
  Comm* comm_;
  int peer_;
  bool sends_;
  Call call_;
  std::byte* data_;
  std::size_t size_, done_ = 0;
  bool ended_ = false;
};

/// Progress of these transfers, and then of what follows them.
Progress exchange(std::shared_ptr<Comm> comm, std::vector<Transfer> transfers, Work then) {
  return [comm = std::move(comm), left = std::move(transfers), then = std::move(then)]() mutable {
    if (comm->aborted()) return true;
    if (!comm->everyone_here()) return false;
    comm->check_devices();
    const DeviceAccess access;
    std::erase_if(left, [](Transfer& t) { return t.go_on(); });
    if (left.empty()) then();
    return left.empty();
  };
}

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
  for (Asked& a : std::exchange(asked, {}))
    submit_lasting(a.stream, std::move(a.uses),
                   [comm = a.comm, transfers = std::move(a.transfers)] { return exchange(comm, transfers, [] {}); });
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
    require(std::none_of(at->transfers.begin(), at->transfers.end(),
                         [&](const Transfer& t) { return t.is(*comm, peer, sends); }),
            cudaErrorNotSupported, name, ": a second message between the same ranks in one group");
    if (size > 0) {
      const Call call{Kind::message, ncclUint8, size, false};
      at->transfers.emplace_back(*comm, peer, sends, call, static_cast<std::byte*>(data));
      at->uses.ranges.push_back({data, size, !sends});
    }
    if (groups == 0) begin_asked();
  });
}

ncclResult_t start(Kind kind, const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t handle,
                   cudaStream_t stream) {
  return guarded_nccl([&] {
    const auto& comm = handle->comm;
    const char* name = kNames[static_cast<int>(kind)];
    check_stream(name, *comm, stream);
    const std::size_t size = count * size_of(type), all = size * static_cast<std::size_t>(comm->ranks());
    const bool sums = kind == Kind::all_reduce;
    check_memory(name, *comm, "the input", in, size);
    check_memory(name, *comm, "the output", out, sums ? size : all);
    const auto begin = [=, comm = comm, call = Call{kind, type, count, is_capturing(stream)}] {
      auto *mine = static_cast<std::byte*>(const_cast<void*>(in)), *to = static_cast<std::byte*>(out);
      const auto own = std::make_shared<std::vector<std::byte>>(sums ? all : 0);
      std::byte* gathered = sums ? own->data() : to;
      std::vector<Transfer> transfers;
      for (const bool sends : {true, false})  // sends first: a rank that finds another call has told all of its own
        for (int r = 0; r < comm->ranks(); ++r)
          if (r != comm->rank())
            transfers.emplace_back(*comm, r, sends, call, sends ? mine : gathered + static_cast<std::size_t>(r) * size);
      return exchange(comm, std::move(transfers), [=] {
        std::memmove(gathered + static_cast<std::size_t>(comm->rank()) * size, mine, size);
        if (sums) (type == ncclFloat ? sum<float> : sum<double>)(to, own->data(), comm->ranks(), count);
      });
    };
    submit_lasting(stream, {.name = name, .ranges = {{in, size, false}, {out, sums ? size : all, true}}}, begin);
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
  return start(Kind::all_reduce, in, out, count, type, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(Kind::all_gather, in, out, count, type, comm, stream);
}
