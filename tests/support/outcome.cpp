#include "support/outcome.hpp"

#include <doctest/doctest.h>

#include <cstdio>

#include "support/temp_dir.hpp"

namespace lockstep::test {

namespace {
int ran = 0, skipped = 0, homeless = 0;
const TempDir* folder = nullptr;  // of the test case; a child process that exits leaves it alone

/// Counts what doctest does not say in its exit code, and gives each test case an empty folder to run in.
struct Listener : doctest::IReporter {
  explicit Listener(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& test) override {
    ++ran;
    look_at(test);
    enter();
  }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { leave(); }
  void test_case_reenter(const doctest::TestCaseData&) override {  // for another subcase
    leave();
    enter();
  }
  void test_case_skipped(const doctest::TestCaseData& test) override { look_at(test); }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}

  static void enter() {
    folder = new TempDir;
    std::filesystem::current_path(folder->path());
  }
  static void leave() {
    std::filesystem::current_path("/");
    delete folder;
  }
  static void look_at(const doctest::TestCaseData& test) {
    if (*test.m_test_suite != '\0') return;
    ++homeless;
    std::fprintf(stderr, "%s:%u: test case \"%s\" is in no TEST_SUITE\n", test.m_file.c_str(), test.m_line,
                 test.m_name);
  }
};
REGISTER_LISTENER("outcome", 1, Listener);
}  // namespace

void skip(const std::string& reason) {
  ++skipped;
  MESSAGE("skipped: ", reason);
}

int exit_code(int failed) {
  if (failed != 0 || homeless != 0) return 1;
  return ran == 0 || skipped != 0 ? 77 : 0;
}

}  // namespace lockstep::test
