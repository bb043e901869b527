#include "streams.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "error.hpp"
#include "ledger.hpp"
#include "memory.hpp"

namespace {
/// Starts a piece of work. The returned function advances it until it is complete.
using Begin = std::function<cuda_host::Progress()>;
}  // namespace

/// The contents of a graph: the work of all its streams in the order of submission.
struct CUgraph_st {
  bool priorities = false;  // whether some work is of a stream with a priority
  std::vector<Begin> work;
  std::vector<cuda_host::Uses> uses;
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

namespace {
/// A capture in progress: its streams and the work submitted to them.
struct Capture {
  cudaStream_t origin = nullptr;
  CUgraph_st graph;
  std::set<cudaStream_t> unjoined;  // streams with work that the origin has not yet waited for
  bool invalid = false;
};
}  // namespace

struct CUstream_st {
  struct Task {
    Begin begin;
    cuda_host::Progress progress;  // set once it has started
  };
  int device = 0;
  int number = 0;  // default streams have negative numbers
  int priority = 0;
  bool blocking = true;  // whether it is ordered with the default stream of its device
  cuda_host::Clock clock;
  std::recursive_mutex mutex;
  std::deque<Task> waiting;
  std::uint64_t submitted = 0, awaited = 0;  // pieces of work, and how many of them the host has waited for
  bool advancing = false;                    // by the thread that holds the mutex
  double busy_ms = 0;                        // simulated time of the work done
  std::optional<cuda_host::Failure> failure;
  std::shared_ptr<Capture> capture;
};

struct CUevent_st {
  struct Record {
    cudaStream_t stream = nullptr;
    std::shared_ptr<Capture> capture;
    cuda_host::Clock clock;
    std::shared_ptr<bool> done = std::make_shared<bool>(true);
    std::uint64_t submitted = 0;                                  // to the stream, before it
    std::shared_ptr<double> at_ms = std::make_shared<double>(0);  // CUstream_st::busy_ms when it happened
  };
  Record last;
  bool timed = true;
};

namespace cuda_host {

namespace {

thread_local int device = 0;
thread_local std::vector<std::shared_ptr<Capture>> captures;  // begun by this thread

std::atomic<bool>& late() {
  static std::atomic<bool> is = [] {
    const char* when = std::getenv("LOCKSTEP_CUDA_HOST_STREAMS");
    return when && std::strcmp(when, "late") == 0;
  }();
  return is;
}

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
  std::map<int, CUstream_st> defaults;
  int made = 0;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

CUstream_st& resolve(cudaStream_t stream) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  if (stream) {
    require(s.all.contains(stream), cudaErrorInvalidResourceHandle, "using a stream that does not exist");
    return *stream;
  }
  CUstream_st& own = s.defaults[device];
  own.device = device;
  own.number = -1 - device;
  return own;
}

/// Runs the submitted work of the stream until something must be waited for. Returns whether nothing is left. A failure
/// is stored until the stream is next queried, because the caller may be unrelated to it.
bool advance(CUstream_st& stream) {
  const std::unique_lock lock(stream.mutex, std::try_to_lock);
  if (!lock || stream.advancing) return false;  // another thread, or an outer call of this one, is advancing it
  const struct Advancing {
    explicit Advancing(CUstream_st& s) : stream(s) { stream.advancing = true; }
    ~Advancing() { stream.advancing = false; }
    CUstream_st& stream;
  } scope(stream);
  while (!stream.waiting.empty()) {
    CUstream_st::Task& task = stream.waiting.front();
    try {
      if (!task.progress) task.progress = task.begin();
      if (!task.progress()) return false;
    } catch (const Failure& failure) {
      if (!stream.failure) stream.failure = failure;
    }
    stream.waiting.pop_front();
  }
  return true;
}

/// Advances the stream and reports its failures.
///
/// errors   Failure of the submitted work
bool advance_or_fail(CUstream_st& stream) {
  const bool done = advance(stream);
  std::optional<Failure> failure;
  if (done) {
    const std::lock_guard lock(stream.mutex);
    failure = std::exchange(stream.failure, std::nullopt);
  }
  if (failure) throw *failure;
  return done;
}

std::vector<cudaStream_t> all_streams() {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  std::vector<cudaStream_t> all(s.all.begin(), s.all.end());
  for (auto& [number, stream] : s.defaults) all.push_back(&stream);
  return all;
}

/// Waits until `done` returns true. Meanwhile advances all streams, because `done` may depend on them, or on other
/// threads and processes.
void wait_until(auto&& done) {
  for (int tries = 0; !done(); ++tries) {
    advance_all();
    if (tries > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::this_thread::yield();
  }
}

/// Tells the ledger that the host has waited for the first `submitted` pieces of work of the stream.
void has_waited(CUstream_st& stream, std::uint64_t submitted) {
  if (submitted > stream.awaited && ledger_is_kept()) note_wait(submitted == stream.submitted);
  stream.awaited = std::max(stream.awaited, submitted);
}

/// Records that the host knows all work of the stream to have run.
void host_has_waited(CUstream_st& stream) {
  has_waited(stream, stream.submitted);
  join(host_clock(), stream.clock);
  forget_uses(stream.number);
}

void drain(CUstream_st& stream) {
  wait_until([&] { return advance_or_fail(stream); });
  host_has_waited(stream);
}

/// Orders the default stream with the device's blocking streams, in both directions.
void join_default(CUstream_st& stream) {
  if (stream.number >= 0 && !stream.blocking) return;
  for (const cudaStream_t other : all_streams())
    if (other != &stream && other->device == stream.device && (stream.number < 0 ? other->blocking : other->number < 0))
      join(stream.clock, other->clock);
}

void order(CUstream_st& stream, const Uses& uses) {
  join_default(stream);
  note_uses(stream.number, stream.clock, uses);
}

void give(cudaStream_t handle, Uses uses, Begin begin) {
  require_devices();
  CUstream_st& stream = resolve(handle);
  if (uses.kernel == nullptr && !uses.ranges.empty() && !uses.of_graph)
    begin = [uses, begin = std::move(begin)] {
      if (ledger_is_kept()) note_work(uses);
      return begin();
    };
  if (stream.capture) {
    stream.capture->graph.work.push_back(std::move(begin));
    stream.capture->graph.uses.push_back(std::move(uses));
    if (stream.priority != 0) stream.capture->graph.priorities = true;
    if (&stream != stream.capture->origin) stream.capture->unjoined.insert(&stream);
    return;
  }
  {
    const std::lock_guard lock(stream.mutex);
    order(stream, uses);
    if (uses.kernel != nullptr || !uses.ranges.empty()) {
      ++stream.submitted;
      if (ledger_is_kept()) note_launch();
    }
    stream.waiting.push_back({std::move(begin), {}});
  }
  if (!late()) advance_or_fail(stream);
}

}  // namespace

bool streams_run_late() { return late(); }
void run_streams_late(bool wanted) { late() = wanted; }

int current_device() { return device; }
int device_of(cudaStream_t stream) { return resolve(stream).device; }
bool is_capturing(cudaStream_t stream) { return resolve(stream).capture != nullptr; }
std::string name(cudaStream_t stream) {
  const CUstream_st& s = resolve(stream);
  return stream ? text("stream ", s.number, " of cuda:", s.device) : text("the default stream of cuda:", s.device);
}

void refuse_while_capturing(const char* doing) {
  if (captures.empty()) return;
  for (const auto& capture : captures) capture->invalid = true;
  throw Failure{cudaErrorStreamCaptureUnsupported, text(doing, " while a stream is captured")};
}

void submit(cudaStream_t stream, Uses uses, Work work) {
  give(stream, std::move(uses), [work = std::move(work)] {
    return [&work] {
      work();
      return true;
    };
  });
}
void submit_lasting(cudaStream_t stream, Uses uses, std::function<Progress()> begin) {
  give(stream, std::move(uses), std::move(begin));
}

void pass_time(cudaStream_t stream, double ms) { resolve(stream).busy_ms += ms; }

void advance_all() {
  if (late()) return;  // streams then advance only when the host waits for them
  for (const cudaStream_t stream : all_streams()) advance(*stream);
}

void advance_device(int of) {
  for (const cudaStream_t stream : all_streams())
    if (stream->device == of) advance(*stream);
}

void drain_device(int of) {
  for (const cudaStream_t stream : all_streams())
    if (stream->device == of) drain(*stream);
  close_device_memory();
}

void settle(int of) {
  for (const cudaStream_t stream : all_streams()) {
    if (stream->device != of) continue;  // another device may depend on work that the calling thread submits later
    wait_until([&] { return advance(*stream); });
    host_has_waited(*stream);
  }
  close_device_memory();
}

void settle_others(int mine) {
  const auto settled = [&] {
    Streams& s = streams();
    const std::lock_guard lock(s.mutex);
    return std::all_of(s.all.begin(), s.all.end(), [&](const cudaStream_t stream) {
      if (stream->device == mine) return true;
      const std::unique_lock own(stream->mutex, std::try_to_lock);
      return own && !stream->advancing && stream->waiting.empty();
    });
  };
  static const bool wanted = std::getenv("LOCKSTEP_CUDA_HOST_MEMORY_WAITS") != nullptr;
  if (wanted && !late()) wait_until(settled);
}

namespace {
/// The host's numbers of the devices that this process sees: all, or those that CUDA_VISIBLE_DEVICES names before the
/// first that does not exist.
const std::vector<int>& devices() {
  static const std::vector<int> seen = [] {
    const char* text = std::getenv("LOCKSTEP_CUDA_HOST_DEVICES");
    const int there = text ? std::atoi(text) : 4;
    std::vector<int> numbers;
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) {
      for (int i = 0; i < there; ++i) numbers.push_back(i);
      return numbers;
    }
    for (const char* at = visible;;) {
      char* end = nullptr;
      const long number = std::strtol(at, &end, 10);
      if (end == at || number < 0 || number >= there) return numbers;
      numbers.push_back(static_cast<int>(number));
      if (*end != ',') return numbers;
      at = end + 1;
    }
  }();
  return seen;
}
}  // namespace

int driver_version() {
  const char* version = std::getenv("LOCKSTEP_CUDA_HOST_DRIVER");
  return version ? std::atoi(version) : kRuntimeVersion;
}
int device_count() { return static_cast<int>(devices().size()); }
int number_on_host(int device) { return devices().at(static_cast<std::size_t>(device)); }

}  // namespace cuda_host

using namespace cuda_host;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver_version() < kRuntimeVersion)
    return note({cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"});
  *count = device_count();
  return *count > 0 ? cudaSuccess
                    : note({cudaErrorNoDevice, "LOCKSTEP_CUDA_HOST_DEVICES is 0, or CUDA_VISIBLE_DEVICES names none"});
}
cudaError_t cudaSetDevice(int wanted) {
  return guarded([&] {
    require(wanted >= 0 && wanted < device_count(), cudaErrorInvalidDevice, "using cuda:", wanted, " of ",
            device_count());
    device = wanted;
  });
}
cudaError_t cudaGetDevice(int* current) {
  return guarded([&] { *current = device; });
}
cudaError_t cudaDeviceSynchronize() {
  return guarded([] {
    refuse_while_capturing("cudaDeviceSynchronize");
    drain_device(device);
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return guarded([&] {
    Streams& s = streams();
    const std::lock_guard lock(s.mutex);
    *stream = new CUstream_st;
    (*stream)->device = device;
    (*stream)->number = ++s.made;
    (*stream)->priority = priority;
    (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
    s.all.insert(*stream);
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&] {
    require(stream != nullptr, cudaErrorInvalidResourceHandle, "destroying the default stream");
    drain(resolve(stream));
    Streams& s = streams();
    const std::lock_guard lock(s.mutex);
    s.all.erase(stream);
    delete stream;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return guarded([&] {
    CUstream_st& stream = resolve(handle);
    refuse_while_capturing("cudaStreamSynchronize");
    drain(stream);
    close_device_memory();
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{.last = {}, .timed = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return guarded([&] {
    CUstream_st& stream = resolve(handle);
    event->last = {&stream, stream.capture, stream.clock, std::make_shared<bool>(stream.capture != nullptr),
                   stream.submitted};
    if (stream.capture) return;  // an edge of the graph, whose order is the order of calls
    submit(handle, {.name = "cudaEventRecord", .ranges = {}},
           [done = event->last.done, at = event->last.at_ms, &stream] {
             *done = true;
             *at = stream.busy_ms;
           });
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first, cudaEvent_t last) {
  return guarded([&] {
    for (const cudaEvent_t event : {first, last}) {
      require(event->timed && event->last.stream != nullptr, cudaErrorInvalidValue,
              "cudaEventElapsedTime: an event was not recorded, or created with cudaEventDisableTiming");
      require(*event->last.done, cudaErrorNotReady, "cudaEventElapsedTime: an event has not happened");
    }
    *ms = static_cast<float>(*last->last.at_ms - *first->last.at_ms);
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return guarded([&] {
    CUstream_st& stream = resolve(handle);
    const CUevent_st::Record record = event->last;
    if (record.capture) {
      require(!stream.capture || stream.capture == record.capture, cudaErrorStreamCaptureUnsupported,
              "waiting in one capture for an event of another");
      if (!stream.capture) {
        stream.capture = record.capture;
        record.capture->unjoined.insert(&stream);
      }
      if (&stream == record.capture->origin) record.capture->unjoined.erase(record.stream);
      return;
    }
    join(stream.clock, record.clock);
    if (stream.capture || *record.done) return;
    submit_lasting(handle, {.name = "cudaStreamWaitEvent", .ranges = {}}, [record] {
      return [record] {
        if (!*record.done) advance(*record.stream);
        return *record.done;
      };
    });
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&] {
    refuse_while_capturing("cudaEventSynchronize");
    require(!event->last.capture, cudaErrorStreamCaptureUnsupported, "waiting for an event of a captured stream");
    const CUevent_st::Record record = event->last;
    wait_until([&] { return *record.done || advance_or_fail(*record.stream) || *record.done; });
    if (record.stream) has_waited(*record.stream, record.submitted);
    join(host_clock(), record.clock);
    close_device_memory();
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return guarded([&] {
    const CUevent_st::Record record = event->last;
    if (!*record.done) advance_or_fail(*record.stream);
    require(*record.done, cudaErrorNotReady, "an event has not happened");
    if (record.stream) has_waited(*record.stream, record.submitted);
    join(host_clock(), record.clock);
    close_device_memory();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  return guarded([&] {
    require(handle != nullptr, cudaErrorStreamCaptureUnsupported, "capturing the default stream");
    CUstream_st& stream = resolve(handle);
    require(!stream.capture, cudaErrorIllegalState, "capturing a stream that is being captured");
    stream.capture = std::make_shared<Capture>();
    stream.capture->origin = handle;
    captures.push_back(stream.capture);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return guarded([&] {
    *graph = nullptr;
    const auto capture = resolve(handle).capture;
    require(capture != nullptr, cudaErrorIllegalState, "ending the capture of a stream that is not captured");
    require(capture->origin == handle, cudaErrorStreamCaptureUnmatched, "ending a capture on a stream that joined it");
    std::erase(captures, capture);
    {
      Streams& s = streams();
      const std::lock_guard lock(s.mutex);
      for (const cudaStream_t stream : s.all)
        if (stream->capture == capture) stream->capture = nullptr;
    }
    require(!capture->invalid, cudaErrorStreamCaptureInvalidated,
            "ending a capture in which something that cannot be captured was called");
    require(capture->unjoined.empty(), cudaErrorStreamCaptureUnjoined,
            "ending a capture before its origin has waited for ", capture->unjoined.size(), " other streams in it");
    *graph = new CUgraph_st(std::move(capture->graph));
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return guarded([&] {
    const auto& capture = resolve(stream).capture;
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return guarded([&] {
    // The runtime accepts it, but then the work has the priority of the launching stream.
    require(!graph->priorities || (flags & cudaGraphInstantiateFlagUseNodePriority) != 0, cudaErrorNotSupported,
            "a graph of streams with priorities without cudaGraphInstantiateFlagUseNodePriority");
    *executable = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return guarded([&] {
    Uses all;
    all.name = "a graph";
    all.of_graph = true;
    for (const Uses& uses : executable->graph->uses)
      all.ranges.insert(all.ranges.end(), uses.ranges.begin(), uses.ranges.end());
    submit_lasting(stream, std::move(all), [graph = executable->graph] {
      if (ledger_is_kept()) note_graph(graph->work.size());
      return [graph, at = std::size_t{0}, progress = Progress()]() mutable {
        for (; at < graph->work.size(); ++at, progress = {}) {
          if (!progress) progress = graph->work[at]();
          if (!progress()) return false;
        }
        return true;
      };
    });
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
