#include <omp.h>

#include <span>

#include "capi.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/models/hrm/hrm_weights.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"

using namespace lockstep;        // NOLINT: the functions themselves are C's
using namespace lockstep::capi;  // NOLINT

struct lsnet_model {
  std::map<std::string, std::string> metadata;
  std::unique_ptr<ArrayFunction> function;

  const std::vector<ArrayFunction::Array>& arrays(int is_output) const {
    return is_output ? function->outputs() : function->inputs();
  }
};

struct lsnet_workspace {
  Arena arena;
};

namespace {

/// A new kind is one line here and one adapter in its folder of models/.
constexpr struct {
  const char* kind;
  std::unique_ptr<ArrayFunction> (*make)(const NamedArrays& file, const std::string& what);
} kKinds[] = {{"bprmf", bprmf_function},
              {"har", har_function},
              {"hrm", hrm_function},
              {"sasrec", sasrec_function},
              {"tisasrec", sasrec_function}};

lsnet_model* read(std::string_view bytes, const std::string& source) {
  const std::string what = "opening model '" + source + "'";
  const auto refuse = [&](const std::string& why) {
    throw ModelFileError(ModelFileReason::format, Fault::usage, what + ": " + why);
  };
  if (!is_safetensors(bytes)) refuse("not a safetensors file; write one by `lockstep export --format safetensors`");
  try {
    NamedArrays file = safetensors_arrays(bytes, source);
    const auto entry = [&](const char* key) { return file.metadata.contains(key) ? file.metadata.at(key) : ""; };
    if (entry(kFormatEntry) != kWeightsFormat)
      refuse(
          "its metadata do not describe such a network; write it by `lockstep export --format safetensors`, and open "
          "emulators by lsem_open");
    for (const auto& known : kKinds) {
      if (entry(kKindEntry) != known.kind) continue;
      std::unique_ptr<ArrayFunction> function = known.make(file, what);
      return new lsnet_model{std::move(file.metadata), std::move(function)};
    }
    if (entry(kKindEntry) == "kgat")
      refuse(
          "the network computes on its graph, which the file does not hold; `lockstep export --tables` writes the "
          "tables of users and items that it computes");
    refuse("this library does not compute models of kind '" + entry(kKindEntry) + "'");
  } catch (const ModelFileError&) {
    throw;
  } catch (const Error& error) {
    const bool damaged = error.fault() == Fault::data;
    throw ModelFileError(damaged ? ModelFileReason::damaged : ModelFileReason::format, error.fault(), error.what());
  }
  return nullptr;
}

int open_with(lsnet_model** m, const auto& bytes, const char* source) noexcept {
  if (m) *m = nullptr;
  return guarded([&] {
    require_argument(m, "the pointer for the model is null");
    require_argument(source, "the path is null");
    *m = read(bytes(), source);
  });
}

const ArrayFunction::Array& array_of(const lsnet_model* m, int is_output, int i) {
  require_argument(m, "the model is null");
  const auto& arrays = m->arrays(is_output);
  require_argument(i >= 0 && static_cast<std::size_t>(i) < arrays.size(), is_output ? "output " : "input ", i, " of ",
                   arrays.size());
  return arrays[i];
}

/// A usage error of the call becomes ARGUMENT.
void as_argument(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.fault() == Fault::usage) throw Failure(LSEM_ERR_ARGUMENT, error.what());
    throw;
  }
}

/// Parallel regions of this thread have one thread: a call computes in the calling thread alone.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

int lsnet_open(const char* path, lsnet_model** m) {
  return open_with(
      m, [&] { return read_model_bytes(path); }, path);
}

int lsnet_open_mem(const void* buf, size_t len, lsnet_model** m) {
  const auto bytes = [&] {
    require_argument(buf || len == 0, "the buffer is null");
    return std::string_view(static_cast<const char*>(buf), len);
  };
  return open_with(m, bytes, "memory");
}

void lsnet_close(lsnet_model* m) { delete m; }

int lsnet_meta(const lsnet_model* m, const char* key, char* buf, size_t len) {
  return guarded([&] {
    require_argument(m && key, "the model or the key is null");
    const auto found = m->metadata.find(key);
    if (found == m->metadata.end()) throw Failure(LSEM_ERR_NOT_FOUND, join("the model file has no entry '", key, "'"));
    copy_text(found->second, buf, len);
  });
}

int lsnet_arrays(const lsnet_model* m, int is_output) { return m ? static_cast<int>(m->arrays(is_output).size()) : -1; }

int lsnet_array_name(const lsnet_model* m, int is_output, int i, char* buf, size_t len) {
  return guarded([&] { copy_text(array_of(m, is_output, i).name, buf, len); });
}

int lsnet_array_type(const lsnet_model* m, int is_output, int i) {
  int type = -1;
  guarded([&] { type = array_of(m, is_output, i).dtype == DType::i64 ? LSNET_I64 : LSNET_F32; });
  return type;
}

int lsnet_array_rank(const lsnet_model* m, int is_output, int i) {
  int axes = -1;
  guarded([&] { axes = 1 + static_cast<int>(array_of(m, is_output, i).extents.size()); });
  return axes;
}

long lsnet_array_extent(const lsnet_model* m, int is_output, int i, int axis) {
  long extent = -1;
  guarded([&] {
    const auto& extents = array_of(m, is_output, i).extents;
    require_argument(axis >= 0 && static_cast<std::size_t>(axis) <= extents.size(), "axis ", axis, " of ",
                     extents.size() + 1);
    extent = axis == 0 ? 0 : static_cast<long>(extents[static_cast<std::size_t>(axis) - 1]);
  });
  return extent;
}

int lsnet_set(lsnet_model* m, const char* setting, long value) {
  return guarded([&] {
    require_argument(m && setting, "the model or the setting is null");
    as_argument([&] { m->function->set(setting, value); });
  });
}

lsnet_workspace* lsnet_workspace_new(void) {
  lsnet_workspace* workspace = nullptr;
  guarded([&] { workspace = new lsnet_workspace; });
  return workspace;
}
void lsnet_workspace_free(lsnet_workspace* ws) { delete ws; }

int lsnet_predict(const lsnet_model* m, long n, const void* const* in, void* const* out, lsnet_workspace* ws) {
  return guarded([&] {
    require_argument(m, "the model is null");
    require_argument(n >= 0, n, " samples");
    const auto check = [&](const auto* pointers, int is_output) {
      const std::span arrays(pointers, pointers ? m->arrays(is_output).size() : 0);
      require_argument(pointers, "the list of ", is_output ? "outputs" : "inputs", " is null");
      for (std::size_t i = 0; i < arrays.size(); ++i)
        require_argument(arrays[i] || n == 0, is_output ? "output " : "input ", i, " is null");
      return arrays;
    };
    const auto inputs = check(in, 0);
    const auto outputs = check(out, 1);
    const OneThread alone;
    std::unique_ptr<lsnet_workspace> own(ws ? nullptr : new lsnet_workspace);
    as_argument([&] { m->function->predict(n, inputs, outputs, (ws ? ws : own.get())->arena); });
  });
}
