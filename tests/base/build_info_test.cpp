#include "lockstep/base/build_info.hpp"

#include "support/test.hpp"

TEST_SUITE("base.build_info") {
  TEST_CASE("builds without git of other sources have other names, also within the repository of another program") {
    for (const char* folder : {"include", "src"}) fs::create_directories(fs::path("tree") / folder);
    const auto id = [](const std::string& text) {
      write_text("tree/src/a.cpp", text);
      const fs::path script = source_path("src/base/git_id.cmake");
      succeeded(run_process({"cmake", "-DSOURCE=" + fs::absolute("tree").string(), "-DOUT=id.hpp", "-P", script}));
      return read_text("id.hpp");
    };
    const std::string first = id("one"), second = id("two");
    CHECK(first.starts_with("#define LOCKSTEP_GIT_ID \"unknown, sources "));
    CHECK(second != first);
    CHECK(id("one") == first);
    const ProcessResult made = run_process({"git", "init", "--quiet", "."});
    if (made.exit_code != 0) return skip("no git");
    succeeded(run_process({"git", "-c", "user.name=a", "-c", "user.email=b", "commit", "--quiet", "--allow-empty",
                           "--message", "another program"}));
    CHECK(id("one") == first);
    CHECK(contains(version_line(), "(git " + build_info().git + ")"));
  }
}
