#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/prep/kgat/kg_raw.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

/// Options that every graph source shares, and the last step: validation set, graph, file, report.
struct KgOutput : SourceOptions {
  std::string name;
  std::string text;  ///< folder for text files, or ""
  bool symmetric_upstream = false;
  double valid_fraction = 0;
  std::uint64_t seed = 0;
  int gzip = 0;

  /// `seed_help` is the help text of --seed.
  KgOutput(Options& options, const std::string& seed_help);
  void write(KgSet& set, const std::vector<KgFinding>& findings);
};

/// Reads a raw file, as LineReader does; the path is its name in messages.
KgText read_kg_file(const std::filesystem::path& path);
/// Records the name and checksum of a raw file.
void record_source(KgSet& set, const std::filesystem::path& path);

}  // namespace lockstep::prep
