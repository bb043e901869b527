#include "lockstep/base/error.hpp"

#include "support/test.hpp"

namespace {
Error caught(const auto& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  throw std::runtime_error("nothing was thrown");
}
}  // namespace

TEST_SUITE("base.error") {
  TEST_CASE("a condition that holds throws nothing") {
    CHECK_NOTHROW(require(true, "unused ", 1));
    CHECK_NOTHROW(require_usage(1 < 2, "unused"));
    CHECK_NOTHROW(require_data(std::string("x") == "x", "unused"));
  }

  TEST_CASE("a message never holds bytes that a terminal would obey") {
    CHECK(caught([] { require_data(false, "its format is '", "\x1b[2J", "'"); }).what() ==
          std::string("its format is '\\x1b[2J'"));
  }

  TEST_CASE("an error carries the joined message, its fault and its source location") {
    const int line = __LINE__ + 1;
    const Error e = caught([] { require(1 > 2, "reading ", 3, " rows: ", 0.1, " left"); });
    CHECK(std::string(e.what()) == "reading 3 rows: 0.1 left");
    CHECK(e.fault() == Fault::internal);
    CHECK(static_cast<int>(e.where().line()) == line);
    CHECK(std::string(e.where().file_name()).ends_with("error_test.cpp"));
    CHECK(caught([] { require_usage(false, "x"); }).fault() == Fault::usage);
    CHECK(caught([] { require_data(false, "x"); }).fault() == Fault::data);
  }

  TEST_CASE("faults are exit codes") {
    CHECK(static_cast<int>(Fault::internal) == 1);
    CHECK(static_cast<int>(Fault::usage) == 2);
    CHECK(static_cast<int>(Fault::data) == 3);
  }

  TEST_CASE("join prints nine digits, enough to distinguish any two floats") {
    CHECK(join(0.1f, ' ', 1e-7, " ", 16777217) == "0.100000001 1e-07 16777217");
  }
}
