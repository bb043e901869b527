#pragma once
#include <filesystem>
#include <string>

#include "lockstep/comm/world.hpp"

namespace lockstep {

/// A copy of a file on storage of each node. The first rank of a node makes it and compares its hash with the hash of
/// the source; the other ranks wait, and all open it.
///
/// The copy has a name only until the ranks of its node have opened it, while it is still empty. So no data remain if a
/// rank is killed, and the space is freed with this object. All members are collective.
class StagedFile {
 public:
  /// directory   on each node; $NAME and ${NAME} are variables of its environment
  /// errors      on all ranks, with one message. usage: a variable that is not set; a directory that is missing, not
  ///             writable, on a file system that hosts share, or seen by two nodes; internal: too little space, reading
  ///             or writing fails, the source changes meanwhile, or the copy differs from it
  StagedFile(World& world, const std::filesystem::path& source, const std::string& directory);
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();
  /// The name by which this process opens the copy while this object lives.
  std::filesystem::path path() const;

 private:
  void open_on_node(World& world, const std::filesystem::path& source, const std::string& directory);
  void fill(World& world, const std::filesystem::path& source);
  /// Destroyed also when the constructor throws.
  struct Opened {
    std::filesystem::path name;  ///< on the first rank of a node, until the others have opened the file
    int fd = -1;
    void remove_name();
    ~Opened();
  } copy_;
};

}  // namespace lockstep
