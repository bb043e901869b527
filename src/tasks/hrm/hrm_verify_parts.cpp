#include "tasks/hrm/hrm_verify_parts.hpp"

#include "lockstep/base/quantile.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/ops/sequence_loss.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sign_sgd.hpp"
#include "lockstep/tasks/hrm/puzzle_sampler.hpp"

namespace lockstep {

namespace {
/// A copy on a device.
OwnedTensor on_device(Device device, const Tensor& host) {
  OwnedTensor there(host.dtype(), host.shape(), device);
  const Stream stream(device);
  copy(stream, there, host);
  stream.synchronize();
  return there;
}

/// The reference's draws of one iteration.
class RecordedDraws final : public PuzzleDraws {
 public:
  RecordedDraws(const PuzzlePart& part, const H5File& file, const std::string& group)
      : part_(part),
        order_(file.read<std::int64_t>(group + "/group_order")),
        pick_(file.read<std::int64_t>(group + "/puzzle_pick")),
        choice_(file.read<std::int64_t>(group + "/choice_concat")) {
    std::int64_t at = 0;
    for (const std::int64_t length : file.read<std::int64_t>(group + "/choice_len")) begin_.push_back(at), at += length;
    begin_.push_back(at);
  }
  std::int64_t group(std::int64_t visit) const override { return order_.at(static_cast<std::size_t>(visit)); }
  std::int64_t puzzle(std::int64_t visit, std::int64_t) const override {
    return pick_.at(static_cast<std::size_t>(visit)) - part_.first_puzzle(group(visit));
  }
  std::int64_t example(std::int64_t visit, std::int64_t, std::int64_t i) const override {
    return choice_.at(static_cast<std::size_t>(begin_.at(static_cast<std::size_t>(visit)) + i));
  }

 private:
  const PuzzlePart& part_;
  std::vector<std::int64_t> order_, pick_, choice_, begin_;
};
}  // namespace

void verify_hrm_rules(Verifier& v, const H5File& file, Device device) {
  constexpr double kExact = 1e-12;
  const std::vector<double> start = file.read<double>("/adam_atan2/param0"), g = file.read<double>("/adam_atan2/grads"),
                            rates = file.read<double>("/adam_atan2/lr");
  const auto n = std::ssize(start);
  for (const std::string& name : file.list("/adam_atan2")) {
    const std::string group = "adam_atan2/" + name;
    if (!file.is_group("/" + group)) continue;
    ParamStore params(DType::f64);
    const Param& p = params.add("p", {n}, [&](const Philox&, std::uint64_t i) { return start[i]; });
    params.allocate(0);
    params.move_to(device);
    OptimizerOptions options{.name = "adam_atan2", .atan2_bias = name.substr(0, name.find('_'))};
    options.beta1 = file.real_attribute("/" + group, "beta1"),
    options.beta2 = file.real_attribute("/" + group, "beta2");
    options.weight_decay = file.real_attribute("/" + group, "weight_decay");
    const auto optimizer = make_optimizer(options, params, trainable_ranges(params));
    const OwnedTensor gradient(DType::f64, {params.flat_size()});
    std::vector<double> values, m, squares;
    for (std::size_t t = 0; t < rates.size(); ++t) {
      std::copy_n(g.begin() + static_cast<std::ptrdiff_t>(t) * n, n, gradient->data<double>());
      optimizer->step(on_device(device, gradient), rates[t]);
      for (const auto& [to, from] : {std::pair{&values, p.value}, std::pair{&m, optimizer->state()[0].value},
                                     std::pair{&squares, optimizer->state()[1].value}}) {
        const std::vector<double> now = doubles(from);
        to->insert(to->end(), now.begin(), now.end());
      }
    }
    v.relative(group, "param", values, kExact);
    v.relative(group, "exp_avg", m, kExact);
    v.relative(group, "exp_avg_sq", squares, kExact);
  }

  std::vector<std::int32_t> ids = file.read<std::int32_t>("/sign_sgd/ids");
  std::vector<double> weights = file.read<double>("/sign_sgd/weights"), rows = file.read<double>("/sign_sgd/grads");
  const auto used = std::ssize(ids), columns = std::ssize(rows) / used, all = std::ssize(weights) / columns;
  Arena scratch;
  const OwnedTensor table = on_device(device, Tensor::of(weights.data(), {all, columns}));
  sign_sgd_rows(scratch, table, on_device(device, Tensor::of(ids.data(), {used})),
                on_device(device, Tensor::of(rows.data(), {used, columns})), file.real_attribute("/sign_sgd", "lr"),
                file.real_attribute("/sign_sgd", "weight_decay"));
  v.relative("sign_sgd", "weights_after", table, kExact);

  std::vector<double> schedule = file.read<double>("/lr_schedule/table");
  for (std::size_t row = 0; row < schedule.size(); row += 6) {
    double* r = &schedule[row];
    r[5] = LrSchedule({.name = "cosine",
                       .unit = "step",
                       .warmup = static_cast<std::int64_t>(r[1]),
                       .total = static_cast<std::int64_t>(r[2]),
                       .origin = 1,
                       .min_ratio = r[3]},
                      r[0])
               .lr(static_cast<std::int64_t>(r[4]) - 1, 0);
  }
  v.relative("lr_schedule", "table", schedule, kExact);

  const std::vector<double> u = file.read<double>("/trunc_normal/u01");
  for (const std::string name : {"std0", "std1"}) {
    std::vector<double> values;
    for (const double each : u)
      values.push_back(truncated_normal(each, file.real_attribute("/trunc_normal/" + name, "std")));
    v.relative("trunc_normal", name, values, kExact);
  }

  const auto labels = file.read<std::int32_t>("/losses/labels");
  std::vector<double> logits = file.read<double>("/losses/logits");
  const auto positions = std::ssize(labels);
  OwnTape tape(DType::f64, Tape::Mode::forward, nullptr, device);
  for (const ops::TokenLoss loss : {ops::TokenLoss::stablemax, ops::TokenLoss::softmax}) {
    const std::int64_t classes = std::ssize(logits) / positions;
    const OwnedTensor x = on_device(device, Tensor::of(logits.data(), {positions, 1, classes}));
    const Tensor dx = tape.keep(x->shape());
    const auto scores = tape.host_arena().array<ops::SequenceScore>(positions);
    ops::sequence_loss(tape.stream(), dx, scores, x, Tensor::of(tape.keep(std::span(labels)).data(), {positions, 1}),
                       loss);
    tape.stream().synchronize();
    std::vector<double> values;
    for (const ops::SequenceScore& score : scores) values.push_back(score.loss);
    const std::string name = std::string(lockstep::name(loss)) + "_cross_entropy";
    v.relative("losses", name, values, kExact);
    v.relative("losses", name + "_dlogits", dx, kExact);
  }
}

void verify_hrm_sampler(Verifier& v, const H5File& file) {
  LocalDataMemory data_memory;
  const std::string data = "/sampler/data/";
  PuzzleData puzzles;
  const std::vector<std::int64_t> shape = file.info(data + "inputs").shape;
  puzzles.seq_len = shape[1];
  puzzles.ignore_label_id = 0;
  PuzzlePart part;
  const auto bytes = [&](const std::string& name) {
    const auto values = file.read<std::int32_t>(data + name);
    return place(data_memory, std::vector<std::uint8_t>(values.begin(), values.end()), Shape(shape));
  };
  const auto indices = [&](const std::string& name) {
    const std::vector<std::int64_t> values = file.read<std::int64_t>(data + name);
    return place(data_memory, values, {std::ssize(values)});
  };
  part.inputs = bytes("inputs"), part.labels = bytes("labels");
  part.puzzle_indices = indices("puzzle_indices"), part.group_indices = indices("group_indices");
  const auto ids = file.read<std::int32_t>(data + "puzzle_identifiers");
  part.puzzle_identifiers = place(data_memory, ids, {std::ssize(ids)});
  const std::int64_t batch = file.int_attribute("/sampler", "global_batch_size"),
                     visits = file.int_attribute("/sampler", "epochs_per_iter") * part.groups();
  for (const std::string world : {"world1", "world2", "world3"})
    for (const std::string& rank : file.list("/sampler/train/" + world))
      for (const std::string& iteration : file.list("/sampler/train/" + world + "/" + rank)) {
        const PuzzleBatches batches(part, 1, visits, batch,
                                    std::make_unique<RecordedDraws>(part, file, "/sampler/draws/" + iteration));
        const std::int64_t share = batch / (world.back() - '0'), first = share * (rank.back() - '0');
        std::vector<double> inputs, labels, identifiers;
        std::vector<PuzzleExample> rows(share);
        std::vector<std::int32_t> in(shape[1]), out(in.size());
        for (std::int64_t b = 0; b < batches.count(); ++b) {
          batches.rows(b, first, rows);
          for (const PuzzleExample& row : rows) {
            puzzles.read(row, in, out);
            inputs.insert(inputs.end(), in.begin(), in.end());
            for (const std::int32_t label : out) labels.push_back(label < 0 ? -100 : label);
            identifiers.push_back(row.identifier);
          }
        }
        const std::string group = "sampler/train/" + world + "/" + rank + "/" + iteration;
        v.relative(group, "inputs", inputs, 0);
        v.relative(group, "labels", labels, 0);
        v.relative(group, "puzzle_identifiers", identifiers, 0);
      }
}

}  // namespace lockstep
