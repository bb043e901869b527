// host_process MODEL.h5: checks that lsem_open leaves settings of the calling process alone: how HDF5 prints errors,
// the handlers of signals, and HDF5's own closing of files at exit.
#include <hdf5.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

namespace {
int printed = 0;
herr_t print(hid_t, void*) { return ++printed, 0; }

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s (%s)\n", what, lsem_last_error());
  std::exit(1);
}
}  // namespace

int main(int, char** argv) {
  char path[] = "/tmp/host_processXXXXXX";
  const int fd = mkstemp(path);
  require(fd >= 0, "no temporary file");
  close(fd);
  const pid_t child = fork();
  if (child == 0) {
    lsem_model* model = nullptr;
    require(lsem_open(argv[1], &model) == LSEM_OK, "the model does not open");  // before the host uses HDF5
    H5Eset_auto2(H5E_DEFAULT, print, nullptr);
    lsem_close(model);
    require(lsem_open(argv[1], &model) == LSEM_OK, "the model does not open again");
    lsem_close(model);
    require(lsem_open("/nowhere.h5", &model) != LSEM_OK, "a missing model opens");
    require(printed == 0, "the library's own errors are printed");
    H5Fopen("/nowhere.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    require(printed == 1, "the host's errors of HDF5 are not printed any more");
    struct sigaction action {};
    sigaction(SIGXFSZ, nullptr, &action);
    require(action.sa_handler == SIG_DFL, "SIGXFSZ is handled in another way");
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "written", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    std::exit(0);  // without H5Fclose: HDF5 closes the file
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the host failed");
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  const bool whole = file >= 0 && H5Lexists(file, "written", H5P_DEFAULT) > 0;
  if (file >= 0) H5Fclose(file);
  unlink(path);
  require(whole, "HDF5 does not close the host's file at exit any more");
  return 0;
}
