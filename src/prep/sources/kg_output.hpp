#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/prep/kg_raw.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// The options that every graph source shares, and the last step: validation set, graph, file, what was met.
struct KgOutput {
  std::string output, name;
  bool quiet = false, symmetric_upstream = false;
  double valid_fraction = 0;
  std::uint64_t seed = 0;
  int gzip = 0;

  /// `seed_help` says what else the seed decides.
  KgOutput(Options& options, const std::string& seed_help);
  void write(KgSet& set, const std::vector<KgFinding>& findings) const;
};

/// A raw file whole, under the name that messages give it. errors  usage: missing or unreadable
KgText read_kg_file(const std::filesystem::path& path);
/// Adds a raw file's name and sum to what the prepared file records.
void record_source(KgSet& set, const std::filesystem::path& path);

}  // namespace lockstep::prep
