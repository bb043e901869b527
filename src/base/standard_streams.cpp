#include "lockstep/base/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

int end_standard_output(int code) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written || code != kExitDone) return code;
  log::error("writing the results to the standard output: ",
             errno != 0 ? std::strerror(errno) : "a part of them was not written",
             "; repeat the command where they can be");
  return static_cast<int>(Fault::internal);
}

}  // namespace lockstep
