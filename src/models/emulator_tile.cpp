#include "models/emulator_tile.hpp"

#include "lockstep/ops/isa.hpp"

namespace lockstep::emulator_tile {

template <class T>
const Kernels<T>& kernels() {
#if defined(__x86_64__)
  switch (ops::active_isa()) {
    case ops::Isa::avx512:
      return avx512::tile_kernels<T>();
    case ops::Isa::avx2:
      return avx2::tile_kernels<T>();
    case ops::Isa::generic:
      break;
  }
#endif
  return generic::tile_kernels<T>();
}
template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace lockstep::emulator_tile
