#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/optim/gpu_update.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/sign_sgd.hpp"
#include "optim/gpu_update_kernels.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

/// The difference between a tensor on a GPU and a tensor on the host.
Difference distance(const Tensor& gpu, const Tensor& host) { return difference(HostView(gpu), host); }
bool same(const Tensor& gpu, const Tensor& host) { return same_bits(HostView(gpu), host); }

/// Two tables with few touched rows (one of odd size, so that the chunk after it is not aligned; one of several partial
/// sums), a frozen parameter between them, and a parameter of several chunks. In f32 they fill whole blocks of threads.
struct Store {
  Store(DType dtype, Device device) : params(dtype) {
    for (const auto& [name, shape] : {std::pair{"a", Shape{37, 3}},
                                      {"b", Shape{301}},
                                      {"frozen", Shape{5}},
                                      {"c", Shape{119, 40}},
                                      {"d", Shape{5281}}}) {
      Param& p = params.add(name, shape, init::normal(1));
      p.trainable = p.name != "frozen";
      p.row_sparse = shape.rank() == 2;
      p.l2 = p.name == "b" ? 0 : 1e-2;
    }
    params.allocate(5);
    params.move_to(device);
  }
  /// The gradient of step t; in the tables only every third row is not zero.
  OwnedTensor gradient(std::int64_t t) const {
    OwnedTensor g = random_tensor(params.dtype(), {params.flat_size()}, "g", static_cast<std::uint64_t>(t));
    visit_float(params.dtype(), [&]<class T>() {
      std::vector<T> kept(g->data<T>(), g->data<T>() + g->size());
      std::fill_n(g->data<T>(), g->size(), T{0});
      for (const Param& p : params.all())
        for (std::int64_t i = 0; p.trainable && i < p.shape.size(); ++i)
          if (!p.row_sparse || (i / p.shape.columns() + t) % 3 == 0)
            g->data<T>()[p.offset + i] = kept[to_size(p.offset + i)];
    });
    return g;
  }
  ParamStore params;
};

/// Ends a step on a GPU, given the reports of its ranks.
GpuOutcome end_step(const GpuUpdate& update, const Tensor& gradient, const std::vector<double>& words,
                    RankReports reports, const GpuStepRecord& record, Ema* average) {
  const Stream stream(kGpu);
  Arena arena(kGpu);
  const Buffer pinned = Buffer::pinned(sizeof(GpuOutcome));
  auto* const outcome = new (pinned.data()) GpuOutcome;
  const auto [gpu_words, gpu_record] = for_kernels(stream, arena, words, std::span<const GpuStepRecord>(&record, 1));
  reports.bytes = reinterpret_cast<const std::byte*>(gpu_words.data());
  if (update.scaled()) update.open(stream, gpu_record.data());
  update.close(stream, gradient, reports, gpu_record.data(), outcome, average);
  stream.synchronize();
  update.count(*outcome);
  return *outcome;
}

}  // namespace

TEST_SUITE("optim.cuda") {
  TEST_CASE("steps on a GPU have the bits of the CPU, except for the arc tangent in f64" *
            doctest::skip(gpu_count() == 0)) {
    std::vector<OptimizerOptions> all;
    for (const char* name : {"adam", "adamw", "adam_atan2", "sgd"})
      for (const bool lazy : {false, true}) {
        if (lazy && std::string(name) == "adam_atan2") continue;
        all.push_back({.name = name, .weight_decay = 0.01, .lazy = lazy});
      }
    all.push_back({.name = "adam_atan2", .weight_decay = 0.1, .atan2_bias = "paper"});
    all.push_back({.name = "sgd", .weight_decay = 0.01, .momentum = 0});
    for (const OptimizerOptions& options : all)
      for (const DType dtype : {DType::f32, DType::f64})
        for (const bool averaged : {false, true}) {
          CAPTURE(options.name);
          CAPTURE(options.lazy);
          CAPTURE(averaged);
          Store on_cpu(dtype, {}), on_gpu(dtype, kGpu);
          Ema ema(on_cpu.params, 0.9), gpu_ema(on_gpu.params, 0.9);
          const auto optimizer = make_optimizer(options, on_cpu.params, trainable_ranges(on_cpu.params));
          const auto gpu = make_optimizer(options, on_gpu.params, trainable_ranges(on_gpu.params));
          for (int t = 0; t < 3; ++t) {
            const OwnedTensor g = on_cpu.gradient(t);
            optimizer->step(g, 0.05, 0.7, averaged ? &ema : nullptr);
            gpu->step(on_device(g, kGpu), 0.05, 0.7, averaged ? &gpu_ema : nullptr);
          }
          const bool exact = options.name != "adam_atan2" || dtype == DType::f32;
          const auto check = [&](const Tensor& found, const Tensor& expected) {
            if (exact)
              CHECK(same(found, expected));
            else
              CHECK(distance(found, expected) < 1e-15);
          };
          check(on_gpu.params.values(), on_cpu.params.values());
          check(gpu_ema.flat(), ema.flat());
          REQUIRE(gpu->state().size() == optimizer->state().size());
          for (std::size_t i = 0; i < gpu->state().size(); ++i) {
            CHECK(gpu->state()[i].name == optimizer->state()[i].name);
            check(gpu->state()[i].value, optimizer->state()[i].value);
          }
        }
  }

  TEST_CASE("averages and weights are swapped on a GPU, with the hashes of the CPU" * doctest::skip(gpu_count() == 0)) {
    Store on_cpu(DType::f32, {}), on_gpu(DType::f32, kGpu);
    const auto optimizer = make_optimizer({.name = "sgd"}, on_cpu.params, trainable_ranges(on_cpu.params));
    const auto gpu = make_optimizer({.name = "sgd"}, on_gpu.params, trainable_ranges(on_gpu.params));
    Ema ema(on_cpu.params, 0.5), gpu_ema(on_gpu.params, 0.5);
    optimizer->step(on_cpu.gradient(0), 0.1, 1, &ema);
    gpu->step(on_device(on_cpu.gradient(0), kGpu), 0.1, 1, &gpu_ema);
    CHECK(gpu_ema.hash() == ema.hash());
    CHECK(on_gpu.params.hash() == on_cpu.params.hash());
    const std::uint64_t weights = on_cpu.params.hash(), average = ema.hash();
    gpu_ema.exchange(on_gpu.params);
    CHECK(on_gpu.params.hash() == average);
    CHECK(gpu_ema.hash() == weights);
  }

  TEST_CASE("norms and penalties on a GPU agree with the CPU, and the penalty's gradient has the same bits" *
            doctest::skip(gpu_count() == 0)) {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool lazy : {false, true}) {
        const Store on_cpu(dtype, {}), on_gpu(dtype, kGpu);
        const OwnedTensor g = on_cpu.gradient(1), gpu_g = on_device(g, kGpu);
        const std::vector<FlatRange> ranges = trainable_ranges(on_cpu.params);
        CHECK(ranges.size() == 2);
        CHECK(gradient_norm(gpu_g, ranges) == Approx(gradient_norm(g, ranges)).epsilon(1e-14));
        CHECK(gradient_norm(gpu_g, ranges) == gradient_norm(gpu_g, ranges));
        CHECK(gradient_norm(gpu_g, {}) == 0);
        CHECK(add_penalty(on_gpu.params, gpu_g, 3, lazy) ==
              Approx(add_penalty(on_cpu.params, g, 3, lazy)).epsilon(1e-14));
        CHECK(same(gpu_g, g));
      }
  }

  TEST_CASE("a penalty is right for a table with more rows than a grid" * doctest::skip(gpu_count() == 0)) {
    constexpr std::int64_t kRows = 33000;
    ParamStore on_cpu(DType::f32), on_gpu(DType::f32);
    for (ParamStore* params : {&on_cpu, &on_gpu}) {
      Param& p = params->add("table", {kRows, 1}, init::normal(1));
      p.row_sparse = true;
      p.l2 = 1e-2;
      params->allocate(5);
    }
    on_gpu.move_to(kGpu);
    const OwnedTensor g(DType::f32, {kRows});
    fill_zero(Stream(), g);
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{5}, kRows - 1}) g->data<float>()[row] = 1;
    const OwnedTensor gpu_g = on_device(g, kGpu);
    for (const bool lazy : {true, false}) {
      add_penalty(on_gpu, gpu_g, 3, lazy);
      add_penalty(on_cpu, g, 3, lazy);
      CHECK(same(gpu_g, g));
    }
  }

  TEST_CASE("a step of several ranks that a GPU ends has the bits of the host's calls on this GPU" *
            doctest::skip(gpu_count() == 0)) {
    constexpr double kWeights[][3] = {{2, 0.5, 3}, {0.25, 0.5, 0}, {0, 0, 0}, {1, 4, 2}};  // of steps and ranks
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool lazy : {false, true})
        for (const double clip : {0.0, 0.01, 20.0}) {  // the last one is up to twice the norm
          CAPTURE(lazy);
          CAPTURE(clip);
          Store by_host(dtype, kGpu), by_gpu(dtype, kGpu);
          Ema ema(by_host.params, 0.9), gpu_ema(by_gpu.params, 0.9);
          const std::vector<FlatRange> ranges = trainable_ranges(by_host.params);
          const auto optimizer = make_optimizer({.lazy = lazy}, by_host.params, ranges);
          const auto gpu = make_optimizer({.lazy = lazy}, by_gpu.params, ranges);
          const bool scaled = lazy, doubles = lazy;
          const LossScale scale = {.value = 64};
          const GpuUpdate update(by_gpu.params, gpu.get(), ranges, {.clip_norm = clip, .lazy = lazy, .scaled = scaled});
          for (int t = 0; t < 4; ++t) {
            CAPTURE(t);
            std::vector<double> words;  // of three ranks with two micro-batches
            double weight = 0, loss = 0;
            for (int rank = 0; rank < 3; ++rank) {
              words.insert(words.end(), {kWeights[t][rank], rank == 2 ? 4.0 : 1.0});
              weight += kWeights[t][rank];
              for (const double of_micro : {1.25 + rank, 0.375 * t}) {
                const auto single = static_cast<float>(of_micro);
                words.push_back(of_micro);
                if (dtype == DType::f32 && !doubles) std::memcpy(&words.back(), &single, sizeof single);
                loss += of_micro;
              }
            }
            const OwnedTensor g = on_device(Store(dtype, {}).gradient(t), kGpu), gpu_g = on_device(g, kGpu);
            GpuStepRecord record{.samples = 5};
            update.describe(record, 0.05, scale, 0);
            const GpuOutcome found =
                end_step(update, gpu_g, words, {.ranks = 3, .micros = 2, .doubles = doubles}, record, &gpu_ema);
            CHECK(found.weight == weight);
            CHECK(found.flags == 5);
            CHECK(found.skipped + found.failed == 0);
            if (weight > 0) {
              const double summed = weight * (scaled ? scale.of_sum(5) : 1);
              loss += weight * add_penalty(by_host.params, g, summed, lazy);
              const double norm = gradient_norm(g, ranges) / summed;
              optimizer->step(g, 0.05, clip_scale(norm, clip) / summed, &ema);
              CHECK(found.norm == norm);
              CHECK(same(gpu_g, on_cpu(g)));
            }
            CHECK(found.loss == loss);
          }
          CHECK(same(by_gpu.params.values(), on_cpu(by_host.params.values())));
          CHECK(same(gpu_ema.flat(), on_cpu(ema.flat())));
          for (std::size_t i = 0; i < gpu->state().size(); ++i)
            CHECK(same(gpu->state()[i].value, on_cpu(optimizer->state()[i].value)));
        }
  }

  TEST_CASE("a GPU that decides adds the many partial sums of a large gradient in the host's order" *
            doctest::skip(gpu_count() == 0)) {
    constexpr std::int64_t kSize = 511 * 4096;  // a sum for each thread of a block, and one less
    ParamStore params(DType::f32);
    params.add("p", {kSize + 7}, init::zeros());
    params.allocate(5);
    params.move_to(kGpu);
    const auto optimizer = make_optimizer({.name = "sgd", .momentum = 0}, params, {{0, kSize}});
    const std::vector<FlatRange> ranges = {{0, kSize}, {kSize, kSize + 7}};
    const GpuUpdate update(params, optimizer.get(), ranges, {});
    GpuStepRecord record;
    update.describe(record, 0.1, {}, 0);
    const OwnedTensor g = on_device(random_tensor(DType::f32, {params.flat_size()}, "g"), kGpu);
    CHECK(end_step(update, g, {1, 0, 1}, {.doubles = true}, record, nullptr).norm == gradient_norm(g, ranges));
  }

  TEST_CASE("of several elements that are not finite the first is named, and no weight moves until the host knows" *
            doctest::skip(gpu_count() == 0)) {
    Store store(DType::f32, kGpu);
    const std::vector<FlatRange> ranges = trainable_ranges(store.params);
    const auto optimizer = make_optimizer({}, store.params, ranges);
    const GpuUpdate update(store.params, optimizer.get(), ranges, {});
    const OwnedTensor host = Store(DType::f32, {}).gradient(0), good = on_device(host, kGpu);
    const auto end = [&](const OwnedTensor& g, int open_steps) {
      GpuStepRecord record;
      update.describe(record, 0.1, {}, open_steps);
      return end_step(update, on_device(g, kGpu), {1, 0, 1}, {.doubles = true}, record, nullptr);
    };
    const std::uint64_t before = store.params.hash();
    for (const std::int64_t first : {300, 0, 1}) {  // of three threads
      CAPTURE(first);
      const OwnedTensor bad = on_cpu(good);
      bad->data<float>()[first] = std::numeric_limits<float>::quiet_NaN();
      for (const int later : {700, 556, 5000}) bad->data<float>()[later] = std::numeric_limits<float>::infinity();
      const GpuOutcome failed = end(bad, 0);
      CHECK(failed.failed == 1);
      CHECK(failed.bad_element == first);
      CHECK(std::isnan(failed.bad_value));
      const GpuOutcome next = end(good, 1);
      CHECK(next.failed == 0);
      CHECK(next.bad_element == -1);
      CHECK(store.params.hash() == before);
    }
    end(good, 0);
    CHECK(store.params.hash() != before);
  }

  TEST_CASE("a norm over many elements repeats bit for bit, and a non-finite element is named" *
            doctest::skip(gpu_count() == 0)) {
    Store on_gpu(DType::f32, kGpu);
    const OwnedTensor many = random_tensor(DType::f32, {300001}, "many"), gpu_many = on_device(many, kGpu);
    CHECK(gradient_norm(gpu_many, {{0, 300001}}) == Approx(gradient_norm(many, {{0, 300001}})).epsilon(1e-13));
    CHECK(gradient_norm(gpu_many, {{3, 7}, {5000, 200003}}) ==
          Approx(gradient_norm(many, {{3, 7}, {5000, 200003}})).epsilon(1e-13));
    CHECK(first_non_finite(on_gpu.params, on_gpu.params.values()).empty());
    {
      const HostView host(on_gpu.params.at("c").value, HostView::Access::write);
      host->data<float>()[17] = std::numeric_limits<float>::infinity();
    }
    CHECK(first_non_finite(on_gpu.params, on_gpu.params.values()) == "c[17] = inf");
    CHECK(std::isinf(gradient_norm(on_gpu.params.values(), trainable_ranges(on_gpu.params))));
  }

  TEST_CASE("sign descent on rows has the bits of the CPU" * doctest::skip(gpu_count() == 0)) {
    const OwnedTensor ids(DType::i32, {300});
    for (int i = 0; i < 300; ++i) ids->data<std::int32_t>()[i] = i % 7 == 0 ? 4 : i % 5;
    for (const DType dtype : {DType::f32, DType::f64}) {
      const OwnedTensor table = random_tensor(dtype, {9, 131}, "table"), g = random_tensor(dtype, {300, 131}, "g");
      const OwnedTensor shadow = random_tensor(dtype, {9, 131}, "shadow");
      visit_float(dtype, [&]<class T>() {
        for (int i = 0; i < 300; ++i) g->data<T>()[i * 131 + 7] = 0;  // a column without a sign
      });
      const OwnedTensor gpu_table = on_device(table, kGpu), gpu_shadow = on_device(shadow, kGpu);
      Arena scratch;
      sign_sgd_rows(scratch, table, ids, g, 0.01, 0.1, shadow);
      sign_sgd_rows(scratch, gpu_table, on_device(ids, kGpu), on_device(g, kGpu), 0.01, 0.1, gpu_shadow);
      CHECK(same(gpu_table, table));
      CHECK(same(gpu_shadow, shadow));
      CHECK(same(shadow->slice(0, 5), table->slice(0, 5)));
      CHECK_FALSE(same(shadow->slice(5, 4), table->slice(5, 4)));  // no sample uses them
    }
  }

  TEST_CASE("deferred steps that a GPU takes alone, from padded lists, have the bits of the CPU" *
            doctest::skip(gpu_count() == 0)) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Store on_cpu(dtype, {}), on_gpu(dtype, kGpu);
      const auto all = [](Store& s) { return std::vector<RowsOf>{{&s.params.at("a")}, {&s.params.at("c")}}; };
      LazyAdam adam({.name = "adam"}, on_cpu.params, all(on_cpu)), gpu({.name = "adam"}, on_gpu.params, all(on_gpu));
      const Stream stream(kGpu);
      Arena arena(kGpu);
      constexpr std::int64_t kList = 32;  // of c they fill five blocks
      for (int t = 0; t < 40; ++t) {
        CAPTURE(t);
        std::vector<std::int32_t> rows;
        for (std::int32_t row = 0; row < 37; ++row)
          if ((row * 7 + t * 3) % 5 == 0) rows.push_back(row);
        std::vector<std::int32_t> padded = rows;
        padded.resize(kList, -1);
        const auto count = std::ssize(rows);
        arena.reset();
        adam.begin_step(1e-3, 0.5);  // after which catch_up() would include this step
        const LazyNow now = gpu.describe(1e-3, 0);
        StepScalars scalars = gpu.scalars(1e-3, gpu.steps() + 1);
        scalars[0] = 0.5;
        visit_float(dtype, [&]<class T>() {
          optim_kernels::UpdateNow<T> update = {.scalars = {}, .moves = true};
          for (std::size_t i = 0; i < scalars.size(); ++i) update.scalars[i] = static_cast<T>(scalars[i]);
          const optim_kernels::UpdateNow<T> still = {.scalars = {}, .moves = false};
          const auto [gpu_rows, gpu_now, gpu_update, gpu_still] =
              for_kernels(stream, arena, padded, std::span<const LazyNow>(&now, 1),
                          std::span<const optim_kernels::UpdateNow<T>>(&update, 1),
                          std::span<const optim_kernels::UpdateNow<T>>(&still, 1));
          std::vector<RowsNow> tables;
          std::vector<OwnedTensor> gradients;
          for (const char* name : {"c", "a"}) {
            if (t % 4 == 3 && *name == 'c') continue;  // the other rows fit into one block
            const Param &here = on_cpu.params.at(name), &there = on_gpu.params.at(name);
            const OwnedTensor g =
                random_tensor(dtype, {kList, here.shape.columns()}, name, static_cast<std::uint64_t>(t));
            adam.update(here, rows, g->slice(0, count));
            tables.push_back({&there, gpu_rows, gradients.emplace_back(on_device(g, kGpu))});
          }
          gpu.enqueue_catch_up(tables, gpu_now.data());
          gpu.enqueue_update(tables, gpu_now.data(), gpu_still.data());  // nothing
          gpu.enqueue_update(tables, gpu_now.data(), gpu_update.data());
          stream.synchronize();
        });
        gpu.set_steps(gpu.steps() + 1);
        if (t != 25 && t != 39) continue;
        adam.flush();
        gpu.flush();
        for (const char* name : {"a", "c"}) CHECK(same(on_gpu.params.at(name).value, on_cpu.params.at(name).value));
        for (std::size_t i = 0; i < adam.state().size(); ++i) CHECK(same(gpu.state()[i].value, adam.state()[i].value));
      }
    }
  }
}
