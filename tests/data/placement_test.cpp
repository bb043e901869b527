#include "lockstep/data/placement.hpp"

#include "lockstep/base/memory_limit.hpp"
#include "support/test.hpp"

TEST_SUITE("data.placement") {
  TEST_CASE("all arrays of a data set together must fit into the memory") {
    LocalPlacement placement;
    const Shape most = {static_cast<std::int64_t>(0.6 * memory_limit().bytes)};
    const auto place = [&] { placement.place(DType::u8, most, [](const Tensor&) {}); };
    place();
    check_mentions(error_of(Fault::usage, place), "loading the data set: an array (", ") and those before it need ",
                   "; choose a smaller data set");
  }
}
