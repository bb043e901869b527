#include "lockstep/base/log.hpp"

#include <new>
#include <system_error>

#include "lockstep/base/memory_limit.hpp"
#include "support/test.hpp"

namespace {
/// Collects log lines; restores the speaker at its end.
struct Listening {
  Speaker before = log::speaker();
  std::vector<std::string> lines;
  std::function<void()> stop = log::add_sink([this](LogLevel level, std::string_view line) {
    lines.push_back(std::to_string(static_cast<int>(level)) + std::string(line));
  });
  ~Listening() {
    stop();
    log::set_speaker(before);
    log::set_all_ranks(false);
  }
};
}  // namespace

TEST_SUITE("base.log") {
  TEST_CASE("one rank has no prefix, several have rank and host") {
    const Listening listening;
    log::set_speaker({0, 1, "node01"});
    CHECK(log::prefix() == "");
    log::set_speaker({3, 8, "node04"});
    CHECK(log::prefix() == "[rank 3/8, node04]");
    log::set_speaker({3, 8, ""});
    CHECK(log::prefix() == "[rank 3/8]");
  }

  TEST_CASE("info lines come from rank 0 unless all ranks are enabled, warnings and errors from every rank") {
    Listening listening;
    log::set_speaker({1, 2, "h"});
    log::info("quiet");
    log::warning("loud ", 1);
    log::set_all_ranks(true);
    log::info("asked");
    log::set_all_ranks(false);
    log::set_speaker({0, 2, "h"});
    log::info("first");
    CHECK(listening.lines == std::vector<std::string>{"1loud 1", "0asked", "0first"});
  }

  TEST_CASE("bytes of foreign files that a terminal would obey are shown as numbers") {
    Listening listening;
    log::warning("its class is '\x1b[31m'");
    CHECK(listening.lines == std::vector<std::string>{"1its class is '\\x1b[31m'"});
  }

  TEST_CASE("a file operation fails by wrong usage if its path is the cause, else by the machine") {
    const auto failure = [](std::errc code) {
      return log::as_error(std::filesystem::filesystem_error("cannot", "runs/a", std::make_error_code(code)));
    };
    for (const std::errc code : {std::errc::permission_denied, std::errc::not_a_directory,
                                 std::errc::too_many_symbolic_link_levels, std::errc::filename_too_long}) {
      const Error error = failure(code);
      CHECK(error.fault() == Fault::usage);
      CHECK(error.what() == "using 'runs/a': " + std::make_error_code(code).message());
    }
    for (const std::errc code : {std::errc::io_error, std::errc::no_space_on_device})
      CHECK(failure(code).fault() == Fault::internal);
    CHECK(log::as_error(Error(Fault::data, "damaged")).fault() == Fault::data);
    const Error full = log::as_error(std::bad_alloc());
    check_mentions(full.what(), "out of memory, " + memory_limit().source, " in all; ");
    CHECK(full.fault() == Fault::internal);
  }

  TEST_CASE("a removed sink receives nothing") {
    const Listening listening;
    log::set_speaker({0, 1, ""});
    int heard = 0;
    const auto stop = log::add_sink([&](LogLevel, std::string_view) { ++heard; });
    log::error("one");
    stop();
    log::error("two");
    CHECK(heard == 1);
  }
}
