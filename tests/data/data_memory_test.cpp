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

  TEST_CASE("a memory holds one data set, which is read once") {
    LocalDataMemory data_memory;
    int reads = 0;
    const auto read = [&](const char* path) {
      return data_memory.data_set(path, [&](const auto&, DataMemory&) { return ++reads; });
    };
    CHECK(read("a.h5") == 1);
    CHECK(read("a.h5") == 1);
    check_mentions(error_of(Fault::internal, [&] { read("b.h5"); }), "'b.h5'", "'a.h5'");
    CHECK(reads == 1);
  }
}
