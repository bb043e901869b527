#include "dropout_rows.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {
template <class T>
void drop(std::int64_t n, T* y, const T* to, const T* x, T* also, const PhiloxKey& key, const DropRate& rate) {
  dropout_row(n, y, to, x, key, 0, rate, also);
}
}  // namespace

LOCKSTEP_KERNEL_TABLE(DropoutKernel, dropout_kernel, drop<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
