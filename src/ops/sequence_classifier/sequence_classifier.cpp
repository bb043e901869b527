#include "lockstep/ops/sequence_classifier.hpp"

#include <mutex>
#include <set>
#include <string>

#include "lockstep/base/log.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "sequence_classifier_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Consecutive arrays from `base` on, each a multiple of four elements. With a null base, computes only their size.
template <class R>
class Arrays {
 public:
  explicit Arrays(R* base) : base_(base) {}
  R* add(std::int64_t size) {
    R* at = base_ == nullptr ? nullptr : base_ + size_;
    size_ += (size + 3) / 4 * 4;
    return at;
  }
  std::int64_t size() const { return size_; }

 private:
  R* base_;
  std::int64_t size_ = 0;
};

std::int64_t rows(const ClassifierSizes& s) { return s.windows * s.sequences * s.time; }
std::size_t hidden_layers(const ClassifierSizes& s) { return static_cast<std::size_t>(s.hidden_layers); }

/// The arrays, and their total number of elements.
template <class R>
std::pair<ClassifierKept<R>, std::int64_t> kept_arrays(const ClassifierSizes& s, R* base = nullptr) {
  const std::int64_t m = rows(s), all = s.layers * m, a = s.heads * s.head_width;
  Arrays<R> next(base);
  ClassifierKept<R> k{};
  k.pooled = next.add(s.windows * s.sequences * s.dim);
  k.patches = next.add(m * s.patch);
  k.embedded = next.add(m * s.dim);
  k.x = next.add((all + m) * s.dim);
  k.inner = next.add(all * s.dim);
  k.qkv = next.add(all * 3 * a);
  k.attended = next.add(all * a);
  k.middle = next.add(all * s.dim);
  k.other = next.add(all * s.dim);
  k.gelu = next.add(all * s.mlp);
  k.slope = next.add(all * s.mlp);
  k.tokens = next.add(m * s.dim);
  k.tanh = next.add(m * s.scores);
  k.tanh_slope = next.add(m * s.scores);
  k.token_weights = next.add(m);
  for (std::size_t l = 0; l < hidden_layers(s); ++l)
    for (R** array : {&k.hidden[l], &k.hidden_gelu[l], &k.hidden_slope[l]}) *array = next.add(s.windows * s.hidden[l]);
  return {k, next.size()};
}
template <class R>
std::pair<ClassifierScratch<R>, std::int64_t> scratch_arrays(const ClassifierSizes& s, std::int64_t per_block,
                                                             std::int64_t flat_size, R* base = nullptr) {
  const std::int64_t m = rows(s), all = s.layers * m, a = s.heads * s.head_width, n = s.windows * s.sequences;
  Arrays<R> next(base);
  ClassifierScratch<R> k{};
  k.dpooled = next.add(n * s.dim);
  k.dqkv = next.add(all * 3 * a);
  k.dattention = next.add(all * s.dim);
  k.dup = next.add(all * s.mlp);
  k.dmlp = next.add(all * s.dim);
  k.dembedded = next.add(m * s.dim);
  k.dtanh = next.add(m * s.scores);
  k.dscore = next.add(m);
  for (std::size_t l = 0; l < hidden_layers(s); ++l) {
    k.dhidden[l] = next.add(s.windows * s.hidden[l]);
    k.dnorm[l] = next.add(2 * s.windows * s.hidden[l]);
  }
  k.dlast = next.add(s.windows * s.classes);
  k.norms = next.add((n + per_block - 1) / per_block * block_sums(s));
  k.weights = next.add((m + kSplitRows - 1) / kSplitRows * flat_size);
  return {k, next.size()};
}

std::int64_t per_block([[maybe_unused]] const Stream& stream, [[maybe_unused]] DType dtype,
                       [[maybe_unused]] const ClassifierSizes& s) {
  if constexpr (kHasCuda)
    return cuda::sequences_per_block(stream, size_bytes(dtype), size_bytes(real_dtype(dtype)), s);
  else
    return 0;
}

/// Why these kernels cannot run the network on the GPU; empty if they can.
std::string limit(const Stream& stream, DType dtype, const ClassifierSizes& s) {
  constexpr std::int64_t kWidest = 512, kMostTime = 24, kMostRows = std::int64_t{1} << 24, kWidestHidden = 1024,
                         kWidestInput = 4096;
  const auto above = [](const char* what, std::int64_t found, std::int64_t most) {
    return found > most ? join(found, " ", what, ", the limit is ", most) : std::string();
  };
  const std::pair<const char*, std::int64_t> widths[] = {{"values of a token", s.dim},
                                                         {"columns of all heads", s.heads * s.head_width},
                                                         {"columns inside the MLP", s.mlp},
                                                         {"values of a patch", s.patch}};
  for (const auto& [what, width] : widths)
    if (std::string why = above(what, width, kWidest); !why.empty()) return why;
  for (const std::int64_t width : {s.dim, s.head_width, s.mlp, s.patch})
    if (width % 4 != 0) return join("a width of ", width, " is no multiple of 4");
  for (const auto& [what, found, most] : {std::tuple{"tokens", s.time, kMostTime},
                                          {"layers", s.layers, std::int64_t{kMostClassifierLayers}},
                                          {"hidden layers", s.hidden_layers, std::int64_t{kMostClassifierHidden}},
                                          {"values of a classification", s.sequences * s.dim, kWidestInput},
                                          {"classes", s.classes, kWidestInput},
                                          {"tokens in all", rows(s), kMostRows}})
    if (std::string why = above(what, found, most); !why.empty()) return why;
  for (std::size_t l = 0; l < hidden_layers(s); ++l)
    if (std::string why = above("columns of a hidden layer", s.hidden[l], kWidestHidden); !why.empty()) return why;
  if (per_block(stream, dtype, s) == 0) return "weights and tokens of one sequence exceed the shared memory of a block";
  return {};
}

/// Logs each text once.
void say_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::scoped_lock lock(mutex);
  if (said.insert(text).second) log::info(text);
}

template <class T>
cuda::ClassifierCall<T> call_of(const Tensor& kept, const Tensor& patches, const Tensor& weights,
                                const SequenceClassifier& network) {
  using R = real_t<T>;
  const ClassifierSizes& s = network.sizes;
  const auto [arrays, size] = kept_arrays(s, kept.data<R>());
  require(
      patches.size() == rows(s) * s.patch && (kept.size() == size || kept.size() == s.windows * s.sequences * s.dim),
      "sequence classifier: patches are ", patches.shape(), ", kept ", kept.shape(), ", which must be (", size, ")");
  cuda::ClassifierCall<T> call{};
  call.sizes = s;
  call.places = network.places;
  call.dropout = network.dropout;
  call.kept.pooled = arrays.pooled;
  if (kept.size() == size) call.kept = arrays;
  if (!is_half(dtype_of<T>::value)) call.kept.patches = nullptr;
  call.patches = patches.data<T>();
  call.weights = weights.data<T>();
  call.flat_size = weights.size();
  return call;
}

}  // namespace

bool has_sequence_classifier(const Stream& stream, DType dtype, const ClassifierSizes& sizes) {
  if (!stream.device().is_cuda() || rows(sizes) == 0) return false;
  const std::string why = limit(stream, dtype, sizes);
  say_once(why.empty() ? "the network runs on the GPU in two kernels forward and four backward"
                       : "the network runs on the GPU layer by layer: " + why);
  return why.empty();
}

std::int64_t classifier_kept(const ClassifierSizes& sizes) { return kept_arrays<float>(sizes).second; }
std::int64_t classifier_scratch(const Stream& stream, DType dtype, const ClassifierSizes& sizes,
                                std::int64_t flat_size) {
  return scratch_arrays<float>(sizes, per_block(stream, dtype, sizes), flat_size).second;
}

void sequence_classifier_forward([[maybe_unused]] Stream& stream, const Tensor& logits, const Tensor& kept,
                                 const Tensor& patches, const Tensor& weights, const SequenceClassifier& network) {
  const bool ran = on_gpu(patches, [&]<class T>() {
    cuda::ClassifierCall<T> call = call_of<T>(kept, patches, weights, network);
    call.logits = logits.data<T>();
    cuda::sequence_classifier_forward(stream, call);
  });
  require(ran, "sequence classifier: patches are not on a GPU");
}

void sequence_classifier_backward([[maybe_unused]] Stream& stream, const Tensor& gradient, const Tensor& dlogits,
                                  const Tensor& kept, const Tensor& scratch, const Tensor& patches,
                                  const Tensor& weights, const SequenceClassifier& network) {
  const bool ran = on_gpu(patches, [&]<class T>() {
    using R = real_t<T>;
    const ClassifierSizes& s = network.sizes;
    const auto [arrays, size] =
        scratch_arrays(s, per_block(stream, patches.dtype(), s), weights.size(), scratch.data<R>());
    require(scratch.size() == size, "sequence classifier backward: scratch is ", scratch.shape(), ", must be (", size,
            ")");
    cuda::ClassifierCall<T> call = call_of<T>(kept, patches, weights, network);
    call.scratch = arrays;
    call.dlogits = dlogits.data<T>();
    call.gradient = gradient.data<R>();
    cuda::sequence_classifier_backward(stream, call);
  });
  require(ran, "sequence classifier: patches are not on a GPU");
}

}  // namespace lockstep::ops
