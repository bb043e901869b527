#include "lockstep/data/data_memory.hpp"

#include "lockstep/base/memory_limit.hpp"
#include "support/test.hpp"

TEST_SUITE("data.data_memory") {
  TEST_CASE("all arrays of a data set together must fit into the memory") {
    LocalDataMemory data_memory;
    const Shape most = {static_cast<std::int64_t>(0.6 * memory_limit().bytes)};
    const auto place = [&] { data_memory.place(DType::u8, most, [](const Tensor&) {}); };
    place();
    check_mentions(error_of(Fault::usage, place), "loading the data set: an array (", ") and those before it need ",
                   "; choose a smaller data set");
  }
}
