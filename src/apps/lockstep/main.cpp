#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/standard_streams.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/train/signals.hpp"

namespace lockstep::apps {
namespace {

/// Makes waiting OpenMP threads sleep after microseconds instead of milliseconds, unless OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT is set. Call it first in main(): OpenMP's run-time library reads its environment before main(), so
/// the program executes itself again (same process, same arguments) with the two variables set.
///
/// By default GCC's threads spin for milliseconds at every barrier. That is free on dedicated cores. With one other
/// busy process on the node, a training step of 200 us waits for whole time slices and becomes 30 to 60 times slower;
/// with sleeping threads it only loses the share of that process. The short spin still covers the gap between the steps
/// of an undisturbed run.
void limit_spinning(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string_view(threads) == "1") return;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "200", 1);
  // The real path, since the system names a process after the path that it executes: top and pgrep would see "exe".
  std::error_code failed;
  const std::filesystem::path self = "/proc/self/exe", path = std::filesystem::read_symlink(self, failed);
  if (path.filename().string().starts_with("ld-")) return;  // started as ld.so PROGRAM: that file is not the program
  if (!failed && std::filesystem::equivalent(path, self, failed)) ::execv(path.c_str(), argv);
  ::execv(self.c_str(), argv);  // returns only on failure; the program then runs with the defaults
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  const std::string near = nearest(name, names);
  throw Error(Fault::usage, join("unknown command '", name, "'",
                                 near.empty() ? "; see lockstep help" : "; did you mean " + near + "?"));
}

int run(World& world, Args args) {
  if (args.empty()) {
    run_help(world, {});
    return static_cast<int>(Fault::usage);
  }
  const std::string name = args.front();
  args.erase(args.begin());
  if (name == "--version" || name == "-V" || name == "version") {
    if (world.rank() == 0) std::cout << version_line() << "\n";
    return 0;
  }
  if (name == "--help" || name == "-h") return run_help(world, args);
  const Command* command = nullptr;
  world.together("finding the command", [&] { command = &find_command(name); });
  return command->run(world, with_configuration_of_dataset(std::move(args)));
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  lockstep::open_standard_streams();
  lockstep::apps::limit_spinning(argv);
  lockstep::H5File::prepare_library();
  // A signal while MPI starts asks a training to stop, as later ones do.
  const std::string_view command = argc > 1 ? argv[1] : "";
  std::optional<lockstep::StopSignals> signals;
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  if (command == "train" || command == "folds") signals.emplace();
  try {
    lockstep::World world(&argc, &argv);
    const lockstep::Args args(argv + std::min(argc, 1), argv + argc);
    return world.run([&] {
      const int code = lockstep::end_standard_output(lockstep::apps::run(world, args));
      if (code == lockstep::kExitInterrupted && by_mpirun)
        lockstep::log::info("mpirun now reports exit code 85 as an error: after a clean stop that is expected");
      return code;
    });
  } catch (const std::exception& problem) {  // the world itself could not be made
    const lockstep::Error error = lockstep::log::as_error(problem);
    lockstep::log::error(error.what());
    return static_cast<int>(error.fault());
  }
}
