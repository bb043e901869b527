#pragma once
#include <filesystem>

#include "lockstep/proof/proof.hpp"
#include "lockstep/report/append_file.hpp"

namespace lockstep {

/// Appends the links of a run to its file. Rank 0 has one.
class ProofWriter {
 public:
  /// Opens or creates the chain of a run directory, for a run that has done now.step steps. Removes links of later
  /// steps. errors  Error: data, as ProofChain; usage: the chain is of another run
  ProofWriter(const std::filesystem::path& run_dir, const ProofRun& now);
  const ProofChain& chain() const { return chain_; }
  void append(const ProofLink& link);
  void cut(std::int64_t step);
  std::string sync() const { return file_.sync(); }

 private:
  void append(ProofChain::Entry entry);
  std::filesystem::path path_;
  ProofChain chain_;
  AppendFile file_;
  bool failing_ = false;
};

}  // namespace lockstep
