#include "lockstep/train/evaluator.hpp"

#include "support/test.hpp"

TEST_SUITE("train.evaluator") {
  TEST_CASE("a large split has work for thousands of ranks, in chunks that are worth a message") {
    CHECK(evaluation_chunks(10, 1'000'000) >= 2048);
    CHECK(evaluation_chunks(100'000, 1'000'000) == 64);  // the sums of all chunks of one rank stay small
    for (const std::int64_t sums : {1, 10, 512, 513, 5000, 100'000}) {
      for (const std::int64_t samples : {0, 10, 1000, 60'000, 300'000, 10'000'000}) {
        const std::int64_t chunks = evaluation_chunks(sums, samples), usual = sums <= 512 ? 256 : 64;
        CHECK(chunks >= usual);
        CHECK((chunks == usual || (samples / chunks >= 256 && chunks * sums * 8 <= 32 << 20)));
      }
    }
  }
}
