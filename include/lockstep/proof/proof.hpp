#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"

namespace lockstep {

/// The file of a run directory that holds its chain.
inline constexpr const char* kProofFile = "proof.chain";

/// The state of a run after a step as hashes (XXH3). With --reproducible it is the same on any number of ranks and
/// threads.
struct ProofLink {
  std::int64_t step = 0, epoch = 0, position = 0;
  std::uint64_t batch = 0;             ///< of data set, seed, step, epoch, position, which determine the samples
  std::uint64_t loss = 0;              ///< of the epoch's sums of losses, weights, gradient norms; of the loss scale
  std::vector<std::uint64_t> weights;  ///< one hash per parameter
  std::uint64_t optimizer = 0;         ///< of the arrays of /optim
  std::uint64_t program = 0;           ///< of the arrays of /program, such as the states that HRM's slots carry
  std::uint64_t average = 0;           ///< of the arrays of /ema
  bool last = false;                   ///< at the end of a run, outside run.proof_every; a continued run removes it
  bool operator==(const ProofLink&) const = default;
};

/// The settings that determine the bits of the following links. Resuming on another kind of machine starts a new entry.
struct ProofRun {
  std::int64_t step = 0;                                       ///< steps done before this entry
  std::string kind, data_hash, build, isa, device, precision;  ///< isa: ops::record_name()
  std::uint64_t seed = 0;
  std::int64_t devices = 0;             ///< RunConfig::scale() if the batch or the learning rate depends on it, else 0
  std::int64_t total = 0;               ///< length of a cosine schedule that spans the run, else 0
  std::int64_t every = 0;               ///< run.proof_every
  std::vector<std::string> parameters;  ///< in the order of ProofLink::weights
  bool operator==(const ProofRun&) const = default;
};

/// Name and version of this program, its commit, compiler and build type.
std::string proof_build();

/// The link of a state in memory. Its vectors must be up to date (TrainingProgram::settle()), parts.state not null.
ProofLink proof_link(const CheckpointParts& parts);
/// Names the fields in which `found` differs from `expected`: "weights, first those of 'w2' (3 of 12 arrays); optimizer
/// states". Returns "" if there is none.
std::string proof_difference(const ProofLink& expected, const ProofLink& found,
                             const std::vector<std::string>& parameters);

/// A chain of links: a text file (docs/proof.md). Each line ends with a hash of the line and of the preceding line's
/// hash. The hash is a checksum, not a signature.
class ProofChain {
 public:
  struct Entry {
    bool is_run = false;  ///< else a link
    ProofRun run;
    ProofLink link;
    std::uint64_t hash = 0;
    std::int64_t step() const { return is_run ? run.step : link.step; }
  };
  ProofChain() = default;
  /// Reads the text of a chain. Ignores an incomplete last line, which a kill may leave.
  /// errors  Error (data): names `source` and the first line that does not follow from its predecessor
  ProofChain(std::string_view text, std::string source);
  /// errors  as the constructor; usage: no such file
  static ProofChain read(const std::filesystem::path& path);

  const std::string& source() const { return source_; }
  const std::vector<Entry>& entries() const { return entries_; }
  /// The link of a step, or null.
  const ProofLink* link(std::int64_t step) const;
  /// The step of the last link at or before `step`, or -1.
  std::int64_t last_link(std::int64_t step) const;
  /// The run whose settings determine the bits of the step after `step` steps. The chain must not be empty.
  const ProofRun& run(std::int64_t step) const;
  /// Whether links before `step` that the run has written are missing.
  bool is_cut_before(std::int64_t step) const;
  /// Removes the lines of later steps, and links that mark the end of a run.
  void cut(std::int64_t step);
  /// Adds a line. Returns its text.
  std::string add(Entry entry);
  /// The text of the file.
  std::string text() const;

  /// Compares a whole checkpoint with the chain: "agrees with the chain", or why they cannot be compared.
  /// errors  Error (data): names what differs
  std::string compare(const CheckpointReader& checkpoint) const;

 private:
  std::string source_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep
