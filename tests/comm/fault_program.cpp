// A job that fails on purpose, for faults_main.cpp: fault_program FAULT RANK [THREADS]. It runs ten steps without a
// model; in step 5 the given rank fails. With THREADS, that many threads of one process are the ranks.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/launch.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/comm/world.hpp"

using namespace lockstep;

namespace {
/// Stops all ranks for three times the deadline, like a batch system that suspends a job.
void suspend_all(const std::vector<std::int64_t>& pids) {
  if (fork() != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // meanwhile the others wait in the collective
    return;
  }
  for (const std::int64_t pid : pids) kill(static_cast<pid_t>(pid), SIGSTOP);
  sleep(3);
  for (const std::int64_t pid : pids) kill(static_cast<pid_t>(pid), SIGCONT);
  _exit(0);
}

void fail(const std::string& fault, World& world, std::vector<float>& gradient, const std::vector<std::int64_t>& pids) {
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "kill") raise(SIGKILL);
  if (fault == "pause") std::this_thread::sleep_for(std::chrono::seconds(6));
  if (fault == "late") std::this_thread::sleep_for(std::chrono::hours(1));
  if (fault == "exit") _exit(7);
  if (fault == "suspend") suspend_all(pids);
  if (fault == "count" || fault == "count-checked") gradient.push_back(0);
  if (fault == "throw" || fault == "throw-and-die") throw Error(Fault::data, "reading 'x.h5': checksum does not match");
  if (fault == "all-throw") throw Error(Fault::internal, "the loss is not finite");
  if (fault == "together") {
    world.together("reading", [] { throw Error(Fault::data, "opening 'y.h5': no such file"); });
  }
}

/// Runs ten steps of two sums between GPUs. In step 5 the guilty rank skips the second sum.
int sum_on_gpus(World& world, int guilty) {
  const Device device{DeviceKind::cuda, world.rank()};
  const Stream stream(device);
  constexpr std::int64_t kCount = 100;
  const Buffer memory(device, 2 * kCount * sizeof(float));
  auto *first = reinterpret_cast<float*>(memory.data()), *second = first + kCount;
  const auto gpus = make_gpu_reduce(world.communicator(), device, world.options().timeout_s);
  for (int step = 0; step < 10; ++step) {
    world.at("train", step);
    gpus->all_reduce(stream, first, first, kCount, GpuElement::f32, "gradient bucket 0");
    if (step == 5 && world.rank() == guilty) std::this_thread::sleep_for(std::chrono::hours(1));
    gpus->all_reduce(stream, second, second, kCount, GpuElement::f32, "gradient bucket 1");
    gpus->join(stream);
    gpus->wait(stream, step);
  }
  if (world.rank() == 0) log::info("the job is done");
  return 0;
}

int job(World& world, const std::string& fault, int guilty) {
  WorldOptions options;
  options.timeout_s = fault == "pause" ? 10 : fault == "started" ? 2 : 1;
  options.check_collectives = fault.ends_with("-checked");
  world.configure(options);
  if (fault == "gpu-late") return sum_on_gpus(world, guilty);
  Communicator& comm = world.communicator();
  // An error must not wait for the other ranks to release it.
  if (fault == "share") world.share_on_node(std::size_t{60} << 20);
  const auto held = fault == "throw" ? world.share_on_node(4096) : nullptr;
  std::vector<float> gradient(100, 1.0f);
  std::vector<std::int64_t> pids(static_cast<std::size_t>(comm.size()));
  pids[static_cast<std::size_t>(comm.rank())] = getpid();
  comm.all_reduce(std::span<std::int64_t>(pids), ReduceOp::sum, "process numbers");
  for (int step = 0; step < 10; ++step) {
    world.at("train", step);
    const bool now = step == 5 && (world.rank() == guilty || fault == "all-throw");
    if (now) fail(fault, world, gradient, pids);
    if (step == 5 && fault == "together" && !now) world.together("reading", [] {});
    if (now && fault.starts_with("skip")) continue;
    if (now && fault == "leave") return 0;
    comm.all_reduce(std::span<float>(gradient), ReduceOp::sum, "gradient");
    if (fault == "pause") std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the watchdog looks
    if (fault == "started") {
      // Twice the deadline in total, but never in a single wait: the job must continue.
      if (world.rank() == guilty) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      comm.start_all_reduce(std::span<float>(gradient), "bucket")->wait();
    }
  }
  if (world.rank() == 0) log::info("the job is done");
  return 0;
}
}  // namespace

bool hangs_at_end = false, dies_in_abort = false;

extern "C" int PMPI_Finalize();
extern "C" int PMPI_Abort(void* communicator, int code);
/// Replaces the function of MPI.
extern "C" int MPI_Abort(void* communicator, int code) {
  if (dies_in_abort) _exit(code);
  return PMPI_Abort(communicator, code);
}
/// Replaces the function of MPI.
extern "C" int MPI_Finalize() {
  if (hangs_at_end) std::this_thread::sleep_for(std::chrono::hours(1));
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  const bool guilty_here = argc > 2 && launched_rank() == std::atoi(argv[2]);
  if (guilty_here && argv[1] == std::string("slow-start")) std::this_thread::sleep_for(std::chrono::hours(1));
  dies_in_abort = guilty_here && argv[1] == std::string("throw-and-die");
  hangs_at_end = guilty_here && argv[1] == std::string("slow-end");
  World world(&argc, &argv);
  const std::string fault = argv[1];
  const int guilty = std::atoi(argv[2]), threads = argc > 3 ? std::atoi(argv[3]) : 0;
  return world.run([&] {
    if (threads == 0) return job(world, fault, guilty);
    return run_as_threads(world, threads, [&](World& rank) { return job(rank, fault, guilty); });
  });
}
