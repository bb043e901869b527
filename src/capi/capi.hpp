#pragma once
#include <cstdint>
#include <memory>
#include <optional>
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

/// States of a caller: rows of `ld` values, one per node, or one array per variable, with variable i of node j at
/// fields[i][j * strides[i]]. Null strides are 1. Fields that are written may be null, and are left out.
template <class S>
class States {
  using Value = std::remove_const_t<S>;

 public:
  States(S* rows, long ld) : rows_(rows), ld_(ld) {}
  States(S* const* fields, const long* strides) : fields_(fields), strides_(strides), by_fields_(true) {}

  /// Sets the number of variables. errors  Failure: a null pointer; a stride that is too small
  void check(long n, int variables, const char* what) {
    variables_ = variables;
    require_argument(rows_ || fields_ || n == 0, what, " is null");
    if (!by_fields_) return require_argument(ld_ >= variables, "ld", what, " is ", ld_, ", must be >= ", variables);
    for (int i = 0; i < variables && n > 0; ++i) {
      require_argument(fields_[i] || !std::is_const_v<S>, what, ": entry ", i, " is null");
      require_argument(stride(i) >= 1, what, ": the stride of entry ", i, " is ", stride(i), ", must be >= 1");
    }
  }
  int variables() const { return variables_; }
  /// Null for fields.
  S* rows() const { return rows_; }

  /// One strided view of the states, if they are rows or fields at equal distances (one array with variables first, or
  /// nodes first), so that no copy is needed.
  std::optional<StateView<S>> view() const {
    if (!by_fields_) return StateView<S>{rows_, ld_, 1};
    if (!fields_ || !fields_[0]) return {};
    const auto address = [&](int i) { return reinterpret_cast<std::intptr_t>(fields_[i]); };
    const auto size = static_cast<std::intptr_t>(sizeof(S)), distance = variables_ > 1 ? address(1) - address(0) : size;
    if (distance % size != 0) return {};
    for (int i = 0; i < variables_; ++i)
      if (!fields_[i] || stride(i) != stride(0) || address(i) - address(0) != i * distance) return {};
    return StateView<S>{fields_[0], stride(0), distance / size};
  }
  /// The same of n nodes, for which other fields are copied to `copy`.
  StateView<S> view(long n, std::unique_ptr<Value[]>& copy) const {
    if (const auto whole = view(); whole || n == 0) return whole.value_or(StateView<S>{});
    copy = tile(n);
    gather(0, n, copy.get());
    return {copy.get(), variables_, 1};
  }
  /// A dense array for the states of some nodes (count, variables).
  std::unique_ptr<Value[]> tile(long count) const {
    return std::make_unique_for_overwrite<Value[]>(static_cast<std::size_t>(count) *
                                                   static_cast<std::size_t>(variables_));
  }

  /// Copies nodes [first, first + count) of fields to a tile, and back.
  void gather(long first, long count, Value* tile) const {
    for (int i = 0; i < variables_; ++i) {
      const long step = stride(i);
      const S* from = fields_[i] + first * step;
      for (long j = 0; j < count; ++j) tile[j * variables_ + i] = from[j * step];
    }
  }
  void scatter(const S* tile, long first, long count, StoreMode mode) const {
    for (int i = 0; i < variables_; ++i) {
      if (!fields_[i]) continue;
      const long step = stride(i);
      S* to = fields_[i] + first * step;
      for (long j = 0; j < count; ++j) {
        const S value = tile[j * variables_ + i];
        to[j * step] = mode == StoreMode::add ? to[j * step] + value : value;
      }
    }
  }

 private:
  long stride(int i) const { return strides_ ? strides_[i] : 1; }

  S* rows_ = nullptr;
  long ld_ = 0;
  S* const* fields_ = nullptr;
  const long* strides_ = nullptr;
  bool by_fields_ = false;
  int variables_ = 0;
};

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
