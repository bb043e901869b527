#include "lockstep/io/file_system.hpp"

#include "support/test.hpp"

TEST_SUITE("io.file_system") {
  TEST_CASE("network file systems are recognised by their magic numbers, local ones are not") {
    CHECK(shared_file_system(0x6969) == "NFS");
    CHECK(shared_file_system(0x0BD00BD0) == "Lustre");
    CHECK(shared_file_system(static_cast<long>(0xFF534D42)) == "CIFS");
    CHECK(shared_file_system(static_cast<int>(0xFF534D42)) == "CIFS");  // some systems have a signed number
    for (const long own :
         {0xEF53L, 0x01021994L, 0x58465342L, 0x9123683EL, 0x794C7630L})  // ext4 tmpfs XFS Btrfs overlay
      CHECK(shared_file_system(own) == "");
    CHECK(shared_file_system("/proc") == "");
    CHECK(shared_file_system("/no such directory") == "");
  }

  TEST_CASE("two outputs with one name are refused, also before they exist") {
    fs::create_symlink("to.txt", "link");
    write_text("to.txt", "");
    for (const char* name : {"./new.txt", "new.txt"})
      CHECK_THROWS_WITH_AS(require_different("new.txt", name), doctest::Contains("the same file"), Error);
    CHECK_THROWS_WITH_AS(require_different("to.txt", "link"), doctest::Contains("the same file"), Error);
    require_different("new.txt", "to.txt");
  }
}
