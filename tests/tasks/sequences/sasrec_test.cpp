#include "lockstep/models/sequences/sasrec.hpp"

#include "lockstep/nn/own_tape.hpp"
#include "lockstep/tasks/sequences/sequence_sampler.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "support/gradcheck.hpp"
#include "support/sequence_file.hpp"
#include "support/test.hpp"
#include "tasks/evaluation.hpp"

namespace {

/// A small network that uses every feature.
SasRecArch small(const std::function<void(SasRecArch&)>& change = {}) {
  SasRecArch arch;
  arch.items = 80;
  arch.slots = 9;
  arch.hidden = 6;
  arch.heads = 2;
  arch.time_span = 5;
  arch.streams = 3;
  arch.dropout = 0.3;
  if (change) change(arch);
  return arch;
}

/// All variants with different formulas.
std::vector<SasRecArch> variants() {
  using Norm = SasRecArch::Norm;
  using PadMask = SasRecArch::PadMask;
  using Mhc = SasRecArch::Mhc;
  const auto timed = [](SasRecArch& a) { a.timed = true, a.norm = Norm::original; };
  return {
      small(),
      small([](SasRecArch& a) { a.norm = Norm::post; }),
      small([](SasRecArch& a) { a.norm = Norm::original; }),
      small([](SasRecArch& a) { a.pad_mask = PadMask::none; }),
      small([](SasRecArch& a) { a.mhc = Mhc::streams; }),
      small([](SasRecArch& a) { a.mhc = Mhc::collapsed, a.norm = Norm::post; }),
      small(timed),
      small([&](SasRecArch& a) { timed(a), a.time_dropout = ops::TimeBuckets::Drop::table; }),
      small([&](SasRecArch& a) { timed(a), a.pad_mask = PadMask::query, a.ffn_residual = false; }),
      small([&](SasRecArch& a) { timed(a), a.mhc = Mhc::streams; }),
      small([&](SasRecArch& a) { timed(a), a.mhc = Mhc::collapsed, a.pad_mask = PadMask::query; }),
  };
}

/// Features of every token of these users' training windows.
std::vector<double> features(const SasRec& net, const SequenceData& data, const std::vector<std::int64_t>& users,
                             std::vector<std::int64_t>* begin = nullptr) {
  OwnTape tape(net.params());
  std::vector<UserHistory> histories;
  for (const std::int64_t user : users) histories.push_back(data.history(user, Seen::training));
  const SequenceBatch batch = newest_batch(tape.arena(), net.arch().window(), histories);
  if (begin) begin->assign(batch.begin.data<std::int64_t>(), batch.begin.data<std::int64_t>() + users.size() + 1);
  const Tensor f = net.features(tape, batch, {}).value();
  std::vector<double> values;
  visit_float(f.dtype(), [&]<class T>() { values.assign(f.data<T>(), f.data<T>() + f.size()); });
  return values;
}

}  // namespace

TEST_SUITE("tasks.sasrec") {
  TEST_CASE("the gradient of each variant, with dropout, agrees with finite differences") {
    const SequenceData data = read_set(gap_sessions(6));
    int variant = 0;
    for (const SasRecArch& arch : variants()) {
      CAPTURE(variant++);
      SasRec net(arch, DType::f64, 4);
      const Philox noise(8, 0, "test.perturb");
      for (Param& p : net.params().all()) {  // moves biases, gates and norms away from their initial values
        const std::int64_t skip = p.name == "item_emb.weight" || p.name == "pos_emb.weight" ? p.shape.columns() : 0;
        for (std::int64_t i = skip; i < p.shape.size(); ++i)
          p.value.data<double>()[i] += 0.2 * noise.normal(static_cast<std::uint64_t>(p.offset + i));
      }
      Gradients gradients(net.params());
      const auto loss = [&](bool backward) {
        OwnTape tape(DType::f64, Tape::Mode::train, &gradients);
        const SequenceBatch batch =
            training_batch(tape.arena(), data, arch.window(), {.seed = 3, .step = 5, .count = 4});
        const Var sum = net.loss(tape, net.features(tape, batch, {.training = true, .seed = 3, .step = 5}), batch);
        if (backward) tape.backward(sum);
        return *sum.value().data<double>();
      };
      gradients.zero();
      loss(true);
      // 4th-order differences along one random direction per parameter.
      for (Param& p : net.params().all()) {
        CAPTURE(p.name);
        const std::int64_t skip = p.name == "item_emb.weight" || p.name == "pos_emb.weight" ? p.shape.columns() : 0;
        std::vector<double> direction(to_size(p.shape.size()), 0);
        double along = 0;
        const OwnedTensor gradient = unpacked(gradients, p);
        for (std::int64_t i = skip; i < p.shape.size(); ++i) {
          const double d = noise.normal(static_cast<std::uint64_t>(100000 + p.offset + i));
          direction[to_size(i)] = d;
          along += d * gradient->data<double>()[i];
        }
        const std::vector<double> start(p.value.data<double>(), p.value.data<double>() + p.shape.size());
        const auto at = [&](double step) {
          for (std::size_t i = 0; i < start.size(); ++i) p.value.data<double>()[i] = start[i] + step * direction[i];
          return loss(false);
        };
        const double h = 2e-6;  // small enough to rarely cross a kink of the ReLU
        const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        at(0);
        CHECK(along == Approx(slope).epsilon(2e-6).scale(1 + std::abs(slope)));
      }
    }
  }

  TEST_CASE("an item never changes a bit of the outputs before it") {
    for (const SasRecArch& arch : variants()) {
      if (arch.pad_mask == SasRecArch::PadMask::none) continue;  // a score of -1000 does not exclude later keys
      const SasRec net(arch, DType::f32, 2);
      for (const std::size_t changed : {0, 3, 6}) {
        std::vector<std::int32_t> items = {5, 9, 17, 3, 44, 60, 7, 1, 2};  // seven are training items
        std::vector<std::int64_t> times = {0, 10, 10, 30, 31, 90, 95, 99, 100};
        const std::vector<double> before = features(net, read_set(sequence_set({items}, 80, {times})), {0});
        items[changed] = 70;
        const std::vector<double> after = features(net, read_set(sequence_set({items}, 80, {times})), {0});
        const std::size_t padding = arch.padded() ? 2 : 0, width = 6;
        const auto cut = static_cast<std::ptrdiff_t>((padding + changed) * width);
        CHECK(std::equal(before.begin(), before.begin() + cut, after.begin()));
        CHECK_FALSE(std::equal(before.begin() + cut, before.end(), after.begin() + cut));
      }
    }
  }

  TEST_CASE("a sample's bits do not depend on the other samples of the batch") {
    const SequenceData data = read_set(gap_sessions(12));
    for (const SasRecArch& arch : variants()) {
      const SasRec net(arch, DType::f32, 2);
      std::vector<std::int64_t> begin;
      const std::vector<double> all = features(net, data, {0, 1, 2, 3, 4, 5, 6, 7}, &begin);
      for (const std::int64_t user : {0, 3, 7}) {
        const std::vector<double> alone = features(net, data, {user});
        CHECK(std::equal(alone.begin(), alone.end(), all.begin() + 6 * begin[to_size(user)]));
      }
    }
  }

  TEST_CASE("padding changes nothing: packed and padded computation agree") {
    const SequenceData data =
        read_set(sequence_set({{5, 9, 17, 1, 2}, {3, 8, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, 80));
    // For the user whose window is full, all modes of the mask agree.
    SasRecArch padded = small([](SasRecArch& a) { a.pad_mask = SasRecArch::PadMask::none; });
    const SasRec packed_net(small(), DType::f64, 2), padded_net(padded, DType::f64, 2);
    const auto last = [&](const SasRec& net, std::int64_t user) {
      OwnTape tape(net.params());
      const std::vector<UserHistory> history = {data.history(user, Seen::training)};
      const SequenceBatch batch = newest_batch(tape.arena(), net.arch().window(), history);
      const Tensor f = net.features(tape, batch, {}).value();
      return std::vector<double>(f.data<double>() + f.size() - 6, f.data<double>() + f.size());
    };
    const std::vector<double> a = last(packed_net, 2), b = last(padded_net, 2);
    for (std::size_t k = 0; k < 6; ++k) CHECK(a[k] == Approx(b[k]).epsilon(1e-12));
    // More slots than events only shift the positions: with equal positions, the values have the same bits.
    SasRecArch wide = small([](SasRecArch& a) { a.slots = 20; });
    SasRec more(wide, DType::f64, 2);
    for (const Param& p : packed_net.params().all()) {
      const bool positions = p.name == "pos_emb.weight";
      const std::int64_t shift = positions ? 11 * 6 : 0;
      std::copy_n(p.value.data<double>(), p.shape.size(), more.params().at(p.name).value.data<double>() + shift);
    }
    for (const std::int64_t user : {0, 1}) CHECK(last(packed_net, user) == last(more, user));
  }

  TEST_CASE("the newest token's features are those of the whole pass, in every bit") {
    const SequenceData data = read_set(gap_sessions(6));
    std::vector<UserHistory> histories;
    for (const std::int64_t user : {3, 0, 5}) histories.push_back(data.history(user, Seen::training));
    int variant = 0;
    for (const SasRecArch& form : variants())
      for (const bool recompute : {false, true}) {
        CAPTURE(variant++);
        SasRecArch arch = form;
        arch.recompute = recompute;
        const SasRec net(arch, DType::f32, 4);
        OwnTape tape(net.params());
        const SequenceBatch batch = newest_batch(tape.arena(), arch.window(), histories);
        const Tensor all = net.features(tape, batch, {}).value(), newest = net.newest(tape, batch);
        REQUIRE(newest.shape() == Shape{std::ssize(histories), arch.hidden});
        for (std::int64_t b = 0; b < std::ssize(histories); ++b)
          CHECK(same_bits(newest.slice(b, 1), all.slice(batch.begin.data<std::int64_t>()[b + 1] - 1, 1)));
      }
  }
  TEST_CASE("recomputing blocks changes no bit of loss and gradient, and takes less memory") {
    const SequenceData data = read_set(gap_sessions(12));
    for (SasRecArch arch : variants()) {
      arch.blocks = 4;
      const auto pass = [&](bool recompute, std::size_t* bytes) {
        arch.recompute = recompute;
        const SasRec net(arch, DType::f32, 4);
        Gradients gradients(net.params());
        OwnTape tape(net.params().dtype(), Tape::Mode::train, &gradients);
        const SequenceBatch batch =
            training_batch(tape.arena(), data, arch.window(), {.seed = 3, .step = 5, .count = 9});
        const Var sum = net.loss(tape, net.features(tape, batch, {.training = true, .seed = 3, .step = 5}), batch);
        tape.backward(sum);
        *bytes = tape.arena().high_water_bytes();
        std::vector<double> values;
        visit_float(sum.value().dtype(), [&]<class T>() {
          values = {static_cast<double>(*sum.value().data<T>())};
          values.insert(values.end(), gradients.flat().data<T>(), gradients.flat().data<T>() + gradients.flat().size());
        });
        return values;
      };
      std::size_t kept = 0, less = 0;
      CHECK(pass(false, &kept) == pass(true, &less));
      CHECK(less < 0.7 * static_cast<double>(kept));
    }
  }

  TEST_CASE("unsupported combinations of modes are refused") {
    const auto refused = [](const std::function<void(SasRecArch&)>& change) {
      CHECK_THROWS_AS(SasRec(small(change), DType::f32, 0), Error);
    };
    refused([](SasRecArch& a) { a.heads = 4; });
    refused([](SasRecArch& a) { a.pad_mask = SasRecArch::PadMask::query; });
    refused([](SasRecArch& a) { a.timed = true; });
    refused([](SasRecArch& a) { a.mhc = SasRecArch::Mhc::streams, a.pad_mask = SasRecArch::PadMask::none; });
    refused([](SasRecArch& a) { a.ffn_residual = false; });
  }

  TEST_CASE("parameters() is the number of registered parameters") {
    for (const SasRecArch& arch : variants()) CHECK(SasRec(arch, DType::f32, 0).params().count() == arch.parameters());
  }
}

TEST_SUITE("tasks.sequence_task") {
  TEST_CASE("ranking metrics agree with their definition, sampled and full") {
    SequenceData data = read_set(gap_sessions(40));
    const std::int64_t items = data.n_items;
    SequenceTask model(
        {.arch = small(), .ranking = {.full = true, .both = true, .candidates = 5, .at = {1, 10}}, .seed = 1},
        std::move(data));
    // Scores of all items from the newest features, computed directly.
    double hits = 0, ndcg = 0, reciprocal = 0;
    const Tensor table = model.network().item_table().value;
    for (std::int64_t user = 0; user < 40; ++user) {
      std::vector<std::int64_t> begin;
      OwnTape again(DType::f32);
      const std::vector<UserHistory> history = {model.data().history(user, Seen::validation)};
      const SequenceBatch batch = newest_batch(again.arena(), model.network().arch().window(), history);
      const Tensor f = model.network().features(again, batch, {}).value();
      const auto score = [&](std::int32_t item) {
        double sum = 0;
        for (int k = 0; k < 6; ++k)
          sum += static_cast<double>(f.data<float>()[f.size() - 6 + k]) *
                 static_cast<double>(table.data<float>()[6 * item + k]);
        return sum;
      };
      const std::int32_t target = model.data().target(Split::test, user);
      int place = 0;
      for (std::int32_t item = 1; item <= items; ++item)
        place += !has_had(model.data(), user, item, Seen::everything) && score(item) > score(target);
      hits += place < 10;
      ndcg += place < 10 ? 1 / std::log2(place + 2.0) : 0;
      reciprocal += place < 10 ? 1 / (place + 1.0) : 0;
    }
    const std::vector<Metric> metrics =
        model.metrics(Split::test, evaluation_sums(model, Split::test, {40}, DType::f32));
    CHECK(metrics[0].name == "ndcg@1");
    CHECK(metrics[3].name == "ndcg@10");
    CHECK(metrics[3].value == Approx(ndcg / 40).epsilon(1e-6));
    CHECK(metrics[4].value == Approx(hits / 40).epsilon(1e-6));
    CHECK(metrics[5].name == "mrr@10");
    CHECK(metrics[5].value == Approx(reciprocal / 40).epsilon(1e-6));
    CHECK(metrics[7].name == "ties");
    CHECK(metrics[7].value < 1e-3);
    CHECK(metrics[8].name == "candidates");
    CHECK(metrics[8].value < static_cast<double>(items));
    CHECK(metrics[12].name == "sampled-5.ndcg@10");

    // The metrics of the other ranking are those of a run that ranks so.
    SequenceData same = read_set(gap_sessions(40));
    SequenceTask sampled({.arch = small(), .ranking = {.candidates = 5, .at = {1, 10}}, .seed = 1}, std::move(same));
    const std::vector<Metric> alone =
        sampled.metrics(Split::test, evaluation_sums(sampled, Split::test, {40}, DType::f32));
    for (std::size_t k = 0; k < 6; ++k) {
      CHECK(metrics[9 + k].name == "sampled-5." + alone[k].name);
      CHECK(metrics[9 + k].value == alone[k].value);
    }
    CHECK(alone[8].value == 5);
  }

  TEST_CASE("each loss draws what it needs, and more negatives than other items are refused") {
    for (const auto kind :
         {ItemLoss::Kind::bce, ItemLoss::Kind::gbce, ItemLoss::Kind::sampled_softmax, ItemLoss::Kind::softmax}) {
      SasRecArch arch = small([&](SasRecArch& a) { a.loss.kind = kind, a.loss.negatives = 4; });
      SequenceData data = read_set(sequence_set({{1, 2, 3, 4, 5}, {2, 3, 1, 5, 4}}, 5));
      SequenceTask model({.arch = arch, .seed = 1}, std::move(data));
      CHECK(model.params().at("item_emb.weight").row_sparse == (kind != ItemLoss::Kind::softmax));
      Gradients gradients(model.params());
      OwnTape tape(DType::f32, Tape::Mode::train, &gradients);
      const ShardLoss loss = model.loss(tape, {.seed = 1, .count = 2});
      CHECK(loss.weight == 4);
      CHECK(model.facts().size() == (kind == ItemLoss::Kind::bce ? 1 : 0));
      CHECK(std::isfinite(*loss.sum.value().data<float>()));
      tape.backward(loss.sum);
      if (kind == ItemLoss::Kind::bce || kind == ItemLoss::Kind::softmax) continue;
      arch.loss.negatives = 5;
      SequenceData few = read_set(sequence_set({{1, 2, 3, 4, 5}, {2, 3, 1, 5, 4}}, 5));
      CHECK_THROWS_WITH_AS(SequenceTask({.arch = arch}, std::move(few)),
                           doctest::Contains("option loss.negatives = 5: the data set has 5 items"), Error);
    }
  }

  TEST_CASE("a timed model needs a data set with times") {
    SequenceData data = read_set(sequence_set({{1, 2, 3, 4}}, 80));
    SasRecArch arch = small([](SasRecArch& a) { a.timed = true, a.norm = SasRecArch::Norm::original; });
    CHECK_THROWS_AS(SequenceTask({.arch = arch}, std::move(data)), Error);
  }
}
