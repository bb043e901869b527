#include <stdlib.h>
#include <unistd.h>

#include "support/mpi_main.hpp"
#include "support/test.hpp"
#include "train/staged_file.hpp"

namespace {

/// A folder that rank 0 makes, with the file `source` of this many bytes and an empty folder `stage`.
class Folder {
 public:
  explicit Folder(std::size_t size) {
    std::string name = (fs::temp_directory_path() / "lockstep-staged-XXXXXX").string();
    if (test_world().rank() == 0) {
      REQUIRE(mkdtemp(name.data()) != nullptr);
      fs::create_directory(fs::path(name) / "stage");
      std::string bytes(size, 'a');
      for (std::size_t i = 0; i < size; i += 7) bytes[i] = static_cast<char>(i / 7);
      write_text(fs::path(name) / "source", bytes);
    }
    path_ = test_world().communicator().broadcast_text(name, 0, "test folder");
  }
  ~Folder() {
    test_world().communicator().barrier("end of the test");
    std::error_code ignored;
    if (test_world().rank() == 0) fs::remove_all(path_, ignored);
  }
  fs::path source() const { return path_ / "source"; }
  fs::path stage() const { return path_ / "stage"; }

 private:
  fs::path path_;
};

}  // namespace

TEST_SUITE("train.staged_file") {
  TEST_CASE("all ranks read the same bytes from a copy that has no name") {
    World& world = test_world();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{9} << 20}) {
      const Folder folder(size);
      auto staged = std::make_unique<StagedFile>(world, folder.source(), folder.stage().string());
      world.communicator().barrier("staged");
      CHECK(fs::is_empty(folder.stage()));  // so kill -9 would leave nothing here
      if (world.rank() == 0) fs::remove(folder.source());
      world.communicator().barrier("source removed");
      const std::string copy = read_text(staged->path());
      REQUIRE(copy.size() == size);
      CHECK((size < 8 || copy[7] == 1));
      CHECK((size < (9u << 20) || copy[7 * 1000001] == static_cast<char>(1000001)));
      staged.reset();
      CHECK(fs::is_empty(folder.stage()));
    }
  }

  TEST_CASE("environment variables in the directory are replaced") {
    const Folder folder(1000);
    setenv("STAGED_TEST_PLACE", folder.stage().parent_path().c_str(), 1);
    unsetenv("STAGED_TEST_MISSING");
    const StagedFile with_braces(test_world(), folder.source(), "${STAGED_TEST_PLACE}/stage");
    const StagedFile without(test_world(), folder.source(), "$STAGED_TEST_PLACE/stage/");
    CHECK(read_text(with_braces.path()).size() == 1000);
    CHECK(read_text(without.path()).size() == 1000);
    const std::string message =
        error_of(Fault::usage, [&] { StagedFile(test_world(), folder.source(), "/tmp/$STAGED_TEST_MISSING/x"); });
    CHECK(contains(message,
                   "option data.stage = /tmp/$STAGED_TEST_MISSING/x: the environment of this host has no "
                   "STAGED_TEST_MISSING"));
  }

  TEST_CASE("a directory that cannot serve is refused on all ranks, and nothing stays there") {
    const Folder folder(1000);
    const auto refused = [&](const fs::path& source, const std::string& directory, Fault fault = Fault::usage) {
      return error_of(fault, [&] { StagedFile(test_world(), source, directory); });
    };
    CHECK(contains(refused(folder.source(), "stage"), "must be an absolute path"));
    CHECK(contains(refused(folder.source(), (folder.stage() / "none").string()), "there is no such directory on"));
    CHECK(contains(refused(folder.source(), "/proc", Fault::internal),
                   "it needs at least 1000 B, but its file system has only 0 B free"));
    CHECK(contains(refused(Folder(0).source(), "/proc"), "option data.stage = /proc: creating a file there on"));
    CHECK(contains(refused(folder.stage() / "none.h5", folder.stage().string()), "option data.path"));
    CHECK(fs::is_empty(folder.stage()));
  }
}
