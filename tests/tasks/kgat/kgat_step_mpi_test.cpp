#include "support/devices.hpp"
#include "support/mpi_gpus.hpp"
#include "support/test.hpp"
#include "tasks/kgat/graph_set.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace {

/// Users with few items, a few popular entities, parallel relations.
struct Toy : GraphSet {
  static constexpr std::int32_t kItems = 33, kEntities = 57;
  Toy() : Toy(Draws{}) {}

 private:
  struct Draws {
    Draws() {
      const auto below = [this](std::int64_t n) {
        return static_cast<std::int32_t>(draw.below(static_cast<std::uint64_t>(n), at++));
      };
      for (std::int64_t u = 0; u < 41; ++u) {
        std::set<std::int32_t> mine;
        for (std::int64_t i = 0; i < u % 6; ++i) mine.insert(below(kItems));
        of_users.emplace_back(mine.begin(), mine.end());
      }
      std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> triples;
      while (triples.size() < 90)
        triples.insert({below(kEntities), below(3), below(2) ? below(kEntities) : kItems + below(3)});
      for (const auto& [h, r, t] : triples) kg.push_back({h, r, t});
    }
    Philox draw{3, 0, "toy"};
    std::uint64_t at = 0;
    std::vector<std::vector<std::int32_t>> of_users;
    std::vector<Triple> kg;
  };
  explicit Toy(const Draws& d) : GraphSet(kEntities, kItems, d.of_users, d.kg, 3) {}
};

struct Trained {
  std::unique_ptr<Kgat> net;
  std::vector<double> losses, norms;
  std::vector<OwnedTensor> states;
  std::int64_t received = 0;
};

struct Setup {
  ops::Aggregator aggregator = ops::Aggregator::bi_interaction;
  DType dtype = DType::f32;
  std::vector<double> message_dropout = {};
  double node_dropout = 0;
  std::optional<DType> storage = {};
  Device device = {};
  bool reproducible = false;
  Backend backend = Backend::automatic;
};

struct Mode {
  KgatMode mode = KgatMode::replicate;
  double row_threshold = 0.7;
  bool shares_tables = true;  ///< in the memory of the host; otherwise rows travel in messages
};

/// Two epochs of 3 and 2 steps on interactions, 3 and 2 on triples, then three alternating steps.
Trained train(Communicator& comm, const Toy& toy, const Mode& mode, const Setup& setup) {
  KgatArch arch = {.nodes = toy.data.nodes(),
                   .relations = toy.data.graph.relations,
                   .edges = toy.data.graph.nnz(),
                   .embed_dim = 10,
                   .relation_dim = 7,
                   .conv_dims = {9, 6, 5},
                   .aggregator = setup.aggregator};
  Trained t;
  t.net = std::make_unique<Kgat>(arch, setup.dtype, 5);
  laplacian(toy.data.graph, Laplacian::random_walk, t.net->adjacency().value);
  KgatStepOptions options;
  options.mode = mode.mode;
  options.row_threshold = mode.row_threshold;
  options.cf_l2 = options.kg_l2 = 1e-2;
  options.message_dropout = setup.message_dropout;
  options.node_dropout = setup.node_dropout;
  options.seed = 8;
  options.clip_norm = 1;
  options.reproducible = setup.reproducible;
  options.backend = setup.backend;
  options.timeout_s = 300;
  if (mode.shares_tables) options.world = &test_world();
  t.net->params().move_to(setup.device);
  KgatPropagation propagation(*t.net, toy.data.graph, setup.storage);
  KgatStep step(comm, *t.net, propagation, options);
  const KgatSampler sampler(toy.data, 12);
  CfBatch cf;
  KgBatch kg;
  std::int64_t number = 0;
  const auto note = [&](const KgatStepResult& result) {
    t.losses.push_back(result.loss);
    t.norms.push_back(result.norm);
    ++number;
  };
  const auto step_cf = [&] {
    sampler.interactions(number, 6, cf, toy.data.entities);
    note(step.step_cf(cf, number, 1e-2));
  };
  const auto step_kg = [&](std::int64_t size) {
    sampler.triples(number, size, kg);
    note(step.step_kg(kg, 1e-2));
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 3 - epoch; ++i) step_cf();
    for (int i = 0; i < 3 - epoch; ++i) step_kg(13 + 130 * i);
    step.refresh_adjacency();
  }
  step_kg(13);
  step_cf();
  step_kg(13);
  step.settle();
  for (Optimizer* optimizer : {&step.cf_optimizer(), &step.kg_optimizer()})
    for (const NamedTensor& s : optimizer->state()) t.states.push_back(on_cpu(s.value));
  t.net->params().move_to(Device{});
  t.received = step.exchange().received_bytes();
  return t;
}

void compare(const Setup& setup) {
  const Toy toy;
  const auto self = make_self_communicator();
  const Trained alone = train(*self, toy, {}, setup);
  for (const double loss : alone.losses) CHECK(std::isfinite(loss));
  CHECK(alone.losses.front() != alone.losses.back());
  std::int64_t shared = 0;  // bytes received when tables are shared
  for (const Mode& mode : {Mode{}, Mode{KgatMode::nested_rows, 0}, Mode{KgatMode::nested_rows, 1},
                           Mode{KgatMode::nested_rows, 0.7}, Mode{KgatMode::nested_rows, 0.7, false}}) {
    if (setup.device.is_cuda() && mode.row_threshold == 1) continue;  // a product's bits may depend on its rows
    CAPTURE(static_cast<int>(mode.mode));
    CAPTURE(mode.row_threshold);
    const Trained together = train(test_world().communicator(), toy, mode, setup);
    CHECK(together.losses == alone.losses);
    CHECK(together.norms == alone.norms);
    CHECK(same_bits(together.net->params().values(), alone.net->params().values()));
    bool same = together.states.size() == alone.states.size();
    for (std::size_t i = 0; same && i < alone.states.size(); ++i) same = same_bits(together.states[i], alone.states[i]);
    CHECK(same);
    const bool moves = mode.mode != KgatMode::replicate && test_world().size() > 1;
    CHECK((together.received > 0) == moves);
    if (mode.shares_tables)
      shared = together.received;
    else if (!setup.device.is_cuda())
      CHECK((together.received > shared) == moves);
  }
}

}  // namespace

TEST_SUITE("tasks.kgat_step") {
  TEST_CASE("every mode on any number of ranks trains to the same bits") { compare({}); }
  TEST_CASE("every aggregator trains to the same bits in every mode, with dropout of messages and edges") {
    for (const ops::Aggregator aggregator :
         {ops::Aggregator::bi_interaction, ops::Aggregator::gcn, ops::Aggregator::graphsage})
      compare({.aggregator = aggregator, .message_dropout = {0.3, 0.2, 0.1}, .node_dropout = 0.1});
  }
  TEST_CASE("products that read bf16 train to the same bits in every mode") { compare({.storage = DType::bf16}); }
  TEST_CASE("a GPU trains to the same numbers but for rounding, on every rank to the same bits" *
            doctest::skip(gpu_count() == 0)) {
    const Toy toy;
    const auto self = make_self_communicator();
    for (const ops::Aggregator aggregator :
         {ops::Aggregator::bi_interaction, ops::Aggregator::gcn, ops::Aggregator::graphsage}) {
      Setup setup = {
          .aggregator = aggregator, .dtype = DType::f64, .message_dropout = {0.3, 0.2, 0.1}, .node_dropout = 0.1};
      const Trained cpu = train(*self, toy, {}, setup);
      setup.device = {DeviceKind::cuda, 0};
      const Trained gpu = train(test_world().communicator(), toy, {}, setup),
                    nested = train(*self, toy, {KgatMode::nested_rows}, setup);
      for (const Trained* other : {&gpu, &nested}) {
        REQUIRE(other->losses.size() == cpu.losses.size());
        for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
          CHECK(other->losses[i] == Approx(cpu.losses[i]).epsilon(1e-10));
          CHECK(other->norms[i] == Approx(cpu.norms[i]).epsilon(1e-9));
        }
        CHECK(difference(other->net->params().values(), cpu.net->params().values()) < 1e-9);
        for (std::size_t i = 0; i < cpu.states.size(); ++i) CHECK(difference(other->states[i], cpu.states[i]) < 1e-8);
      }
      const std::uint64_t hash = gpu.net->params().hash();
      Communicator& comm = test_world().communicator();
      CHECK(comm.all_reduced(hash, ReduceOp::min, "hash") == comm.all_reduced(hash, ReduceOp::max, "hash"));
    }
  }

  TEST_CASE("GPU: steps have the same bits in graphs or not, queued ahead or not, drawn by the host or the GPU" *
            doctest::skip(gpu_count() == 0)) {
    const Toy toy;
    const auto self = make_self_communicator();
    struct Found {
      std::vector<KgatStepResult> steps;
      OwnedTensor weights;
    };
    const auto train = [&](Graphs graphs, bool ahead, bool gpu_draws) {
      KgatArch arch = {.nodes = toy.data.nodes(),
                       .relations = toy.data.graph.relations,
                       .edges = toy.data.graph.nnz(),
                       .embed_dim = 8,
                       .relation_dim = 6,
                       .conv_dims = {5}};
      Kgat net(arch, DType::f32, 5);
      laplacian(toy.data.graph, Laplacian::random_walk, net.adjacency().value);
      net.params().move_to(own_gpu());
      KgatPropagation propagation(net, toy.data.graph);
      KgatStepOptions options;
      options.mode = KgatMode::replicate;
      options.message_dropout = {0.3};
      options.node_dropout = 0.1;
      options.clip_norm = 1;
      options.graphs = graphs;
      KgatStep step(*self, net, propagation, options);
      REQUIRE(step.runs_on_gpu());
      const KgatSampler sampler(toy.data, 12);
      const std::optional<KgatTables> tables = sampler.tables(own_gpu(), true);
      REQUIRE(tables);
      CfBatch cf;
      KgBatch kg;
      Found found;
      const auto take = [&](bool last) {
        if (const std::optional<KgatStepResult> result = step.take(last)) found.steps.push_back(*result);
      };
      std::int64_t number = 0;
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (int i = 0; i < 7; ++i) {
          if (gpu_draws) {
            step.start_cf({.count = 6, .table = tables->interactions(toy.data.items, toy.data.entities)},
                          sampler.draw_of(KgatSampler::Batch::interactions, number, 6), number, 1e-2, 2U);
          } else {
            sampler.interactions(number, 6, cf, toy.data.entities);
            step.start_cf(cf, number, 1e-2, 2U);
          }
          ++number;
          take(!ahead);
        }
        take(true);
        for (int i = 0; i < 7; ++i) {
          if (gpu_draws) {
            step.start_kg({.count = 30, .table = tables->triples()},
                          sampler.draw_of(KgatSampler::Batch::triples, number, 30), number, 1e-2);
          } else {
            sampler.triples(number, 30, kg);
            step.start_kg(kg, number, 1e-2);
          }
          ++number;
          take(!ahead);
        }
        take(true);
        step.refresh_adjacency();
      }
      step.settle();
      found.weights = on_cpu(net.params().values());
      return found;
    };
    const Found calls = train(Graphs::off, false, false);
    REQUIRE(calls.steps.size() == 28);
    for (const auto& [ahead, gpu_draws] : {std::pair{false, false}, std::pair{true, false}, std::pair{true, true}}) {
      const Found graphs = train(Graphs::on, ahead, gpu_draws);
      REQUIRE(graphs.steps.size() == calls.steps.size());
      for (std::size_t i = 0; i < calls.steps.size(); ++i) {
        CAPTURE(i);
        CHECK(graphs.steps[i].step == static_cast<std::int64_t>(i));
        CHECK(graphs.steps[i].is_cf == (i % 14 < 7));
        CHECK(graphs.steps[i].flags == (i % 14 < 7 ? 2U : 0U));
        CHECK(graphs.steps[i].loss == calls.steps[i].loss);
        CHECK(graphs.steps[i].norm == calls.steps[i].norm);
      }
      CHECK(same_bits(graphs.weights, calls.weights));
    }
  }

  TEST_CASE("every mode on any number of GPUs trains to the same bits" * doctest::skip(gpu_count() == 0)) {
    // From GPU to GPU, and through the host.
    compare({.message_dropout = {0.3, 0.2, 0.1}, .node_dropout = 0.1, .device = own_gpu(), .reproducible = true});
    compare(
        {.aggregator = ops::Aggregator::graphsage, .device = own_gpu(), .reproducible = true, .backend = Backend::mpi});
    compare({.storage = DType::bf16, .device = own_gpu(), .reproducible = true});
  }

  TEST_CASE("double precision trains to the same bits in every mode") { compare({.dtype = DType::f64}); }
}
