// A training of the toy model that goes wrong on purpose, for programs/faults_test.cpp: fault_training RUN_DIR FAULT
// RANK [lockstep train options ...]. In step 23 that rank is killed, stopped or late; flips a bit of its weights, of
// the summed gradient or of the optimizer's state, once or each time it computes the step; fails to write files; or
// waits for its disk forever. After `stop-full` no other rank can write files. `fault_training RUN_DIR replay 0 ...`
// compares all steps with the chain.
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
#include <utility>
#include <vector>

#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/proof/proof.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/sharded_program.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/toy_task.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kStep = 23;
std::atomic<bool> disk_hangs = false;

void flip_a_bit(const Tensor& tensor) { static_cast<std::uint32_t*>(tensor.raw())[1] ^= 1u << 20; }

void full_disk() {
  const rlimit none{16, 16};
  setrlimit(RLIMIT_FSIZE, &none);
}

/// The toy model, of which one rank meets its fault in a step.
class FaultyModel final : public test::ToyTask {
 public:
  FaultyModel(std::string fault, bool guilty) : ToyTask(DType::f32, 600), fault_(std::move(fault)), guilty_(guilty) {}
  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    if (fault_ == "stop-full" && shard.step == kStep && !guilty_) full_disk();
    if (faulty_in(shard.step)) {
      done_ = fault_ != "flip-always";
      if (fault_ == "kill") raise(SIGKILL);
      if (fault_.starts_with("stop")) raise(SIGSTOP);
      if (fault_ == "late") std::this_thread::sleep_for(std::chrono::hours(1));
      if (fault_.starts_with("flip")) flips_ = true;
      if (fault_ == "disk") full_disk();
      if (fault_ == "hanging-disk") disk_hangs = true;
    }
    return ToyTask::loss(tape, shard);
  }
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
  bool faulty_in(std::int64_t step) const { return guilty_ && step == kStep && !done_; }
  const std::string& fault() const { return fault_; }
  /// Whether a bit must flip now.
  bool take_flip() { return std::exchange(flips_, false); }

 private:
  std::string fault_;
  bool guilty_;
  mutable bool done_ = false, flips_ = false;
};

/// ShardedProgram, with the model's bits flipped around its update.
class FaultyProgram final : public ShardedProgram {
 public:
  FaultyProgram(World& world, const RunConfig& config, FaultyModel& model, int threads)
      : ShardedProgram(world, config, model, threads), model_(model) {}

 protected:
  void prepare_update() override {
    flips_ = model_.take_flip();
    if (flips_ && model_.fault() == "flip-gradient") flip_a_bit(gradient());
  }
  void update_more(double /*lr*/, Ema* /*average*/) override {
    if (flips_ && model_.fault() == "flip-optimizer") flip_a_bit(state().optimizers[0].optimizer->state()[0].value);
    if (flips_ && (model_.fault() == "flip" || model_.fault() == "flip-always"))
      flip_a_bit(model_.params().at("w2").value);
  }

 private:
  FaultyModel& model_;
  bool flips_ = false;
};

std::unique_ptr<TrainingProgram> FaultyModel::make_program(World& world, const RunConfig& config, int threads) {
  return std::make_unique<FaultyProgram>(world, config, *this, threads);
}

}  // namespace

/// Replaces the system's function.
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
    RunLog log;
    Trainer trainer(world, config, model);
    if (argv[2] == std::string("replay")) {
      const Replayed found = trainer.replay(ProofChain::read(dir / kProofFile), trainer.last_step());
      if (world.rank() == 0)
        log::info(found.links, " links agree, the last of step ", found.agreed, "; then differs: ", found.difference);
      return found.difference.empty() ? 0 : 1;
    }
    std::filesystem::path checkpoint;
    std::vector<CheckpointFolder::Rejected> rejected;
    if (world.rank() == 0) checkpoint = CheckpointFolder(dir).newest_whole(rejected);
    checkpoint = world.communicator().broadcast_text(checkpoint.string(), 0, "checkpoint's name");
    if (!checkpoint.empty()) trainer.resume(checkpoint);
    if (world.rank() == 0) log::info("begins at step ", trainer.state().step);
    return trainer.run(log, dir) == Outcome::interrupted ? kExitInterrupted : kExitDone;
  });
}
