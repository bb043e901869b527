#include <cstdio>
#include <cstring>
#include <span>

#include "capi.hpp"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

namespace {

constexpr int kMostThreads = 1024;

/// A plain array, because storing an error must not fail.
thread_local char last_error[1024] = "";

int remember(int code, const char* text) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", text);
  return code;
}

int code_of(const ModelFileError& error) {
  switch (error.reason()) {
    case ModelFileReason::unreadable:
      return LSEM_ERR_OPEN;
    case ModelFileReason::format:
      return LSEM_ERR_FORMAT;
    case ModelFileReason::damaged:
      return LSEM_ERR_DAMAGED;
    case ModelFileReason::selftest:
      return LSEM_ERR_SELFTEST;
  }
  return LSEM_ERR_INTERNAL;
}

/// Checks the index of a variable.
std::size_t variable_of(const lsem_model* m, int is_output, int i) {
  require_argument(m, "the model is null");
  const int n = is_output ? m->n_out() : m->n_in();
  require_argument(i >= 0 && i < n, "variable ", i, " of ", n);
  return static_cast<std::size_t>(i);
}

using Names = std::vector<std::string> EmulatorVariables::*;

int variable_text(const lsem_model* m, int is_output, int i, char* buf, size_t len, Names inputs,
                  Names outputs) noexcept {
  return guarded([&] {
    const std::size_t index = variable_of(m, is_output, i);
    const auto& names = m->emulator.metadata.variables.*(is_output ? outputs : inputs);
    copy_text(index < names.size() ? names[index] : std::string(), buf, len);
  });
}

int open_with(lsem_model** m, const auto& read) noexcept {
  if (m) *m = nullptr;
  return guarded([&] {
    require_argument(m, "the pointer for the model is null");
    EmulatorSelfTest selftest;
    TrainedEmulator emulator = read(selftest);
    auto model =
        std::make_unique<lsem_model>(lsem_model{std::move(emulator), std::move(selftest), {}, LSEM_NET_F64, {}, {}});
    model->options.mask_min = model->emulator.metadata.mask.min;
    model->options.mask_max = model->emulator.metadata.mask.max;
    model->rebuild();
    *m = model.release();
  });
}

/// Changes the options; an exception restores the old ones.
int change_options(lsem_model* m, const auto& change) noexcept {
  return guarded([&] {
    require_argument(m, "the model is null");
    const OperatorOptions before = m->options;
    try {
      change(m->options);
      m->rebuild();
    } catch (...) {
      m->options = before;
      throw;
    }
  });
}

}  // namespace

namespace lockstep::capi {

int translate_exception() noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    return remember(failure.code(), failure.what());
  } catch (const ModelFileError& error) {
    return remember(code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return remember(LSEM_ERR_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    return remember(LSEM_ERR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return remember(LSEM_ERR_INTERNAL, error.what());
  } catch (...) {
    return remember(LSEM_ERR_INTERNAL, "an unknown exception");
  }
}

void copy_text(const std::string& text, char* buf, size_t len) {
  require_argument(buf && len > 0, "cannot store a text: buf is null or len is 0");
  const size_t n = std::min(text.size(), len - 1);
  std::memcpy(buf, text.data(), n);
  buf[n] = '\0';
  if (n < text.size())
    throw Failure(LSEM_ERR_BUFFER, join("a buffer of ", text.size() + 1, " bytes is needed, not ", len, ", for '", text,
                                        "'"));  // the text last: it may exceed the message
}

}  // namespace lockstep::capi

void lsem_model::rebuild() {
  auto single = std::make_shared<const EmulatorOperators<float>>(emulator.network, options);
  auto wide = std::make_shared<const EmulatorOperators<double>>(emulator.network, options);
  f32 = std::move(single);
  f64 = std::move(wide);
}

int lsem_abi_version(void) { return LSEM_ABI_VERSION; }

const char* lsem_strerror(int code) {
  constexpr const char* kTexts[] = {
      "no error",
      "wrong argument: a null pointer, a negative count, a stride that is too small or an index out of range",
      "the file does not exist or cannot be read",
      "not a model file, or of a kind or version that this library does not read",
      "the model file is damaged",
      "the network does not reproduce the self-test rows of its file",
      "out of memory",
      "the text does not fit the buffer",
      "no such entry",
      "a fault of liblockstep",
      "no GPU, a library without CUDA, or a call of CUDA that failed",
      "a derivative at a node inside the domain is not finite"};
  return code >= LSEM_OK && code <= LSEM_ERR_NOT_FINITE ? kTexts[code] : "not a status code of liblockstep";
}

const char* lsem_last_error(void) { return last_error; }

int lsem_open(const char* path, lsem_model** m) {
  return open_with(m, [&](EmulatorSelfTest& selftest) {
    require_argument(path, "the path is null");
    return open_file(path, selftest);
  });
}

int lsem_open_mem(const void* buf, size_t len, lsem_model** m) {
  return open_with(m, [&](EmulatorSelfTest& selftest) {
    require_argument(buf || len == 0, "the buffer is null");
    return read_emulator(std::span(static_cast<const std::byte*>(buf), len), "memory", &selftest);
  });
}

void lsem_close(lsem_model* m) { delete m; }

int lsem_selftest(const lsem_model* m) {
  return guarded([&] {
    require_argument(m, "the model is null");
    try {
      check_selftest(m->emulator.network, m->selftest, "lsem_selftest");
    } catch (const Error& error) {
      throw Failure(LSEM_ERR_SELFTEST, error.what());
    }
  });
}

int lsem_n_in(const lsem_model* m) { return m ? m->n_in() : -1; }
int lsem_n_out(const lsem_model* m) { return m ? m->n_out() : -1; }

int lsem_name(const lsem_model* m, int is_output, int i, char* buf, size_t len) {
  return variable_text(m, is_output, i, buf, len, &EmulatorVariables::input_names, &EmulatorVariables::output_names);
}
int lsem_cf_name(const lsem_model* m, int is_output, int i, char* buf, size_t len) {
  return variable_text(m, is_output, i, buf, len, &EmulatorVariables::input_cf, &EmulatorVariables::output_cf);
}
int lsem_units(const lsem_model* m, int is_output, int i, char* buf, size_t len) {
  return variable_text(m, is_output, i, buf, len, &EmulatorVariables::input_units, &EmulatorVariables::output_units);
}

int lsem_level(const lsem_model* m, int is_output, int i) {
  int level = -1;
  guarded([&] {
    const std::size_t index = variable_of(m, is_output, i);
    const EmulatorVariables& v = m->emulator.metadata.variables;
    const auto& levels = is_output ? v.output_level : v.input_level;
    level = index < levels.size() ? static_cast<int>(levels[index]) : 0;
  });
  return level;
}

int lsem_mask_name(const lsem_model* m, char* buf, size_t len) {
  return guarded([&] {
    require_argument(m, "the model is null");
    copy_text(m->emulator.metadata.mask.variable, buf, len);
  });
}

int lsem_get_domain(const lsem_model* m, double* lo, double* hi) {
  return guarded([&] {
    require_argument(m && lo && hi, "the model or a result is null");
    *lo = m->options.mask_min;
    *hi = m->options.mask_max;
  });
}

int lsem_meta(const lsem_model* m, const char* key, char* buf, size_t len) {
  return guarded([&] {
    require_argument(m && key, "the model or the key is null");
    for (const auto& [known, value] : m->emulator.metadata.meta)
      if (known == key) return copy_text(value, buf, len);
    throw Failure(LSEM_ERR_NOT_FOUND, join("the model file has no entry '", key, "'"));
  });
}

int lsem_set_active(lsem_model* m, const unsigned char* in_mask) {
  return change_options(m, [&](OperatorOptions& options) {
    options.active_inputs.clear();
    if (in_mask) options.active_inputs.assign(in_mask, in_mask + m->n_in());
  });
}

int lsem_set_domain(lsem_model* m, double lo, double hi) {
  return change_options(m, [&](OperatorOptions& options) {
    require_argument(lo <= hi, "the domain [", lo, ", ", hi, "] is empty");
    options.mask_min = lo;
    options.mask_max = hi;
  });
}

int lsem_set_precision(lsem_model* m, int precision) {
  return guarded([&] {
    require_argument(m, "the model is null");
    require_argument(precision == LSEM_NET_F64 || precision == LSEM_NET_F32, "precision ", precision,
                     " is neither LSEM_NET_F64 nor LSEM_NET_F32");
    m->precision = precision;
  });
}

int lsem_set_threads(lsem_model* m, int threads) {
  return change_options(m, [&](OperatorOptions& options) {
    require_argument(threads >= 1 && threads <= kMostThreads, threads, " threads, must be 1 to ", kMostThreads);
    options.threads = threads;
  });
}
