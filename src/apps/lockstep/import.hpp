#pragma once
#include <string>

#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

/// Whether a checkpoint must be made of this file before a network can take its weights.
bool holds_foreign_weights(const std::string& path);

/// Weights that another program has written, or lockstep export.
class ForeignWeights {
 public:
  /// kind  the model.kind of the network
  /// key   dictionary of a .pt file that holds the weights; "": the only one
  /// errors  as read_weights()
  ForeignWeights(const std::string& path, const std::string& key, const std::string& kind);
  /// Sets the options of the network that follow from the file; for a checkpoint also those that it is evaluated with.
  /// errors  usage: lists the options that neither the file nor the user determines
  void set_options(Options& options, bool for_checkpoint = false);
  /// Writes a checkpoint with the configuration `text`. Returns what it holds, converts and takes from where.
  std::string write(const std::string& output, const RunConfig& config, const std::string& text);

 private:
  std::string path_, kind_, what_, sources_;
  WeightExchange exchange_;
  NamedArrays arrays_;
};

}  // namespace lockstep::apps
