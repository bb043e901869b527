#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::test {

/// What a reader did with a damaged file.
enum class Ending : std::uint8_t { refused, accepted };

/// The outcomes of numbered cases.
struct CaseOutcomes {
  struct Failure {
    std::int64_t number = 0;
    std::string what;
  };
  std::int64_t refused = 0, accepted = 0;
  std::vector<Failure> failures;
};

/// Runs cases `first` .. `last`-1 in child processes, many per child. A lockstep::Error is a refusal. Failures are: a
/// case that throws anything else, ends its process (signal, sanitizer) or takes more than `seconds`. After the end of
/// a child a new one continues with the next case. The output of the cases is discarded.
CaseOutcomes run_forked(std::int64_t first, std::int64_t last, const std::function<Ending(std::int64_t)>& run,
                        unsigned seconds = 20);

}  // namespace lockstep::test
