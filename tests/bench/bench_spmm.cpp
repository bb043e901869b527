// bench_spmm: our product of a sparse matrix with a dense one against cuSPARSE and a plain copy, on one GPU.
//
// The matrix has the shape of KGAT's for amazon-book: 184078 nodes, 6420520 entries less duplicates, symmetric, a few
// nodes with very many neighbours. The dense matrix has 64 columns. cuSPARSE runs as its manual advises: row-major
// matrices, each of its CSR algorithms in turn, the analysis of the pattern before the clock starts. Both results must
// agree. With bf16 our matrix's values stay f32, and cuSPARSE's become bf16 too, as it requires; the values are chosen
// so that nothing is lost. Rates count a row of x for each entry, although it may come from a cache. They may therefore
// exceed the rate of the copy, whose operands have N MiB each.
#include <cusparse.h>

#include <cstdio>
#include <optional>
#include <string>

#include "bench/timing.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/ops/spmm.hpp"
#include "support/device_array.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;

namespace {

struct Arguments {
  std::int64_t nodes = 0, entries = 0, width = 0, mib = 0;
  double seconds = 0;
  bool json = false;
};

/// A symmetric pattern. Of each pair of neighbours, one is drawn uniformly from the first half of the nodes, the other
/// from the second half, the k-th with a probability proportional to 1/(k + 10).
struct Graph {
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> column;
  std::int64_t most = 0;  ///< entries of the longest row

  Graph(std::int64_t nodes, std::int64_t entries) {
    const std::int64_t half = nodes / 2, others = nodes - half;
    std::vector<double> up_to(static_cast<std::size_t>(others));
    double sum = 0;
    for (std::int64_t k = 0; k < others; ++k)
      up_to[static_cast<std::size_t>(k)] = sum += 1 / (static_cast<double>(k) + 10);
    const Philox random(1, 0, "bench.spmm");
    std::vector<std::uint64_t> places;  // row * 2^32 + column
    for (std::uint64_t draw = 0; draw < static_cast<std::uint64_t>(entries / 2); ++draw) {
      const std::uint64_t a = random.below(static_cast<std::uint64_t>(half), 2 * draw);
      const auto rank = std::upper_bound(up_to.begin(), up_to.end() - 1, sum * random.uniform(2 * draw + 1));
      const auto b = static_cast<std::uint64_t>(half + (rank - up_to.begin()));
      places.push_back(a << 32 | b);
      places.push_back(b << 32 | a);
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    indptr.assign(static_cast<std::size_t>(nodes) + 1, 0);
    for (const std::uint64_t place : places) {
      ++indptr[static_cast<std::size_t>(place >> 32) + 1];
      column.push_back(static_cast<std::int32_t>(place & 0xffffffff));
    }
    for (std::size_t i = 1; i < indptr.size(); ++i) {
      most = std::max(most, indptr[i]);
      indptr[i] += indptr[i - 1];
    }
  }
  std::int64_t nodes() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
  std::int64_t entries() const { return static_cast<std::int64_t>(column.size()); }
};

/// A product that cuSPARSE does not support, with its message.
struct Refused {
  std::string words;
};
void check(cusparseStatus_t status, const char* doing) {
  if (status == CUSPARSE_STATUS_NOT_SUPPORTED) throw Refused{cusparseGetErrorString(status)};
  require(status == CUSPARSE_STATUS_SUCCESS, "cuSPARSE, ", doing, ": ", cusparseGetErrorString(status));
}
cudaDataType type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// y = a x by cuSPARSE, with everything prepared.
class Cusparse {
 public:
  Cusparse(const Stream& stream, const Tensor& y, const void* offsets, cusparseIndexType_t offsets_type,
           std::span<const std::int32_t> column, const Tensor& values, const Tensor& x, cusparseSpMMAlg_t algorithm)
      : algorithm_(algorithm) {
    check(cusparseCreate(&handle_), "starting");
    check(cusparseSetStream(handle_, static_cast<cudaStream_t>(stream.native())), "choosing a stream");
    const auto rows = y.shape()[0], columns = y.shape()[1];
    check(cusparseCreateConstCsr(&a_, rows, x.shape()[0], static_cast<std::int64_t>(column.size()), offsets,
                                 column.data(), values.raw(), offsets_type, CUSPARSE_INDEX_32I,
                                 CUSPARSE_INDEX_BASE_ZERO, type_of(values.dtype())),
          "describing the matrix");
    check(
        cusparseCreateConstDnMat(&x_, x.shape()[0], columns, columns, x.raw(), type_of(x.dtype()), CUSPARSE_ORDER_ROW),
        "describing x");
    check(cusparseCreateDnMat(&y_, rows, columns, columns, y.raw(), type_of(y.dtype()), CUSPARSE_ORDER_ROW),
          "describing y");
    std::size_t size = 0;
    constexpr auto kAsItIs = CUSPARSE_OPERATION_NON_TRANSPOSE;
    check(cusparseSpMM_bufferSize(handle_, kAsItIs, kAsItIs, &kOne, a_, x_, &kZero, y_, CUDA_R_32F, algorithm_, &size),
          "asking for the size of its buffer");
    buffer_.emplace(stream.device(), std::max<std::size_t>(size, 1));
    check(cusparseSpMM_preprocess(handle_, kAsItIs, kAsItIs, &kOne, a_, x_, &kZero, y_, CUDA_R_32F, algorithm_,
                                  buffer_->data()),
          "analysing the matrix");
  }
  ~Cusparse() {
    if (a_ != nullptr) cusparseDestroySpMat(a_);
    if (x_ != nullptr) cusparseDestroyDnMat(x_);
    if (y_ != nullptr) cusparseDestroyDnMat(y_);
    if (handle_ != nullptr) cusparseDestroy(handle_);
  }
  Cusparse(const Cusparse&) = delete;
  Cusparse& operator=(const Cusparse&) = delete;
  void run() const {
    constexpr auto kAsItIs = CUSPARSE_OPERATION_NON_TRANSPOSE;
    check(cusparseSpMM(handle_, kAsItIs, kAsItIs, &kOne, a_, x_, &kZero, y_, CUDA_R_32F, algorithm_, buffer_->data()),
          "multiplying");
  }

 private:
  static constexpr float kOne = 1, kZero = 0;
  cusparseSpMMAlg_t algorithm_;
  cusparseHandle_t handle_ = nullptr;
  cusparseConstSpMatDescr_t a_ = nullptr;
  cusparseConstDnMatDescr_t x_ = nullptr;
  cusparseDnMatDescr_t y_ = nullptr;
  std::optional<Buffer> buffer_;
};

class Bench {
 public:
  explicit Bench(const Arguments& arguments) : o_(arguments), graph_(o_.nodes, o_.entries) {}
  void run() {
    const Buffer to(kGpu, bytes_of_copy()), from(kGpu, bytes_of_copy());
    const double seconds =
        bench::time_of(stream_, o_.seconds, [&] { copy_bytes(stream_, to.data(), from.data(), bytes_of_copy()); });
    copied_ = 2 * static_cast<double>(bytes_of_copy()) / seconds;
    if (!o_.json) {
      std::printf("%lld nodes, %lld entries, %lld in the longest row; %lld columns\n\n",
                  static_cast<long long>(graph_.nodes()), static_cast<long long>(graph_.entries()),
                  static_cast<long long>(graph_.most), static_cast<long long>(o_.width));
      std::printf("%-44s %12s %10s %14s %14s\n", "product", "us", "GB/s", "of the copy", "times ours");
    }
    for (const DType dtype : {DType::f32, DType::bf16}) compare(dtype);
  }

 private:
  static constexpr Device kGpu = {DeviceKind::cuda, 0};
  std::size_t bytes_of_copy() const { return static_cast<std::size_t>(o_.mib) << 20; }

  /// Random f32 numbers on the GPU that bf16 represents exactly.
  OwnedTensor numbers(Shape shape, const char* name) {
    const OwnedTensor host =
        test::converted(test::converted(test::random_tensor(DType::f32, shape, name), DType::bf16), DType::f32);
    OwnedTensor there(DType::f32, shape, kGpu);
    copy_bytes(stream_, there->raw(), host->raw(), static_cast<std::size_t>(shape.size()) * sizeof(float));
    stream_.synchronize();
    return there;
  }
  OwnedTensor in(DType dtype, const Tensor& x) {
    OwnedTensor there(dtype, x.shape(), kGpu);
    ops::cast(stream_, there, x);
    return there;
  }

  void compare(DType dtype) {
    const std::string name = dtype == DType::f32 ? "f32" : "bf16";
    const test::DeviceArray<std::int64_t> indptr_there(graph_.indptr);
    const test::DeviceArray<std::int32_t> short_indptr(
        std::vector<std::int32_t>(graph_.indptr.begin(), graph_.indptr.end()));
    const test::DeviceArray<std::int32_t> column_there(graph_.column);
    const std::span indptr(indptr_there.data(), graph_.indptr.size());
    const std::span column(column_there.data(), graph_.column.size());
    const Shape dense = {graph_.nodes(), o_.width};
    const OwnedTensor values = numbers({graph_.entries()}, "values"), numbers_x = numbers(dense, "x");
    const OwnedTensor x = in(dtype, numbers_x), rivals_values = in(dtype, values);
    const OwnedTensor y(DType::f32, dense, kGpu), rivals_y(DType::f32, dense, kGpu);

    const auto multiply = [&] {
      ops::spmm(stream_, {y, false}, {indptr, column}, values, x, ops::RowSet::range(0, graph_.nodes()));
    };
    const double ours = bench::time_of(stream_, o_.seconds, multiply);
    report(name + ", ours", dtype, ours, ours);

    struct Rival {
      const char* name;
      cusparseSpMMAlg_t algorithm;
      bool wide;  ///< 64-bit offsets, as ours; column numbers have 32 bits
    };
    for (const Rival& rival :
         {Rival{"CSR_ALG1", CUSPARSE_SPMM_CSR_ALG1, false}, Rival{"CSR_ALG2", CUSPARSE_SPMM_CSR_ALG2, false},
          Rival{"CSR_ALG2, 64-bit offsets", CUSPARSE_SPMM_CSR_ALG2, true},
          Rival{"CSR_ALG3", CUSPARSE_SPMM_CSR_ALG3, false}}) {
      const std::string full = name + ", cuSPARSE " + rival.name;
      try {
        zero_bytes(stream_, rivals_y->raw(), static_cast<std::size_t>(dense.size()) * sizeof(float));
        const void* offsets = rival.wide ? static_cast<const void*>(indptr.data()) : short_indptr.data();
        const Cusparse product(stream_, rivals_y, offsets, rival.wide ? CUSPARSE_INDEX_64I : CUSPARSE_INDEX_32I, column,
                               rivals_values, x, rival.algorithm);
        const double seconds = bench::time_of(stream_, o_.seconds, [&] { product.run(); });
        const auto apart = test::difference(HostView(rivals_y), HostView(y));
        require(apart < 1e-5, full, ": differs from ours: ", test::to_string(apart));
        report(full, dtype, seconds, ours);
      } catch (const Refused& refused) {
        if (o_.json)
          std::printf("{\"product\":\"%s\",\"refused\":\"%s\"}\n", full.c_str(), refused.words.c_str());
        else
          std::printf("%-44s refused: %s\n", full.c_str(), refused.words.c_str());
      }
    }
  }

  void report(const std::string& name, DType dtype, double seconds, double ours) const {
    const double per_entry = static_cast<double>(8 + o_.width * static_cast<std::int64_t>(size_bytes(dtype)));
    const double per_row = static_cast<double>(8 + o_.width * 4);
    const double bytes =
        per_entry * static_cast<double>(graph_.entries()) + per_row * static_cast<double>(graph_.nodes());
    if (o_.json)
      std::printf("{\"product\":\"%s\",\"seconds\":%.9g,\"bytes_per_s\":%.6g,\"of_copy\":%.4f,\"times_ours\":%.4f}\n",
                  name.c_str(), seconds, bytes / seconds, bytes / seconds / copied_, seconds / ours);
    else
      std::printf("%-44s %12.1f %10.1f %13.0f%% %14.2f\n", name.c_str(), 1e6 * seconds, bytes / seconds / 1e9,
                  100 * bytes / seconds / copied_, seconds / ours);
  }

  Arguments o_;
  Stream stream_{kGpu};
  Graph graph_;
  double copied_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments o;
  Options options("bench_spmm", "The sparse product compared with cuSPARSE's and with a copy, on one GPU");
  options.add("nodes", &o.nodes, 184078, at_least(2), "rows of the matrix");
  options.add("entries", &o.entries, 6420520, at_least(2), "entries drawn, duplicates included");
  options.add("width", &o.width, 64, positive, "columns of the dense matrix");
  options.add("mib", &o.mib, 256, positive, "MiB of each operand of the copy");
  options.add("seconds", &o.seconds, 0.5, positive, "time of each measurement");
  options.add("json", &o.json, false, "print JSON");
  return bench::run(options, argc, argv, [&] { Bench(o).run(); });
}
