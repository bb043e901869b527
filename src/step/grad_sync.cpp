#include "step/grad_sync.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/instantiate.hpp"
#include "lockstep/base/profile.hpp"

namespace lockstep {

namespace {
/// A weight is sent as a multiple of this unit, and the remainder.
constexpr double kWeightUnit = 4096;
}  // namespace

template <class T>
void encode(const StepExtras& extras, T* out) {
  std::fill_n(out, kExtras, T{0});
  out[0] = static_cast<T>(extras.loss);
  out[1] = static_cast<T>(extras.loss - static_cast<double>(out[0]));
  const double units = std::floor(extras.weight / kWeightUnit);
  out[2] = static_cast<T>(units);
  out[3] = static_cast<T>(extras.weight - units * kWeightUnit);
  for (int bit = 0; bit < 8; ++bit) out[4 + bit] = static_cast<T>((extras.flags >> bit) & 1u);
}

template <class T>
StepExtras decode(const T* in) {
  StepExtras extras;
  extras.loss = static_cast<double>(in[0]) + static_cast<double>(in[1]);
  extras.weight = static_cast<double>(in[2]) * kWeightUnit + static_cast<double>(in[3]);
  for (int bit = 0; bit < 8; ++bit)
    if (in[4 + bit] > 0) extras.flags |= 1u << bit;
  return extras;
}

std::vector<FlatRange> plan_buckets(const ParamStore& params, std::int64_t bucket_bytes) {
  // Embeddings of at least this size get a separate bucket, however large buckets are.
  constexpr std::int64_t kEmbeddingBytes = std::int64_t{256} << 10;
  const auto elements = [&](std::int64_t bytes) {
    return std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_bytes(params.dtype())));
  };
  const std::int64_t enough = elements(bucket_bytes);
  std::vector<FlatRange> buckets;
  std::int64_t end = params.flat_size();
  const auto other =
      std::find_if(params.all().begin(), params.all().end(), [](const Param& p) { return !p.row_sparse; });
  std::int64_t begin = other != params.all().end() ? other->offset : 0;  // end of the embeddings
  if (begin >= elements(std::min(bucket_bytes, kEmbeddingBytes)) && 2 * begin >= end)
    buckets.push_back({0, begin});
  else
    begin = 0;
  for (auto p = params.all().rbegin(); p != params.all().rend() && p->offset >= begin; ++p)
    if (end - p->offset >= enough) {
      buckets.push_back({p->offset, end});
      end = p->offset;
    }
  if (end > begin || buckets.empty()) buckets.push_back({begin, end});
  return buckets;
}

template <class T>
GradSync<T>::GradSync(Communicator& comm, const ParamStore& params, std::int64_t bucket_bytes, Compression compression,
                      PartSum<T>& sum, const std::vector<StepExtras>& extras)
    : comm_(comm),
      compression_(compression),
      buckets_(plan_buckets(params, bucket_bytes)),
      bucket_of_(params.all().size()),
      params_in_(buckets_.size(), 0),
      missing_(extras.size(), params_in_),
      threads_missing_(buckets_.size()),
      summed_(buckets_.size()),
      requests_(buckets_.size()),
      sum_(sum),
      extras_(extras) {
  require_usage(compression == Compression::none || std::is_same_v<T, float>,
                "option dist.compress = bf16: gradients must be fp32 (run.precision)");
  for (const Param& p : params.all()) {
    std::size_t bucket = 0;
    while (p.offset < buckets_[bucket].begin || p.offset >= buckets_[bucket].end) ++bucket;
    bucket_of_[p.index] = bucket;
    ++params_in_[bucket];
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) names_.push_back(join("gradient bucket ", b));
  for (const FlatRange range : buckets_) rows_.emplace_back(comm, params, range, sum.nonzero());
}

template <class T>
bool GradSync<T>::in_buckets() const {
  return buckets_.size() > 1 || compression_ != Compression::none ||
         std::any_of(rows_.begin(), rows_.end(), [](const CpuRowExchange<T>& r) { return r.on(); });
}

template <class T>
void GradSync<T>::begin() {
  started_ = 0;
  std::fill(missing_.begin(), missing_.end(), params_in_);
  for (auto& n : threads_missing_) n.store(static_cast<int>(extras_.size()), std::memory_order_relaxed);
  for (auto& s : summed_) s.store(false, std::memory_order_relaxed);
}

template <class T>
void GradSync<T>::ready(int thread, const Param& param) {
  const std::size_t bucket = bucket_of_[param.index];
  if (--missing_[thread][bucket] == 0) complete(thread, bucket);
}

template <class T>
void GradSync<T>::ready_all(int thread) {
  std::vector<std::int64_t>& missing = missing_[thread];
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (missing[b] > 0 || params_in_[b] == 0) {
      missing[b] = 0;
      complete(thread, b);
    }
}

template <class T>
void GradSync<T>::complete(int thread, std::size_t bucket) {
  if (threads_missing_[bucket].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    sum_over_threads(bucket);
    summed_[bucket].store(true, std::memory_order_release);
  }
  if (thread != 0) return;
  const profile::Span span("start buckets", profile::Kind::phase);
  start_ready();
}

template <class T>
void GradSync<T>::sum_over_threads(std::size_t bucket) {
  const profile::Span span("sum over threads", profile::Kind::phase, names_[bucket].c_str());
  const FlatRange range = buckets_[bucket];
  sum_.add(range);
  if (range.begin != 0) return;
  StepExtras sum;
  for (const StepExtras& e : extras_) sum += e;
  encode(sum, sum_.message().data());
}

template <class T>
void GradSync<T>::start_ready() {
  while (started_ < buckets_.size() && summed_[started_].load(std::memory_order_acquire)) {
    start(started_);
    ++started_;
  }
  for (std::size_t b = 0; b < started_; ++b) {
    if (requests_[b] && !requests_[b]->test()) break;  // requests usually complete in order: one poll is enough
  }
}

template <class T>
void GradSync<T>::start(std::size_t bucket) {
  const FlatRange range = buckets_[bucket];
  const char* name = names_[bucket].c_str();
  const std::span<T> message = sum_.message();
  const auto message_with = [&](std::int64_t front) {
    const auto extras = message.subspan(kExtras - front, front);
    const std::span<T> rows = rows_[bucket].pack(extras, sum_.gradient().template data<T>());
    return !rows.empty() ? rows : message.subspan(kExtras + range.begin - front, range.count() + front);
  };
  if constexpr (std::is_same_v<T, float>) {
    if (compression_ == Compression::bf16) {  // loss and weight keep full precision
      requests_[bucket] = comm_.start_compressed_sum(message_with(0), name);
      if (range.begin == 0) extras_request_ = comm_.start_all_reduce(message.first(kExtras), "loss and weight");
      return;
    }
  }
  requests_[bucket] =
      comm_.start_all_reduce(message_with(range.begin == 0 ? kExtras : 0), name);  // the scalars precede parameter 0
}

template <class T>
void GradSync<T>::drive(const std::atomic<bool>& failed) {
  const profile::Span span("wait for threads", profile::Kind::phase);
  while (started_ < buckets_.size() && !failed.load(std::memory_order_relaxed)) start_ready();
}

template <class T>
void GradSync<T>::finish() {
  start_ready();
  for (auto& request : requests_) {
    request->wait();
    request.reset();
  }
  extras_request_.reset();  // waits
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::int64_t front = buckets_[b].begin == 0 && compression_ == Compression::none ? kExtras : 0;
    rows_[b].unpack(sum_.message().subspan(kExtras - front, front), sum_.gradient().template data<T>());
  }
}

LOCKSTEP_EACH_FLOAT(encode)
LOCKSTEP_EACH_FLOAT(decode)
template class GradSync<float>;
template class GradSync<double>;

}  // namespace lockstep
