#include "support/process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "support/paths.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

Words words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

ProcessResult run_process(const Words& words, const Words& environment) {
  const TempDir dir;
  const std::string out = (dir / "out").string(), err = (dir / "err").string();
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  require(child >= 0, "starting ", words.at(0));
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT, 0600),
              err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(nothing, 0);
    ::dup2(out_fd, 1);
    ::dup2(err_fd, 2);
    for (const auto& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "waiting for ", words.at(0));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(out), read_text(err)};
}

ProcessResult run_lockstep(const Words& words, int ranks) {
  const Words command = Words{program_path("lockstep")} + words;
  if (ranks == 1) return run_process(command);
  return run_process(mpirun_command() + Words{"-n", std::to_string(ranks)} + command, {"OMP_NUM_THREADS=1"});
}

}  // namespace lockstep::test
