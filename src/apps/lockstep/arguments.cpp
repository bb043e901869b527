#include <map>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"

namespace lockstep::apps {

namespace {

std::string quoted(const Args& args) {
  std::string text;
  for (const auto& arg : args) text += (text.empty() ? "'" : " '") + arg + "'";
  return text.empty() ? "nothing" : text;
}

}  // namespace

bool parse(World& world, Options& options, const Args& args) {
  Communicator& comm = world.communicator();
  if (world.size() > 1) {
    const auto everyone = comm.all_gather_text(quoted(args), "command line");
    world.together("comparing the command lines", [&] {
      require_usage(everyone[static_cast<std::size_t>(world.rank())] == everyone[0], "this rank was started with ",
                    everyone[static_cast<std::size_t>(world.rank())], ", rank 0 with ", everyone[0],
                    "; all ranks need the same arguments");
    });
  }
  std::map<std::string, std::string> files;
  for (const auto& path : Options::config_files(args)) {
    std::string text;
    world.together("reading the configuration", [&] {
      if (world.rank() == 0) text = Options::read_file(path);
    });
    files[path] = comm.broadcast_text(std::move(text), 0, "configuration");
  }
  bool go_on = false;
  world.together("reading the options",
                 [&] { go_on = options.parse(args, [&](const std::string& path) { return files.at(path); }); });
  return go_on;
}

}  // namespace lockstep::apps
