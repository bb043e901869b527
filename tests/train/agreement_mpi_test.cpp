#include "lockstep/base/hash.hpp"
#include "lockstep/train/agreement.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

TEST_SUITE("train.agreement") {
  TEST_CASE("a rank with another data set or program is named, with both values, and all ranks leave") {
    World& world = test_world();
    CHECK(error_of(Fault::usage, [&] { require_same(world, "data set", "abc", "read the same file"); }) == "no error");
    if (world.size() == 1) return;
    const bool other = world.rank() == world.size() - 1;
    const std::string message =
        error_of(Fault::usage, [&] { require_same(world, "data set", other ? "xyz" : "abc", "read the same file"); });
    check_mentions(message, join("rank ", world.size() - 1, " ("), "another data set than rank 0",
                   "xyz, not abc; read the same file");
  }

  TEST_CASE("a replica that has drifted is named with the step") {
    World& world = test_world();
    CHECK(error_of(Fault::internal, [&] { require_same_weights(world, 77, 10); }) == "no error");
    if (world.size() == 2) {
      const std::string tie =
          error_of(Fault::internal, [&] { require_same_weights(world, world.rank() == 1 ? 78 : 77, 10); });
      check_mentions(tie, "step 10: the weights of the ranks differ: ranks 0 (", ", 1 (", "there is no majority");
    }
    if (world.size() < 3) return;
    const std::string message =
        error_of(Fault::internal, [&] { require_same_weights(world, world.rank() == 1 ? 78 : 77, 10); });
    check_mentions(message, "step 10: the weights of rank 1 (", ", hash " + hex64(78) + ")", hex64(77));
  }
}
