#pragma once
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/lockstep.h"
#include "support/golden_emulator.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// A golden emulator, opened through the interface, with the states and results that PyTorch had.
struct Opened {
  lsem_model* m = nullptr;
  H5File golden;
  long n = 0, n_in = 0, n_out = 0;

  explicit Opened(const std::string& name = "emulator_aice", EmulatorFormat format = EmulatorFormat::lsem)
      : golden(H5File::open(golden_path(name + ".h5"))) {
    const TrainedEmulator model = golden_emulator(name);
    write_emulator("model", format, model.network, model.metadata);
    REQUIRE_MESSAGE(lsem_open("model", &m) == LSEM_OK, lsem_last_error());
    n_in = lsem_n_in(m), n_out = lsem_n_out(m);
    n = golden.info("/inputs/x").shape[0];
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { lsem_close(m); }
  template <class T>
  std::vector<T> input(const char* name) const {
    return golden.read<T>(join("/inputs/", name));
  }
  template <class T>
  std::vector<T> output(const char* name) const {
    return golden.read<T>(join("/outputs", std::is_same_v<T, float> ? "" : "_f64", "/", name));
  }
};

}  // namespace lockstep::test
