// A training that goes wrong on purpose, for faults_main: fault_training RUN_DIR FAULT RANK [lockstep train options
// ...]. The model has data of its own; in step 23 that rank is killed, stopped, late, loses a bit of its weights, cannot
// write files any more, or waits for its disk without end.
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/toy_task.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kStep = 23;
std::atomic<bool> disk_hangs = false;

void flip_a_bit(ParamStore& params) {
  auto* word = static_cast<std::uint32_t*>(params.at("w2").value.raw());
  word[1] ^= 1u << 20;
}

void full_disk() {
  const rlimit none{16, 16};
  setrlimit(RLIMIT_FSIZE, &none);
}

/// The toy model, of which one rank meets its fault in a step.
class FaultyModel final : public test::ToyTask {
 public:
  FaultyModel(std::string fault, bool guilty) : ToyTask(DType::f32, 600), fault_(std::move(fault)), guilty_(guilty) {}
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    if (guilty_ && shard.step == kStep && !done_) {
      done_ = true;
      if (fault_ == "kill") raise(SIGKILL);
      if (fault_ == "stop") raise(SIGSTOP);
      if (fault_ == "late") std::this_thread::sleep_for(std::chrono::hours(1));
      if (fault_ == "flip") flip_a_bit(const_cast<FaultyModel*>(this)->params());
      if (fault_ == "disk") full_disk();
      if (fault_ == "hanging-disk") disk_hangs = true;
    }
    return ToyTask::loss(tape, shard);
  }

 private:
  std::string fault_;
  bool guilty_;
  mutable bool done_ = false;
};

}  // namespace

/// In front of the system's own.
extern "C" int fsync(int fd) {
  while (disk_hangs) std::this_thread::sleep_for(std::chrono::seconds(1));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int main(int argc, char** argv) {
  H5File::prepare_library();
  World world(&argc, &argv);
  return world.run([&]() -> int {
    const std::filesystem::path dir = argv[1];
    RunConfig config;
    Options options("fault_training");
    add_options(options, config, "emulator");
    options.parse({argv + 4, argv + argc});
    config.text = options.ini();
    world.configure({.timeout_s = config.dist.timeout});
    FaultyModel model(argv[2], world.rank() == std::stoi(argv[3]));
    Trainer trainer(world, config, model);
    std::filesystem::path checkpoint;
    std::vector<CheckpointFolder::Rejected> rejected;
    if (world.rank() == 0) checkpoint = CheckpointFolder(dir).newest_whole(rejected);
    checkpoint = world.communicator().broadcast_text(checkpoint.string(), 0, "checkpoint's name");
    if (!checkpoint.empty()) trainer.resume(checkpoint);
    if (world.rank() == 0) log::info("begins at step ", trainer.state().step);
    RunLog log;
    return trainer.run(log, dir) == Outcome::interrupted ? kExitInterrupted : kExitDone;
  });
}
