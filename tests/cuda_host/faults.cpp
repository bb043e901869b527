#include "faults.hpp"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <memory>

#include "block_runner.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "symbols.hpp"

namespace cuda_host {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct sigaction previous[NSIG];

bool writes([[maybe_unused]] const ucontext_t& context) {
#ifdef __x86_64__
  return context.uc_mcontext.gregs[REG_ERR] & 2;
#else
  return false;
#endif
}

void* instruction(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(context.uc_mcontext.pc);
#endif
}

/// Makes the interrupted code continue in `function`, on another stack.
void divert(ucontext_t& context, void (*function)(), std::byte* stack_top) {
#if defined(__x86_64__)
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
  context.uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(stack_top) - 8;  // as after a call
#elif defined(__aarch64__)
  context.uc_mcontext.pc = reinterpret_cast<std::uintptr_t>(function);
  context.uc_mcontext.sp = reinterpret_cast<std::uintptr_t>(stack_top);
#else
#error "the CUDA stand-in supports x86-64 and aarch64"
#endif
}

// Passed from the signal handler to the kernel's own context, where a message may allocate memory.
thread_local struct {
  int signal;
  void* address;
  void* instruction;
  bool write;
} caught;

[[noreturn]] void raise_caught() {
  const char* access = caught.write ? "writes " : "reads ";
  switch (caught.signal) {
    case SIGILL:
      fault(cudaErrorLaunchFailure,
            text("an array index out of its bounds, an access that is not aligned for its type, or a failed assertion",
                 at(caught.instruction)));
    case SIGFPE:
      fault(cudaErrorLaunchFailure, text("an integer division by zero", at(caught.instruction)));
    default:
      break;
  }
  if (in_fiber_guard(caught.address))
    fault(cudaErrorLaunchFailure, text("its stack is full: the local arrays are too large", at(caught.instruction)));
  fault(cudaErrorIllegalAddress, text(access, describe_address(caught.address), at(caught.instruction)));
}

void say(const std::string& message) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, message.data(), message.size());
}

void handle(int signal, siginfo_t* info, void* context_pointer) {
  auto& context = *static_cast<ucontext_t*>(context_pointer);
  const bool memory_fault = signal == SIGSEGV || signal == SIGBUS;
  if (memory_fault && DeviceAccess::granted() && in_device_range(info->si_addr) && open_device_memory(info->si_addr))
    return;
  if (in_kernel()) {
    caught = {signal, info->si_addr, instruction(context), writes(context)};
    return divert(context, raise_caught, emergency_stack_top());
  }
  if (memory_fault && in_device_range(info->si_addr))
    say(text("cuda_host: host code ", writes(context) ? "writes " : "reads ", describe_address(info->si_addr),
             ", but only a device may access it; copy it, or use page-locked memory", at(instruction(context)), "\n"));
  // The instruction runs again and fails again, and then the earlier handler receives the signal.
  sigaction(signal, &previous[signal], nullptr);
}

}  // namespace

void install_fault_handlers() {
  for (const int signal : kSignals) {
    struct sigaction now;
    sigaction(signal, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) continue;
    previous[signal] = now;
    struct sigaction ours = {};
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, &ours, nullptr);
  }
}

void use_signal_stack() {
  constexpr std::size_t kSize = 64 << 10;
  thread_local const auto memory = std::make_unique<std::byte[]>(kSize);
  thread_local bool done = false;
  if (std::exchange(done, true)) return;
  stack_t stack = {};
  stack.ss_sp = memory.get();
  stack.ss_size = kSize;
  sigaltstack(&stack, nullptr);
}

}  // namespace cuda_host
