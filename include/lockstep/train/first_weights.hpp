#pragma once
#include <string>

namespace lockstep {

class H5File;

/// A task whose data set gives its weights their meaning: their columns or classes, and the normalisation.
class FirstWeights {
 public:
  virtual ~FirstWeights() = default;
  /// For a training that begins with the weights of a checkpoint: changes them to compute here what they computed
  /// there, as far as possible. Returns what remains different, such as other columns or classes; "": nothing.
  virtual std::string adapt_from(const H5File& checkpoint) = 0;
};

}  // namespace lockstep
