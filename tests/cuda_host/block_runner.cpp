#include "block_runner.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "cooperative_groups.h"
#include "error.hpp"
#include "faults.hpp"
#include "ledger.hpp"
#include "memory.hpp"
#include "sanitizer.hpp"
#include "symbols.hpp"
#include "watch.hpp"

namespace {
constexpr std::size_t kSharedGuard = 256;
}
#ifdef __SANITIZE_ADDRESS__
alignas(1024) unsigned char sm_bytes[cuda_host::kMostSharedBytes + kSharedGuard];
#else
alignas(1024) thread_local unsigned char sm_bytes[cuda_host::kMostSharedBytes + kSharedGuard];
#endif

namespace cuda_host {

namespace {

namespace context = boost::context::detail;

// The processor mispredicts a return to another fiber than the one that called. The path of a waiting thread is
// therefore inlined into one function.
#define HOT [[gnu::always_inline]] inline

constexpr int kMostThreads = 1024;
constexpr int kLanes = 32;
constexpr std::size_t kPage = 4096;
/// Each guard page splits a mapping, and Linux allows 65530 of them: only so many fibers have one.
constexpr std::size_t kGuardedFibers = 16384;
constexpr std::size_t kStackBytes = kAddressSanitizer ? 256 << 10 : 64 << 10;

/// A stack that runs the threads of a block one after another. When a thread must wait, it keeps the fiber, and another
/// fiber continues with the next threads.
struct Fiber {
  context::fcontext_t at = nullptr;
  std::byte* stack = nullptr;  ///< lowest usable byte; a guard page may lie below
  std::size_t stack_size = 0;
  int thread = -1;
  void* sanitizer = nullptr;
};

struct Thread {
  enum class State : std::uint8_t { unstarted, running, at_barrier, at_grid_barrier, in_warp, ended };
  State state = State::unstarted;
  WarpOp op = WarpOp::sync;
  unsigned mask = 0;
  uint3 index = {};
  Place place;
  Fiber* fiber = nullptr;
};

struct Warp {
  unsigned waiting = 0;
  std::uint64_t gives[kLanes];
  /// Indexed by the size of the mask: lanes may meet in a smaller mask before the others have read the previous values.
  std::uint64_t given[6][kLanes];
};

/// Lanes of a warp that may continue.
struct Ready {
  int first_thread;
  unsigned lanes;
};

std::string name_of(Thread::State state) {
  switch (state) {
    case Thread::State::at_barrier:
      return "waits in __syncthreads";
    case Thread::State::at_grid_barrier:
      return "waits in a barrier of the grid";
    case Thread::State::in_warp:
      return "waits in a warp operation";
    case Thread::State::ended:
      return "has ended";
    default:
      return "runs";
  }
}
std::string where(const Place& place) {
  const std::string_view file = place.file_name();
  return text(file.substr(file.rfind('/') + 1), ":", place.line());
}
std::string name_of(const uint3& v) { return text("(", v.x, ",", v.y, ",", v.z, ")"); }

/// A block of a cooperative launch that waits for the other blocks. Its threads keep their fibers.
struct WaitingBlock {
  uint3 index = {};
  std::vector<Thread> thread;
  Place place;
  std::vector<std::byte> shared;
  KernelCount::Block count;
};

class Runner {
 public:
  void run(const cudaLaunchConfig_t& config, const Kernel& kernel);

  void let_next_start() { lets_next_start_ = true; }
  void grid_barrier(Place place);
  void barrier(Place place, bool predicate);
  int counted() const { return counted_; }
  const std::uint64_t* exchange(WarpOp op, unsigned mask, std::uint64_t bits, Place place);
  [[noreturn]] void fault(cudaError_t error, const std::string& message);
  bool in_guard(const void* address) const;
  std::byte* emergency_top() const { return emergency_->stack + emergency_->stack_size; }

 private:
  using State = Thread::State;
  static void enter(context::transfer_t from);
  bool run_block(Fiber& first);
  void discard_fibers();
  void run_blocks(std::size_t dynamic_bytes, KernelCount& count);
  bool begin_block();
  WaitingBlock put_aside(std::size_t dynamic_bytes, KernelCount& count);
  bool resume(WaitingBlock& block, std::size_t dynamic_bytes, KernelCount& count);
  void check_grid_barrier(const std::vector<WaitingBlock>& waiting, std::uint64_t blocks);
  void work();
  void wait(State state, Place place);
  void jump(Fiber& to);
  void arrive(context::transfer_t from);
  [[noreturn, gnu::cold]] void fault_of_wait(const std::string& what);
  [[noreturn, gnu::cold]] void fault_of_barrier(Place place);
  [[noreturn, gnu::cold]] void fault_of_exchange(unsigned mask, Place place);
  std::unique_ptr<Fiber> make_fiber();
  void prepare(Fiber& fiber);
  Fiber& idle_fiber();
  bool any_ready() const { return ready_begin_ != ready_end_; }
  Fiber& next_ready();
  int first_thread(int order) const { return reverse_ ? threads_ - 1 - order : order; }
  void poison_shared(std::size_t dynamic_bytes);
  void check_shared(std::size_t dynamic_bytes);
  void number_threads();
  std::string describe(int thread) const;
  std::string name_of_block() const {
    return text("kernel ", function_name(kernel_->function), ", block ", name_of(blockIdx));
  }
  std::string deadlock() const;

  const Kernel* kernel_ = nullptr;
  std::span<const std::span<std::byte>> shared_;
  int threads_ = 0, started_ = 0, ended_ = 0, at_barrier_ = 0, at_grid_barrier_ = 0;
  bool cooperative_ = false, must_wait_ = false, lets_next_start_ = false;
  int predicates_ = 0, counted_ = 0;
  Place barrier_place_, grid_barrier_place_;
  bool reverse_ = false;
  dim3 numbered_ = 0;  ///< the shape of block for which threads have their indices
  std::array<Thread, kMostThreads> thread_;
  std::array<Warp, kMostThreads / kLanes> warp_;
  std::array<Ready, kMostThreads> ready_;  ///< a ring; each thread is in it at most once
  unsigned ready_begin_ = 0, ready_end_ = 0;
  Fiber main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::unique_ptr<Fiber> emergency_;
  Failure failure_{cudaSuccess, {}};
};

constinit thread_local Runner* running = nullptr;  ///< set while a kernel runs on this thread

std::unique_ptr<Fiber> Runner::make_fiber() {
  // Stacks begin at different offsets in a page, so that the top frames of all threads do not share a few cache sets.
  const std::size_t colour = fibers_.size() * 7 % 32 * (kPage / 32);
  const std::size_t mapped = kPage + kStackBytes + kPage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || (fibers_.size() < kGuardedFibers && mprotect(memory, kPage, PROT_NONE) != 0))
    throw Failure{cudaErrorMemoryAllocation, "no memory for the stack of a fiber"};
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = static_cast<std::byte*>(memory) + kPage;
  fiber->stack_size = kStackBytes + colour;
  return fiber;
}

void Runner::prepare(Fiber& fiber) {
  unpoison(fiber.stack, fiber.stack_size);
  fiber.at = context::make_fcontext(fiber.stack + fiber.stack_size, fiber.stack_size, enter);
  fiber.thread = -1;
  fiber.sanitizer = nullptr;
}

Fiber& Runner::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(make_fiber());
    prepare(*fibers_.back());
    return *fibers_.back();
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

/// Called after a jump: records where the fiber that was left continues.
HOT void Runner::arrive(context::transfer_t from) {
  auto* left = static_cast<Fiber*>(from.data);
  left->at = from.fctx;
  const void* bottom = nullptr;
  std::size_t size = 0;
  enter_stack(current_->sanitizer, &bottom, &size);
  if (left == &main_) {
    main_.stack = static_cast<std::byte*>(const_cast<void*>(bottom));
    main_.stack_size = size;
  }
}

HOT void Runner::jump(Fiber& to) {
  Fiber* from = current_;
  current_ = &to;
  leave_stack(&from->sanitizer, to.stack, to.stack_size);
  const auto back = context::jump_fcontext(to.at, from);
  arrive(back);
}

void Runner::enter(context::transfer_t from) {
  Runner& self = *running;
  self.arrive(from);
  self.work();
}

/// The loop of a fiber: starts new threads, then resumes ready ones. Returns to the main fiber at the end of a block or
/// on a deadlock.
void Runner::work() {
  Fiber& self = *current_;
  for (;;) {
    while (started_ < threads_) {
      self.thread = first_thread(started_++);
      Thread& thread = thread_[self.thread];
      thread.state = State::running;
      thread.fiber = &self;
      threadIdx = thread.index;
      thread_number = self.thread;
      if (must_wait_) watched |= kMustWait;
      kernel_->call();
      if ((watched & kMustWait) != 0) fault_of_wait("has ended");
      thread_[self.thread].state = State::ended;
      ++ended_;
      if (any_ready()) break;
    }
    idle_.push_back(&self);
    jump(any_ready() ? next_ready() : main_);
  }
}

HOT Fiber& Runner::next_ready() {
  Ready& ready = ready_[ready_begin_ % kMostThreads];
  const int lane = std::countr_zero(ready.lanes);
  ready.lanes &= ready.lanes - 1;
  if (ready.lanes == 0) ++ready_begin_;
  return *thread_[ready.first_thread + lane].fiber;
}

/// Makes the running thread wait; others run until it is ready.
HOT void Runner::wait(State state, Place place) {
  Fiber& self = *current_;
  Thread& thread = thread_[self.thread];
  if ((watched & kMustWait) != 0) fault_of_wait(text(name_of(state), " at ", where(place)));
  thread.state = state;
  thread.place = place;
  jump(any_ready() ? next_ready() : started_ < threads_ ? idle_fiber() : main_);
  thread.state = State::running;
  threadIdx = thread.index;
  thread_number = self.thread;
}

HOT void Runner::barrier(Place place, bool predicate) {
  if (at_barrier_ == 0) {
    predicates_ = 0;
    barrier_place_ = place;
  }
  if (place.line() != barrier_place_.line()) fault_of_barrier(place);
  predicates_ += predicate;
  if (++at_barrier_ < threads_) return wait(State::at_barrier, place);
  at_barrier_ = 0;
  counted_ = predicates_;
  const int own = current_->thread;
  for (int order = 0, warps = (threads_ + kLanes - 1) / kLanes; order < warps; ++order) {
    const int first = (reverse_ ? warps - 1 - order : order) * kLanes, lanes = std::min(kLanes, threads_ - first);
    unsigned go_on = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    if (own / kLanes == first / kLanes) go_on &= ~(1u << own % kLanes);
    if (go_on != 0) ready_[ready_end_++ % kMostThreads] = {first, go_on};
  }
}

void Runner::grid_barrier(Place place) {
  if (!cooperative_)
    fault(cudaErrorLaunchFailure,
          text("calls a barrier of the grid at ", where(place), ", but the launch is not cooperative"));
  if (at_grid_barrier_++ == 0) grid_barrier_place_ = place;
  if (place.line() != grid_barrier_place_.line())
    fault(cudaErrorLaunchFailure, text("waits in the barrier of the grid at ", where(place),
                                       ", but another thread of its block in that at ", where(grid_barrier_place_)));
  wait(State::at_grid_barrier, place);
}

void Runner::fault_of_wait(const std::string& what) {
  fault(cudaErrorLaunchFailure, text(what, ", before it has waited for the earlier work of its stream"));
}

void Runner::fault_of_barrier(Place place) {
  const auto first =
      std::find_if(thread_.begin(), thread_.end(), [](const Thread& t) { return t.state == State::at_barrier; });
  fault(cudaErrorLaunchFailure,
        text("waits in __syncthreads at ", where(place), ", but ", describe(static_cast<int>(first - thread_.begin())),
             " of its block does so at ", where(barrier_place_)));
}

void Runner::fault_of_exchange(unsigned mask, Place place) {
  const int own = current_->thread, lane = own % kLanes, first = own - lane;
  if (!(mask >> lane & 1))
    fault(cudaErrorLaunchFailure, text("is lane ", lane, ", which the mask 0x", std::hex, mask,
                                       " of its own warp operation at ", where(place), " leaves out"));
  if (threads_ - first < kLanes && mask >> (threads_ - first) != 0)
    fault(cudaErrorLaunchFailure, text("names lanes in the mask 0x", std::hex, mask, std::dec, " at ", where(place),
                                       " that its warp of ", threads_ - first, " threads does not have"));
  const int other = first + std::countr_zero(warp_[own / kLanes].waiting & mask);
  fault(cudaErrorLaunchFailure, text("is in the warp operation at ", where(place), " with mask 0x", std::hex, mask,
                                     std::dec, ", but ", describe(other), " in the one at ",
                                     where(thread_[other].place), " with mask 0x", std::hex, thread_[other].mask));
}

HOT const std::uint64_t* Runner::exchange(WarpOp op, unsigned mask, std::uint64_t bits, Place place) {
  const int own = current_->thread, lane = own % kLanes, first = own - lane;
  Warp& warp = warp_[own / kLanes];
  Thread& thread = thread_[own];
  const unsigned present = threads_ - first >= kLanes ? ~0u : (1u << (threads_ - first)) - 1;
  const unsigned met = warp.waiting & mask;
  const Thread& one = met == 0 ? thread : thread_[first + std::countr_zero(met)];
  thread.op = op;
  thread.mask = mask;
  if (!(mask >> lane & 1) || (mask & ~present) != 0 || one.mask != mask || one.op != op ||
      (met != 0 && one.place.line() != place.line()))
    fault_of_exchange(mask, place);
  std::uint64_t* const given = warp.given[std::bit_width(static_cast<unsigned>(std::popcount(mask))) - 1];
  warp.gives[lane] = bits;
  warp.waiting |= 1u << lane;
  if ((warp.waiting & mask) != mask) {
    wait(State::in_warp, place);
    return given;
  }
  warp.waiting &= ~mask;
  if (mask == ~0u)
    std::memcpy(given, warp.gives, sizeof warp.gives);
  else
    for (unsigned rest = mask; rest != 0; rest &= rest - 1)
      given[std::countr_zero(rest)] = warp.gives[std::countr_zero(rest)];
  if (const unsigned others = mask & ~(1u << lane)) ready_[ready_end_++ % kMostThreads] = {first, others};
  return given;
}

void Runner::fault(cudaError_t error, const std::string& message) {
  failure_ = {error, text(name_of_block(), ", ", describe(current_->thread), " ", message)};
  Fiber* from = current_;
  current_ = &main_;
  leave_stack(nullptr, main_.stack, main_.stack_size);
  context::jump_fcontext(main_.at, from);
  std::abort();  // a failed fiber is never resumed
}

void Runner::number_threads() {
  if (numbered_.x == blockDim.x && numbered_.y == blockDim.y && numbered_.z == blockDim.z) return;
  numbered_ = blockDim;
  int t = 0;
  for (unsigned z = 0; z < blockDim.z; ++z)
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x) thread_[t++].index = {x, y, z};
}

std::string Runner::describe(int thread) const { return text("thread ", name_of(thread_[thread].index)); }

/// Describes a deadlock: no thread can continue, and not all have ended.
std::string Runner::deadlock() const {
  for (int t = 0; t < threads_; ++t) {
    if (thread_[t].state != State::in_warp) continue;
    const int first = t / kLanes * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!(thread_[t].mask >> lane & 1) || (warp_[t / kLanes].waiting >> lane & 1)) continue;
      const Thread& missing = thread_[first + lane];
      return text(describe(t), " waits in the warp operation at ", where(thread_[t].place), " with mask 0x", std::hex,
                  thread_[t].mask, std::dec, " for lane ", lane, ", but ", describe(first + lane), " ",
                  name_of(missing.state), missing.state == State::ended ? "" : " at " + where(missing.place));
    }
  }
  for (int t = 0; t < threads_; ++t) {
    const State state = thread_[t].state;
    if (state != State::at_barrier && state != State::at_grid_barrier) continue;
    for (int other = 0; other < threads_; ++other) {
      const Thread& missing = thread_[other];
      if (missing.state == state) continue;
      return text(describe(t), " ", name_of(state), " at ", where(thread_[t].place), ", but ", describe(other), " ",
                  name_of(missing.state), missing.state == State::ended ? "" : " at " + where(missing.place));
    }
  }
  return "its threads wait for one another";
}

void Runner::poison_shared(std::size_t dynamic_bytes) {
  for (const auto& variable : shared_) std::memset(variable.data(), 0xff, variable.size());
  unpoison(sm_bytes, dynamic_bytes);
  std::memset(sm_bytes, 0xff, dynamic_bytes);
}

void Runner::check_shared(std::size_t dynamic_bytes) {
  if constexpr (kAddressSanitizer) return;
  for (std::size_t i = dynamic_bytes; i < dynamic_bytes + kSharedGuard; ++i) {
    if (sm_bytes[i] == 0xff) continue;
    std::memset(sm_bytes + dynamic_bytes, 0xff, kSharedGuard);
    throw Failure{cudaErrorIllegalAddress, text(name_of_block(), " wrote to byte ", i, " of its ", dynamic_bytes,
                                                " bytes of dynamic shared memory")};
  }
}

/// Starts the block at blockIdx. Returns whether it has ended.
bool Runner::begin_block() {
  started_ = ended_ = at_barrier_ = at_grid_barrier_ = 0;
  ready_begin_ = ready_end_ = 0;
  for (int t = 0; t < threads_; ++t) thread_[t].state = State::unstarted;
  for (int w = 0; w <= (threads_ - 1) / kLanes; ++w) warp_[w].waiting = 0;
  return run_block(idle_fiber());
}

/// Runs the block from this fiber on. Returns whether it has ended; otherwise all of its threads wait for the grid.
bool Runner::run_block(Fiber& first) {
  current_ = &main_;
  jump(first);
  const bool ended = ended_ == threads_;
  if (failure_.error == cudaSuccess && !ended && at_grid_barrier_ < threads_)
    failure_ = {cudaErrorLaunchFailure, text(name_of_block(), ": ", deadlock())};
  if (failure_.error == cudaSuccess) return ended;
  throw std::exchange(failure_, {cudaSuccess, {}});
}

/// The stacks of a failed launch are discarded; fibers start from the top again.
void Runner::discard_fibers() {
  idle_.clear();
  unpoison(emergency_->stack, emergency_->stack_size);
  for (const auto& fiber : fibers_) {
    prepare(*fiber);
    idle_.push_back(fiber.get());
  }
}

/// Keeps what belongs to the block that waits for the grid: its threads and its shared memory.
WaitingBlock Runner::put_aside(std::size_t dynamic_bytes, KernelCount& count) {
  WaitingBlock block{.index = blockIdx,
                     .thread = {thread_.begin(), thread_.begin() + threads_},
                     .place = grid_barrier_place_,
                     .shared = {},
                     .count = count.suspend_block()};
  const auto keep = [&](const void* from, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(from);
    block.shared.insert(block.shared.end(), bytes, bytes + size);
  };
  for (const auto& variable : shared_) keep(variable.data(), variable.size());
  keep(sm_bytes, dynamic_bytes);
  return block;
}

/// Continues a block after the barrier of the grid. Returns whether it has ended.
bool Runner::resume(WaitingBlock& block, std::size_t dynamic_bytes, KernelCount& count) {
  blockIdx = block.index;
  std::copy(block.thread.begin(), block.thread.end(), thread_.begin());
  const std::byte* from = block.shared.data();
  for (const auto& variable : shared_) {
    std::memcpy(variable.data(), from, variable.size());
    from += variable.size();
  }
  std::memcpy(sm_bytes, from, dynamic_bytes);
  started_ = threads_;
  ended_ = at_barrier_ = at_grid_barrier_ = 0;
  ready_begin_ = ready_end_ = 0;
  for (int order = 0, warps = (threads_ + kLanes - 1) / kLanes; order < warps; ++order) {
    const int first = (reverse_ ? warps - 1 - order : order) * kLanes, lanes = std::min(kLanes, threads_ - first);
    warp_[first / kLanes].waiting = 0;
    ready_[ready_end_++ % kMostThreads] = {first, lanes == kLanes ? ~0u : (1u << lanes) - 1};
  }
  count.resume_block(block.count);
  return run_block(next_ready());
}

/// All blocks of the grid must wait at the same line, or none.
void Runner::check_grid_barrier(const std::vector<WaitingBlock>& waiting, std::uint64_t blocks) {
  const WaitingBlock& one = waiting.front();
  const auto fail = [&](const auto&... what) {
    throw Failure{cudaErrorLaunchFailure,
                  text("kernel ", function_name(kernel_->function), ", block ", name_of(one.index),
                       " waits in a barrier of the grid at ", where(one.place), ", but ", what...)};
  };
  if (waiting.size() < blocks) fail(blocks - waiting.size(), " of the ", blocks, " blocks have ended");
  for (const WaitingBlock& other : waiting)
    if (other.place.line() != one.place.line())
      fail("block ", name_of(other.index), " in that at ", where(other.place));
}

void Runner::run(const cudaLaunchConfig_t& config, const Kernel& kernel) {
  static std::mutex one_at_a_time;
  std::unique_lock lock(one_at_a_time, std::defer_lock);
  if constexpr (kAddressSanitizer) lock.lock();  // because shared memory is static then
  use_signal_stack();
  install_fault_handlers();
  if (!emergency_) emergency_ = make_fiber();
  const char* order = std::getenv("LOCKSTEP_CUDA_HOST_ORDER");  // read each time, because tests change it
  const bool reverse = order != nullptr && std::strcmp(order, "reverse") == 0;
  struct Running {
    explicit Running(Runner* self) { running = self; }
    ~Running() {
      running = nullptr;
      watched &= ~kMustWait;  // after a fault
    }
  } const scope(this);
  kernel_ = &kernel;
  cooperative_ = is_cooperative(config);
  must_wait_ = config.waits || starts_early(config);
  lets_next_start_ = false;
  shared_ = shared_variables(kernel.function);
  reverse_ = reverse;
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  threads_ = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  number_threads();
  const DeviceAccess access;
  const std::size_t dynamic = config.dynamicSmemBytes;
  unpoison(sm_bytes, sizeof(sm_bytes));
  std::memset(sm_bytes + dynamic, 0xff, kSharedGuard);
  poison(sm_bytes + dynamic, sizeof(sm_bytes) - dynamic);
  KernelCount count(config, kernel.function, shared_);
  run_blocks(dynamic, count);
  if (lets_next_start_) count.lets_next_start();
}

void Runner::run_blocks(std::size_t dynamic_bytes, KernelCount& count) try {
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  std::vector<WaitingBlock> waiting;
  const auto leave_block = [&](bool ended) {
    if (ended)
      count.end_block();
    else
      waiting.push_back(put_aside(dynamic_bytes, count));
    check_shared(dynamic_bytes);
  };
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t block = reverse_ ? blocks - 1 - i : i, row = block / gridDim.x;
    blockIdx = {static_cast<unsigned>(block % gridDim.x), static_cast<unsigned>(row % gridDim.y),
                static_cast<unsigned>(row / gridDim.y)};
    poison_shared(dynamic_bytes);
    count.begin_block();
    leave_block(begin_block());
  }
  while (!waiting.empty()) {
    check_grid_barrier(waiting, blocks);
    for (WaitingBlock& block : std::exchange(waiting, {})) leave_block(resume(block, dynamic_bytes, count));
  }
} catch (...) {
  discard_fibers();
  throw;
}

bool Runner::in_guard(const void* address) const {
  return std::any_of(fibers_.begin(), fibers_.end(),
                     [&](const auto& fiber) { return address >= fiber->stack - kPage && address < fiber->stack; });
}

[[noreturn, gnu::cold]] void outside_of_kernels(const char* what) {
  std::fprintf(stderr, "cuda_host: %s is called outside of a kernel\n", what);
  std::abort();
}
Runner& runner_for(const char* what) {
  if (!running) outside_of_kernels(what);
  return *running;
}

}  // namespace

namespace {
bool has(const cudaLaunchConfig_t& config, cudaLaunchAttributeID id, int cudaLaunchAttributeValue::*value) {
  const std::span attributes(config.attrs, config.numAttrs);
  return std::ranges::any_of(attributes, [&](const cudaLaunchAttribute& a) { return a.id == id && a.val.*value != 0; });
}
}  // namespace
bool is_cooperative(const cudaLaunchConfig_t& config) {
  return has(config, cudaLaunchAttributeCooperative, &cudaLaunchAttributeValue::cooperative);
}
bool starts_early(const cudaLaunchConfig_t& config) {
  return has(config, cudaLaunchAttributeProgrammaticStreamSerialization,
             &cudaLaunchAttributeValue::programmaticStreamSerializationAllowed);
}

void run(const cudaLaunchConfig_t& config, const Kernel& kernel) {
  thread_local const auto own = std::make_unique<Runner>();
  own->run(config, kernel);
}
void wait_for_earlier_work() { watched &= ~kMustWait; }
void let_next_start() { runner_for("cudaTriggerProgrammaticLaunchCompletion").let_next_start(); }
bool in_kernel() { return running != nullptr; }
void fault(cudaError_t error, const std::string& message) { runner_for("fault").fault(error, message); }
bool in_fiber_guard(const void* address) { return runner_for("in_fiber_guard").in_guard(address); }
std::byte* emergency_stack_top() { return runner_for("emergency_stack_top").emergency_top(); }

void grid_barrier(Place place) { runner_for("a barrier of the grid").grid_barrier(place); }
void block_barrier(Place place) { runner_for("__syncthreads").barrier(place, false); }
int block_count(bool predicate, Place place) {
  Runner& self = runner_for("__syncthreads_count");
  self.barrier(place, predicate);
  return self.counted();
}
const std::uint64_t* warp_exchange(WarpOp op, unsigned mask, std::uint64_t bits, Place place) {
  return runner_for("a warp operation").exchange(op, mask, bits, place);
}
void shuffle_from_outside(unsigned mask, int source, Place place) {
  fault(cudaErrorLaunchFailure, text("shuffles from lane ", source, " at ", where(place), ", which the mask 0x",
                                     std::hex, mask, " leaves out"));
}

}  // namespace cuda_host
