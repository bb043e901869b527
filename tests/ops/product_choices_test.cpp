#include "lockstep/ops/product_choices.hpp"

#include "lockstep/device/graph.hpp"
#include "lockstep/ops/gemm.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

/// While an object lives, products are tuned, and the stand-in offers algorithms of these durations.
class Tuned {
 public:
  explicit Tuned(const char* algorithms) {
    offer(algorithms);
    ops::tune_products(true);
  }
  Tuned(const Tuned&) = delete;
  ~Tuned() {
    ops::tune_products(false);
    ::unsetenv(kVariable);
  }
  static void offer(const char* algorithms) { ::setenv(kVariable, algorithms, 1); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_CUDA_HOST_PRODUCTS";
};

/// c (M, N) += a (M, K) b (K, N) on the GPU, from fixed numbers.
class Multiplication {
 public:
  explicit Multiplication(std::int64_t m, DType dtype = DType::f32)
      : a_(on_device(random_tensor(dtype, {m, 40}, "a"), kGpu)),
        b_(on_device(random_tensor(dtype, {40, 6}, "b"), kGpu)),
        before_(random_tensor(dtype, {m, 6}, "c")),
        c_(dtype, {m, 6}, kGpu) {}
  void enqueue(bool accumulate) { ops::gemm_nn(stream_, {c_, accumulate}, a_, b_); }
  std::vector<float> result(bool accumulate = false) {
    copy(stream_, c_, before_);
    stream_.synchronize();
    enqueue(accumulate);
    return values();
  }
  std::vector<float> values() {
    stream_.synchronize();
    const OwnedTensor host = converted(on_cpu(c_), DType::f32);
    return {host->data<float>(), host->data<float>() + host->size()};
  }
  Stream& stream() { return stream_; }

 private:
  Stream stream_{kGpu};
  OwnedTensor a_, b_, before_, c_;
};

/// The result by the stand-in's algorithm of this number alone.
std::vector<float> by_algorithm(int number, std::int64_t m, bool accumulate = false) {
  const Tuned tuned(number == 0 ? "1" : number == 1 ? "9,1" : "9,9,1");
  return Multiplication(m).result(accumulate);
}

}  // namespace

TEST_SUITE("ops.product_choices.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("tuned products agree with those of the library's first choice, also where they add to the result") {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const bool accumulate : {false, true})
        for (const std::int64_t rows : {1, 70, 514}) {
          CAPTURE(name(dtype));
          CAPTURE(accumulate);
          CAPTURE(rows);
          const std::vector<float> expected = Multiplication(rows, dtype).result(accumulate);
          const Tuned tuned("4,3,2,5");
          Multiplication product(rows, dtype);
          for (int i = 0; i < 2; ++i) {  // the first one is timed
            const std::vector<float> got = product.result(accumulate);
            const double tolerance = is_half(dtype) ? 2e-2 : 3e-6;
            for (std::size_t j = 0; j < got.size(); ++j)
              CHECK(got[j] == doctest::Approx(expected[j]).epsilon(tolerance));
          }
        }
  }

  TEST_CASE("choices are recalled: another thread, and one whose timings differ, have the same bits") {
    std::vector<std::string> choices;
    std::vector<float> expected, added;
    {
      const Tuned tuned("3,2,1");
      expected = Multiplication(70).result();
      added = Multiplication(70).result(true);
      choices = ops::product_choices();
    }
    CHECK(choices.size() == 1);  // a product and one that adds share an algorithm
    CHECK(ops::product_choices().empty());
    std::thread([&] {
      const Tuned tuned("1,2,3");
      CHECK(ops::recall_product_choices(kGpu, choices) == 1);
      CHECK(ops::product_choices() == choices);
      CHECK(Multiplication(70).result() == expected);
      CHECK(Multiplication(70).result(true) == added);
      CHECK(ops::product_choices() == choices);
      (void)Multiplication(71).result();  // a new shape is timed
      CHECK(ops::product_choices().size() == 2);
    }).join();
  }

  TEST_CASE("choices of another GPU have no effect, and stay recorded") {
    const Tuned tuned("1,2");
    const std::string other = "cuBLASLt 1, a GPU of the future: nn f32 f32 70x6x40 align 256 = 00";
    CHECK(ops::recall_product_choices(kGpu, {other}) == 0);
    (void)Multiplication(70).result();
    const std::vector<std::string> choices = ops::product_choices();
    CHECK(choices.size() == 2);
    CHECK(choices.front() == other);
    CHECK_THROWS_WITH_AS(ops::recall_product_choices(kGpu, {"nonsense"}),
                         doctest::Contains("'nonsense' names no algorithm"), Error);
  }

  TEST_CASE("a captured product is not timed and can be launched") {
    const Tuned tuned("2,1");
    Multiplication product(70);
    const std::vector<float> first = product.result();  // the scratch memory exists now
    ops::tune_products(true);
    Graph graph;
    REQUIRE(graph.capture(product.stream(), [&] { product.enqueue(false); }));
    CHECK(ops::product_choices().size() == 1);
    graph.launch(product.stream());
    const std::vector<float> got = product.values();
    for (std::size_t j = 0; j < got.size(); ++j) CHECK(got[j] == doctest::Approx(first[j]).epsilon(3e-6));
  }
}

TEST_SUITE("ops.product_choices.fastest.cuda" * doctest::skip(!on_stand_in())) {
  TEST_CASE("the fastest algorithm is chosen; without tuning the first one") {
    const std::vector<float> first = by_algorithm(0, 70), second = by_algorithm(1, 70), third = by_algorithm(2, 70);
    CHECK(first != second);  // the algorithms add in different orders
    CHECK(first != third);
    CHECK(second != third);
    {
      const Tuned tuned("3,1,2");
      CHECK(Multiplication(70).result() == second);
    }
    {
      const Tuned tuned("3,3,2");
      CHECK(Multiplication(70).result() == third);
      ops::tune_products(false);
      CHECK(Multiplication(70).result() == first);
    }
    CHECK(Multiplication(70).result() == first);
  }

  TEST_CASE("an algorithm must beat the first one by more than times vary") {
    const std::vector<float> first = by_algorithm(0, 70);
    const Tuned tuned("1,0.99");
    CHECK(Multiplication(70).result() == first);
  }

  TEST_CASE("algorithms that fail, are refused or need too much memory are left out, also the first one") {
    const std::vector<float> third = by_algorithm(2, 70);
    for (const char* algorithms : {"9,fails,1", "9,large,1", "9,refused,1", "large,fails,1", "9,9,1,fails"}) {
      CAPTURE(algorithms);
      const Tuned tuned(algorithms);
      CHECK(Multiplication(70).result() == third);
    }
    const Tuned tuned("fails,fails");
    CHECK_THROWS_AS(Multiplication(70).result(), Error);
  }

  TEST_CASE("an accumulated product is added once, whichever algorithm is chosen") {
    const std::vector<float> second = by_algorithm(1, 70, true);
    const Tuned tuned("3,1,2");
    Multiplication product(70);
    CHECK(product.result(true) == second);
    CHECK(product.result(true) == second);
  }

  TEST_CASE("row counts that share a plan share its algorithm, unless it suits only one of them") {
    const std::vector<float> second = by_algorithm(1, 514);
    const Tuned tuned("3,1");
    (void)Multiplication(516).result();
    CHECK(Multiplication(514).result() == second);
    (void)Multiplication(515).result();  // the stand-in's algorithms suit no other odd shape
    CHECK(ops::product_choices().size() == 1);
  }
}
