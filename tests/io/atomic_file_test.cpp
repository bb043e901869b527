#include "lockstep/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/process.hpp"
#include "support/test.hpp"

namespace {

/// The behaviour of the functions below, which replace the system's.
std::string fails_to_close;             ///< files whose name contains it cannot be closed without an error
std::vector<std::string>* synced = {};  ///< collects the files that are synced, unless null

std::string name_of(int fd) {
  std::error_code failed;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), failed).string();
}

/// The end of the name of a temporary file that a process writes.
std::string mark_of(pid_t pid, const std::string& host = host_name()) {
  return ".tmp." + std::to_string(pid) + "@" + host;
}

/// The number of a process that has ended.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

/// Runs `action` in a child process and returns its exit status: 0 unless the action sets another one.
int in_child(auto action) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 99;
    try {
      status = action();
    } catch (...) {
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void write_big_h5(const fs::path& path, const H5Layout& layout) {
  write_atomically(path, [&](const fs::path& temporary) {
    auto file = H5File::create(temporary);
    std::vector<float> noise(1 << 20);
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<float>(Philox(1, 0, "noise").normal(i));
    file.write<float>("/x", std::span<const float>(noise), {1 << 20}, layout);
    file.set_attribute("/x", "n", std::int64_t{1});
    file.close();
  });
}

}  // namespace

extern "C" int close(int fd) {
  struct stat file;
  const bool fails = !fails_to_close.empty() && name_of(fd).find(fails_to_close) != std::string::npos &&
                     (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && fstat(fd, &file) == 0 && file.st_size > 0;
  const auto result = static_cast<int>(syscall(SYS_close, fd));
  if (fails) errno = EDQUOT;
  return fails ? -1 : result;
}
extern "C" int fsync(int fd) {
  if (synced != nullptr) synced->push_back(name_of(fd));
  return static_cast<int>(syscall(SYS_fsync, fd));
}

TEST_SUITE("io.atomic_file") {
  TEST_CASE("a file system that refuses the last bytes when a file is closed is an error, and the old file stays") {
    write_text_atomically("a.txt", "old");
    fails_to_close = "a.txt.tmp.";
    CHECK_THROWS_WITH_AS(write_text_atomically("a.txt", "new"), doctest::Contains("quota"), Error);
    CHECK_THROWS_WITH_AS(write_big_h5("a.txt", {}), doctest::Contains("closing"), Error);
    fails_to_close.clear();
    CHECK(read_text_file("a.txt") == "old");
    CHECK(names_in(".") == std::vector<std::string>{"a.txt"});
  }

  TEST_CASE("the names of new directories are on the disk before anything is written into them") {
    std::vector<std::string> files;
    synced = &files;
    create_directories_on_disk("a/b/c");
    create_directories_on_disk("a/b");
    synced = nullptr;
    std::sort(files.begin(), files.end());
    const fs::path here = fs::current_path();
    CHECK(files == std::vector<std::string>{here, here / "a", here / "a/b"});
    write_text("file", "");
    for (const Fault fault : {Fault::usage, Fault::internal}) {
      CHECK(error_of(fault, [&] { create_directories_on_disk("file/d", fault); }) != "no error");
    }
  }

  TEST_CASE("the next write of a file removes what a killed writer left") {
    const std::string mark = mark_of(ended_process());
    for (const char* name : {"a.h5", "b.h5", "a.h5.x"}) write_text(name + mark, "half");
    write_text_atomically("a.h5", "whole");
    CHECK(names_in(".") == std::vector<std::string>{"a.h5", "a.h5.x" + mark, "b.h5" + mark});
  }

  TEST_CASE("an output that does not fit on its file system is refused before the work") {
    require_space("a.h5", 1);
    CHECK_THROWS_WITH_AS(require_space("a.h5", std::int64_t{1} << 60),
                         doctest::Contains("it needs at least 1024.0 PiB, but its file system has only"), Error);
  }

  TEST_CASE("a text is written completely and replaces the old one") {
    write_text_atomically("a.txt", "one");
    write_text_atomically("a.txt", "two\n");
    CHECK(read_text_file("a.txt") == "two\n");
    CHECK(names_in(".") == std::vector<std::string>{"a.txt"});
  }

  TEST_CASE("a file that cannot be read to its end is an error") {
    CHECK_THROWS_WITH_AS(read_text_file("/proc/self/mem"), doctest::Contains("Input/output error"), Error);
  }

  TEST_CASE("if the writer fails, the old file stays and no temporary file is left") {
    write_text_atomically("a.txt", "old");
    CHECK_THROWS_AS(write_atomically("a.txt",
                                     [&](const fs::path& temporary) {
                                       write_text(temporary, "half");
                                       throw Error(Fault::data, "no");
                                     }),
                    Error);
    CHECK(read_text_file("a.txt") == "old");
    CHECK(names_in(".") == std::vector<std::string>{"a.txt"});
  }

  TEST_CASE("a full disk is one clear error, keeps the old file and lets the process exit normally") {
    for (const auto& layout : {H5Layout{}, H5Layout{{1 << 16}, 0}, H5Layout{{1 << 16}, 2}}) {
      write_text_atomically("a.h5", "old");
      const fs::path report = "report";
      const int status = in_child([&] {
        const rlimit limit{1 << 19, 1 << 19};
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
          write_big_h5("a.h5", layout);
        } catch (const Error& error) {
          write_text(report, error.what());
          return error.fault() == Fault::internal ? 42 : 1;
        }
        return 2;
      });
      CHECK(status == 42);
      CHECK(read_text_file(report).find("File too large") != std::string::npos);
      fs::remove(report);
      CHECK(read_text_file("a.h5") == "old");
      CHECK(names_in(".") == std::vector<std::string>{"a.h5"});
    }
  }

  TEST_CASE("after a full disk a process exits without another attempt to write") {
    const int status = in_child([&] {
      alarm(20);
      const rlimit limit{1 << 19, 1 << 19};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        write_big_h5("a.h5", {{1 << 16}, 0});
      } catch (const Error&) {
        std::exit(7);  // runs the exit handlers, including those of the library
      }
      return 1;
    });
    CHECK(status == 7);
  }

  TEST_CASE("impossible paths are usage errors before any work") {
    const auto refused = [](const fs::path& path) {
      return error_of(Fault::usage, [&] { require_writable(path); }) != "no error";
    };
    CHECK_FALSE(refused("ok.h5"));
    CHECK(refused("no/such/dir.h5"));
    CHECK(refused("."));
    CHECK(refused("/proc/lockstep.h5"));
    CHECK(names_in(".").empty());
    CHECK(refused("/dev/null"));
    CHECK(fs::is_character_file("/dev/null"));
    REQUIRE(mkfifo("pipe", 0600) == 0);
    CHECK(refused("pipe"));
    fs::create_symlink("pipe", "to-pipe");
    CHECK(refused("to-pipe"));
    fs::create_symlink("circle", "circle");
    CHECK(refused("circle"));
    CHECK(names_in(".") == std::vector<std::string>{"circle", "pipe", "to-pipe"});
  }

  TEST_CASE("a symbolic link stays, and the file behind it is replaced or created") {
    fs::create_directory("far");
    write_text("far/old.txt", "old");
    fs::create_symlink("far/old.txt", "link");
    fs::create_symlink("link", "link-to-link");
    fs::create_symlink("far/new.txt", "dangling");
    write_text_atomically("link-to-link", "one");
    write_text_atomically("dangling", "two");
    CHECK(fs::is_symlink("link"));
    CHECK(fs::is_symlink("link-to-link"));
    CHECK(fs::is_symlink("dangling"));
    CHECK(read_text_file("far/old.txt") == "one");
    CHECK(read_text_file("far/new.txt") == "two");
    CHECK(names_in("far") == std::vector<std::string>{"new.txt", "old.txt"});
  }

  TEST_CASE("an output that is one of the inputs is refused under any name") {
    write_text("in.txt", "data");
    fs::create_hard_link("in.txt", "hard");
    fs::create_symlink("in.txt", "soft");
    const std::vector<fs::path> inputs = {"", "absent.txt", "in.txt"};
    for (const char* name : {"in.txt", "./in.txt", "hard", "soft"}) {
      CAPTURE(name);
      CHECK_THROWS_WITH_AS(require_writable(name, inputs), doctest::Contains("it is the input"), Error);
    }
    require_writable("absent.txt", inputs);
    require_writable("out.txt", inputs);
  }

  TEST_CASE("temporary files of dead processes are removed, those of running ones stay") {
    const pid_t gone = ended_process();
    const std::string of_living = "a.h5" + mark_of(getpid()), of_elsewhere = "a.h5" + mark_of(gone, "another-host");
    for (const auto& name : {"a.h5" + mark_of(gone), of_living, of_elsewhere, std::string("a.tmp.h5")})
      write_text(name, "x");
    remove_stale_temporaries(".");
    std::vector<std::string> expected = {"a.tmp.h5", of_living, of_elsewhere};
    std::sort(expected.begin(), expected.end());
    CHECK(names_in(".") == expected);
    remove_stale_temporaries("absent");
    remove_stale_temporaries(".", Writers::none);  // the caller has the lock
    write_text(("b.h5" + mark_of(getpid())), "x");
    remove_stale_temporaries(".", Writers::none);
    CHECK(names_in(".") == std::vector<std::string>{of_living, "a.tmp.h5", "b.h5" + mark_of(getpid())});
  }

  TEST_CASE("an opened directory knows that it was moved, replaced or removed") {
    fs::create_directory("run");
    const OpenedDirectory opened("run");
    CHECK(opened.in_place());
    fs::rename("run", "moved");
    CHECK_FALSE(opened.in_place());
    CHECK(fs::equivalent(opened.now(), "moved"));
    fs::create_directory("run");
    CHECK_FALSE(opened.in_place());
    fs::remove("moved");
    CHECK(opened.now() == "");
  }
}
