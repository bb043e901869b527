#include <algorithm>
#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/thread_waiting.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep::apps {
namespace {

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
  return command->run(world, args);
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  lockstep::apps::limit_spinning(argv);
  lockstep::H5File::prepare_library();
  try {
    lockstep::World world(&argc, &argv);
    const lockstep::Args args(argv + std::min(argc, 1), argv + argc);
    return world.run([&] { return lockstep::apps::run(world, args); });
  } catch (const lockstep::Error& e) {  // the world itself could not be made
    lockstep::log::error(e.what());
    return static_cast<int>(e.fault());
  } catch (const std::exception& e) {
    lockstep::log::error(lockstep::log::unexpected(e));
    return static_cast<int>(lockstep::Fault::internal);
  }
}
