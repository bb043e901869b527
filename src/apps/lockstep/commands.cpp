#include "apps/lockstep/commands.hpp"

namespace lockstep::apps {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "train a model on all ranks together", run_train},
      {"eval", "the figures of a checkpoint on the validation or test samples", run_eval},
      {"predict", "apply a trained emulator to states", run_predict},
      {"jacobian", "Jacobians, tangents and adjoints of a trained emulator at given states", run_jacobian},
      {"verify", "compare this program with a reference file", run_verify},
      {"plan", "memory, largest batch, checkpoint size and time of a run, before it starts", run_plan},
      {"bench", "how fast training, prediction and Jacobians are on this allocation, and where the time goes",
       run_bench},
      {"comm-test", "correctness, latency and bandwidth of the ranks' communication on this allocation", run_comm_test},
      {"info", "build, devices and ranks, or what a file holds", run_info},
      {"export", "write a trained emulator for other programs: lsem, HDF5, ONNX, TorchScript, safetensors", run_export},
      {"checkpoint", "evidence about checkpoints: verify, diff; merge", run_checkpoint},
      {"help", "what the commands are; manual pages and docs/options.md", run_help},
  };
  return kCommands;
}

}  // namespace lockstep::apps
