#include "apps/lockstep/commands.hpp"

namespace lockstep::apps {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "train a model on all ranks together", run_train},
      {"folds", "cross-validate: train and test all folds of subjects, one per rank", run_folds},
      {"sweep", "search for the best values of some keys: many trainings at once", run_sweep},
      {"eval", "evaluate a checkpoint on the training, validation or test samples", run_eval},
      {"status", "state of runs: running or not, step, time left, last checkpoint, owner, starts", run_status},
      {"compare", "results of runs as a table, with intervals over seeds and paired tests", run_compare},
      {"predict", "apply a trained model to states, users, puzzles or windows of signals", run_predict},
      {"jacobian", "Jacobian, tangent linear and adjoint of an emulator at given states", run_jacobian},
      {"verify", "compare this program with a reference file", run_verify},
      {"replay", "recompute steps of a proved run and compare them with its chain of hashes", run_replay},
      {"plan", "memory, largest batch, checkpoint size and time of a run, before it starts", run_plan},
      {"bench", "speed of training, prediction and Jacobians on this allocation, and where the time goes", run_bench},
      {"comm-test", "correctness, latency and bandwidth of the ranks' communication on this allocation", run_comm_test},
      {"info", "build, devices and ranks, or the contents of a file", run_info},
      {"export",
       "write a trained network for other programs: safetensors, ONNX; emulators also lsem, HDF5, TorchScript",
       run_export},
      {"import", "make a checkpoint from weights of another program: .safetensors, .npz, .pt", run_import},
      {"checkpoint", "verify, compare and merge checkpoints", run_checkpoint},
      {"help", "list the commands or the options of one; write manual pages and docs/options.md", run_help},
  };
  return kCommands;
}

}  // namespace lockstep::apps
