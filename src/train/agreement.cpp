#include "lockstep/train/agreement.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "lockstep/base/hash.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

void require_same(World& world, const char* what, const std::string& mine, const char* remedy) {
  if (world.size() == 1) return;
  const std::vector<std::string> all = world.communicator().all_gather_text(mine, what);
  const std::vector<std::string> hosts = world.communicator().all_gather_text(world.host(), "host names");
  world.together("comparing the ranks", [&] {
    for (std::size_t r = 1; r < all.size(); ++r) {
      require_usage(all[r] == all[0], "rank ", r, " (", hosts[r], ") has another ", what, " than rank 0 (", hosts[0],
                    "): ", all[r], ", not ", all[0], "; ", remedy);
    }
  });
}

void require_same_architecture(World& world) {
  utsname system{};
  ::uname(&system);
  require_same(world, "processor architecture", system.machine,
               "their results may differ in the last bits; start all ranks on processors of the same architecture");
}

std::string program_hash() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  if (!in) return "unknown";
  std::vector<char> block(std::size_t{1} << 20);
  std::uint64_t hash = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0)
    hash = hash64(block.data(), static_cast<std::size_t>(in.gcount()), hash);
  return hex64(hash);
}

void require_same_program(World& world) {
  if (world.size() == 1) return;
  require_same_architecture(world);
  require_same(world, "program", program_hash(), "start the same file on every rank");
}

bool same_on_all_ranks(World& world, std::uint64_t hash) {
  if (world.size() == 1) return true;
  std::uint64_t range[2] = {hash, ~hash};
  world.communicator().all_reduce(std::span<std::uint64_t>(range), ReduceOp::max, "comparison of hashes");
  return range[0] == ~range[1];
}

std::string odd_ranks(World& world, const char* what, std::uint64_t hash) {
  const std::vector<std::string> all = world.communicator().all_gather_text(hex64(hash), "hashes");
  const std::vector<std::string> hosts = world.communicator().all_gather_text(world.host(), "host names");
  std::map<std::string, std::vector<std::size_t>> holders;  // by hash
  for (std::size_t r = 0; r < all.size(); ++r) holders[all[r]].push_back(r);
  const auto majority = std::max_element(
      holders.begin(), holders.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const bool tie = std::any_of(holders.begin(), holders.end(), [&](const auto& h) {
    return h.first != majority->first && h.second.size() == majority->second.size();
  });
  std::string ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (tie || all[r] != majority->first)
      ranks += join(ranks.empty() ? "" : ", ", r, " (", hosts[r], ", hash ", all[r], ")");
  return tie ? join("the ", what, " of the ranks differ: ranks ", ranks,
                    "; there is no majority; memory or processor fault on one of these hosts")
             : join("the ", what, " of rank ", ranks, " are not those of the other ranks (hash ", majority->first,
                    "): memory or processor fault there");
}

void require_same_weights(World& world, std::uint64_t hash, std::int64_t step) {
  if (same_on_all_ranks(world, hash)) return;
  const std::string found = odd_ranks(world, "weights", hash);
  world.together("comparing the ranks' weights", [&] {
    throw Error(Fault::internal, join("step ", step, ": ", found, "; resume from the last checkpoint"));
  });
}

unsigned flags_of_all(Communicator& comm, unsigned mine) {
  if (comm.size() == 1) return mine;
  return static_cast<unsigned>(comm.all_reduced(std::uint64_t{mine}, ReduceOp::bit_or, "step flags"));
}

}  // namespace lockstep
