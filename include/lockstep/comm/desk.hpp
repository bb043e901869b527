#pragma once
#include <functional>
#include <string>

namespace lockstep {

/// Where any rank asks a question, at any time, and rank 0 answers while it computes. World::open_desk() opens it.
class Desk {
 public:
  /// Gets one question at a time, on any thread of rank 0.
  using Answer = std::function<std::string(const std::string& question)>;
  /// On rank 0: only once no rank asks any more.
  virtual ~Desk() = default;
  /// errors  Error (internal): the answer has thrown, with its message
  virtual std::string ask(const std::string& question) = 0;
};

}  // namespace lockstep
