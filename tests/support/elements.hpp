#pragma once
#include <vector>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::test {

/// The elements of a tensor on any device.
template <class T>
std::vector<T> elements(const Tensor& t) {
  const HostView host(t);
  return {host->data<T>(), host->data<T>() + host->size()};
}

}  // namespace lockstep::test
