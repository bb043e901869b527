#pragma once
#include <cstdint>
#include <memory>
#include <variant>

#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/lockstep.h"
#include "lockstep/models/emulator/emulator_operators.hpp"

namespace lockstep::capi {

/// An error with the status code that the call returns.
class Failure : public Error {
 public:
  Failure(int code, const std::string& message, std::source_location where = std::source_location::current())
      : Error(Fault::usage, message, where), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

void require_argument(const Condition& condition, const auto&... parts) {
  if (!condition.holds) throw Failure(LSEM_ERR_ARGUMENT, join(parts...), condition.where);
}

/// Stores the text of the current exception for lsem_last_error and returns its code. Call it only in a catch block.
int translate_exception() noexcept;

/// Runs the body of a call and converts exceptions to status codes.
int guarded(const auto& body) noexcept {
  try {
    body();
    return LSEM_OK;
  } catch (...) {
    return translate_exception();
  }
}

/// Copies a text with its final NUL. errors  Failure: no buffer; one that is too small, with the part that fits
void copy_text(const std::string& text, char* buf, std::size_t len);

/// Opens a model file of any format that this build of the library reads.
TrainedEmulator open_file(const char* path, EmulatorSelfTest& selftest);

/// Operators of one precision, shared by the model and its linearisations.
template <class T>
using Operators = std::shared_ptr<const EmulatorOperators<T>>;

}  // namespace lockstep::capi

struct lsem_model {
  lockstep::TrainedEmulator emulator;
  lockstep::EmulatorSelfTest selftest;
  lockstep::OperatorOptions options;
  int precision = LSEM_NET_F64;
  lockstep::capi::Operators<float> f32;
  lockstep::capi::Operators<double> f64;

  int n_in() const { return static_cast<int>(emulator.network.arch().n_in); }
  int n_out() const { return static_cast<int>(emulator.network.arch().n_out); }
  /// Builds the operators again after a change of the options. Linearisations keep the old ones.
  void rebuild();
  /// Calls f with the operators that compute for states of type S.
  template <class S, class F>
  decltype(auto) with_operators(const F& f) const {
    if (std::is_same_v<S, float> || precision == LSEM_NET_F32) return f(f32);
    return f(f64);
  }
};

struct lsem_lin {
  template <class T>
  struct Typed {
    lockstep::capi::Operators<T> operators;
    lockstep::EmulatorLinearization<T> linearization;
  };
  std::variant<Typed<float>, Typed<double>> typed;
  bool double_states = false;
  long nodes = 0;
  int n_in = 0, n_out = 0;
};

namespace lockstep::capi {

/// Fields in one array per variable: field i of node j is data[i][j * strides[i]]. Null strides are 1.
template <class S>
struct Fields {
  S* const* data = nullptr;
  const long* strides = nullptr;
  int count = 0;
  long stride(int i) const { return strides ? strides[i] : 1; }
};

/// errors  Failure: null entries unless allowed; a stride below 1
template <class S>
void check_fields(const Fields<S>& fields, long n, const char* what, bool null_allowed) {
  require_argument(fields.data || n == 0, what, " is null");
  for (int i = 0; i < fields.count && n > 0; ++i) {
    require_argument(fields.data[i] || null_allowed, what, ": entry ", i, " is null");
    require_argument(fields.stride(i) >= 1, what, ": the stride of entry ", i, " is ", fields.stride(i),
                     ", must be >= 1");
  }
}

/// Returns whether the fields are at equal distances (one array with variables first, or nodes first), so that no copy
/// is needed. Then `view` becomes one strided view of them.
template <class S>
bool as_view(const Fields<S>& fields, StateView<S>& view) {
  if (!fields.data || !fields.data[0]) return false;
  const auto address = [&](int i) { return reinterpret_cast<std::intptr_t>(fields.data[i]); };
  const std::intptr_t distance = fields.count > 1 ? address(1) - address(0) : static_cast<std::intptr_t>(sizeof(S));
  if (distance % static_cast<std::intptr_t>(sizeof(S)) != 0) return false;
  for (int i = 0; i < fields.count; ++i)
    if (!fields.data[i] || fields.stride(i) != fields.stride(0) || address(i) - address(0) != i * distance)
      return false;
  view = {fields.data[0], fields.stride(0), distance / static_cast<std::intptr_t>(sizeof(S))};
  return true;
}

/// Copies nodes [first, first + count) to a dense tile (count, fields), and back.
template <class S>
void gather(const Fields<const S>& fields, long first, long count, S* tile) {
  for (int i = 0; i < fields.count; ++i) {
    const long stride = fields.stride(i);
    const S* from = fields.data[i] + first * stride;
    for (long j = 0; j < count; ++j) tile[j * fields.count + i] = from[j * stride];
  }
}
template <class S>
void scatter(const S* tile, const Fields<S>& fields, long first, long count, StoreMode mode) {
  for (int i = 0; i < fields.count; ++i) {
    if (!fields.data[i]) continue;
    const long stride = fields.stride(i);
    S* to = fields.data[i] + first * stride;
    for (long j = 0; j < count; ++j) {
      const S value = tile[j * fields.count + i];
      to[j * stride] = mode == StoreMode::add ? to[j * stride] + value : value;
    }
  }
}

/// The number of nodes that are copied at a time if the fields are not one strided view.
inline long tile_nodes(long n, int threads) { return std::min(n, 1024L * threads); }

/// Scratch memory: the caller's workspace, or heap memory if that is null.
class Workspace {
 public:
  Workspace(void* given, std::size_t size_bytes) : given_(static_cast<char*>(given)) {
    if (!given_) owned_.reset(new char[size_bytes + alignof(std::max_align_t)]);
  }
  char* data() const { return given_ ? given_ : owned_.get(); }

 private:
  char* given_;
  std::unique_ptr<char[]> owned_;
};

/// Runs the body of a call. Errors of CUDA and a missing GPU have their own code.
int on_gpu(const auto& body) noexcept {
  return guarded([&] {
    try {
      body();
    } catch (const Failure&) {
      throw;
    } catch (const OutOfMemory& error) {
      throw Failure(LSEM_ERR_MEMORY, error.what());
    } catch (const Error& error) {
      throw Failure(LSEM_ERR_GPU, error.what());
    }
  });
}

/// A state in GPU memory.
template <class S>
StateView<S> gpu_view(const char* what, S* data, long node, long variable) {
  require_argument(data, what, " is null");
  require_argument(node >= 1 && variable >= 1, what, "_node is ", node, " and ", what, "_variable ", variable,
                   "; both must be >= 1");
  return {data, node, variable};
}

}  // namespace lockstep::capi
