#include "lockstep/base/profile.hpp"

#include "support/test.hpp"

using profile::Kind;
using profile::Span;

TEST_SUITE("base.profile") {
  TEST_CASE("spans are recorded in the order of their ends, with detail and nested work") {
    profile::enter(0, 0, 100);
    profile::take(0);
    { const Span off("not recorded"); }
    profile::start();
    {
      const Span outer("outer", Kind::phase, "a detail that is longer than there is room for", 7);
      profile::add_flops(10);
      {
        Span inner("inner");
        profile::add_flops(5);
        inner.end();
        inner.end();
      }
      profile::add_flops(1);
    }
    double first = 0, second = 0;
    profile::Phase phase("first", first);
    phase.next("second", second);
    phase.end();
    profile::stop();
    const std::vector<profile::Lane> lanes = profile::take(0);
    REQUIRE(lanes.size() == 1);
    const std::vector<profile::Event>& events = lanes[0].events;
    REQUIRE(events.size() == 4);
    CHECK(std::string(events[0].name) == "inner");
    CHECK(events[0].flops == 5);
    CHECK(events[0].text().empty());
    CHECK(std::string(events[1].name) == "outer");
    CHECK(events[1].kind == Kind::phase);
    CHECK(events[1].number == 7);
    CHECK(events[1].flops == 11);
    CHECK(events[1].text() == "a detail that is longer than th");
    CHECK(events[1].begin_ns <= events[0].begin_ns);
    CHECK(events[0].end_ns <= events[1].end_ns);
    CHECK(std::string(events[2].name) == "first");
    CHECK(std::string(events[3].name) == "second");
    CHECK(profile::take(0).empty());
  }

  TEST_CASE("phases are measured while nothing is recorded") {
    double seconds = 0;
    profile::Phase phase("phase", seconds);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    phase.end();
    CHECK(seconds >= 0.002);
    CHECK(profile::take(0).empty());
  }

  TEST_CASE("a full lane counts the spans that it drops, and helper threads have their own lanes") {
    profile::enter(3, 0, 2);
    profile::start();
    for (int i = 0; i < 5; ++i) const Span span("short");
    const auto help = [] {
      profile::name_helper(3, "writer");
      const Span span("write");
    };
    std::thread(help).join();
    std::thread(help).join();
    profile::stop();
    const std::vector<profile::Lane> lanes = profile::take(3);
    REQUIRE(lanes.size() == 2);
    CHECK(lanes[0].events.size() == 2);
    CHECK(lanes[0].lost == 3);
    CHECK(lanes[1].name == "writer");
    CHECK(lanes[1].events.size() == 2);  // the second thread took over the lane of the first
  }
}
