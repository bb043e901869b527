#include <limits>

#include "lockstep/device/cuda_launch.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// The candidates of a user in shared memory. The capacity is a power of two.
template <class T>
struct Candidates {
  T* score;
  std::int32_t* item;
  int capacity;
  /// Equal scores are ordered by ascending item.
  __device__ bool before(int a, int b) const {
    return score[a] > score[b] || (score[a] == score[b] && item[a] < item[b]);
  }
  __device__ void exchange(int a, int b) const {
    const T s = score[a];
    const std::int32_t i = item[a];
    score[a] = score[b];
    item[a] = item[b];
    score[b] = s;
    item[b] = i;
  }
  /// Sorts best first with all threads of the block (Batcher's bitonic network). Elements from `count` on count as
  /// worst.
  __device__ void sort(int count) const {
    for (int i = count + static_cast<int>(threadIdx.x); i < capacity; i += kThreads) {
      score[i] = -std::numeric_limits<T>::infinity();
      item[i] = std::numeric_limits<std::int32_t>::max();
    }
    for (int run = 2; run <= capacity; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < capacity; i += kThreads) {
          const int other = i ^ distance;
          if (other > i && before(other, i) == ((i & run) == 0)) exchange(i, other);
        }
      }
    }
    __syncthreads();
  }
};

/// One block per user. 256 scores at a time are compared with the K-th best so far. The few that are above it are
/// collected; when the list is full, it is sorted and cut to K. Items come in ascending order, so an item that only
/// equals the K-th best is not better. The order in which threads add candidates varies, but the kept set does not.
/// Reads each score once, from the second-level cache where the product has just written it.
template <class T>
__global__ void __launch_bounds__(kThreads) keep_best_kernel(gpu::Earlier earlier, BestItems<T> a, int capacity) {
  earlier.wait();
  __shared__ int sm_count;
  const Candidates<T> sm = {.score = reinterpret_cast<T*>(sm_bytes),
                            .item = reinterpret_cast<std::int32_t*>(sm_bytes + capacity * sizeof(T)),
                            .capacity = capacity};
  const std::int64_t user = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), k = static_cast<int>(a.k);
  T *row = a.scores + user * a.width, *best = a.best + user * a.k;
  std::int32_t* items = a.item + user * a.k;
  const T worst = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = a.left_ptr[user] + thread; i < a.left_ptr[user + 1]; i += kThreads) {
    const std::int64_t item = a.left_out[i] - a.first;
    if (item >= 0 && item < a.width) row[item] = worst;
  }
  int count = a.first == 0 ? 0 : a.found[user];
  for (int i = thread; i < count; i += kThreads) {
    sm.score[i] = best[i];
    sm.item[i] = items[i];
  }
  if (thread == 0) sm_count = count;
  __syncthreads();
  T threshold = count == k ? sm.score[k - 1] : worst;
  for (std::int64_t first = 0; first < a.width; first += kThreads) {
    const std::int64_t i = first + thread;
    const T score = i < a.width ? row[i] : worst;
    if (score > threshold) {
      const int place = atomicAdd(&sm_count, 1);
      sm.score[place] = score;
      sm.item[place] = static_cast<std::int32_t>(a.first + i);
    }
    __syncthreads();
    count = sm_count;
    __syncthreads();
    if (count + kThreads <= capacity && first + kThreads < a.width) continue;
    sm.sort(count);
    count = count < k ? count : k;
    if (count == k) threshold = sm.score[k - 1];
    if (thread == 0) sm_count = count;
    __syncthreads();
  }
  for (int i = thread; i < k; i += kThreads) {
    if (i < count) best[i] = sm.score[i];
    items[i] = i < count ? sm.item[i] : -1;
  }
  if (thread == 0) a.found[user] = count;
}

}  // namespace

template <class T>
void keep_best(const Stream& stream, const BestItems<T>& best) {
  if (best.users == 0 || best.k == 0 || best.width == 0) return;
  int capacity = 2 * kThreads;
  while (capacity < best.k + kThreads) capacity *= 2;
  gpu::launch(stream,
              {.grid = best.users,
               .block = kThreads,
               .shared_bytes = static_cast<std::size_t>(capacity) * (sizeof(T) + sizeof(std::int32_t))},
              keep_best_kernel<T>, best, capacity);
}

LOCKSTEP_EACH_FLOAT(keep_best)

}  // namespace lockstep::ops::cuda
