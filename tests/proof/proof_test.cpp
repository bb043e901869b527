#include "lockstep/proof/proof.hpp"

#include "lockstep/proof/proof_writer.hpp"
#include "support/test.hpp"
#include "support/toy_task.hpp"

namespace {

ProofRun run_at(std::int64_t step) {
  return {.step = step,
          .kind = "toy",
          .data_hash = "000000000000002a",
          .build = "a build",
          .isa = "avx2",
          .device = "cpu",
          .precision = "fp32",
          .seed = 5,
          .every = 10,
          .parameters = {"w0", "w1"}};
}

ProofLink link_at(std::int64_t step, bool last = false) {
  const auto s = static_cast<std::uint64_t>(step);
  return {.step = step, .epoch = step / 30, .position = step % 30, .weights = {s, s + 1}, .optimizer = s, .last = last};
}

/// A chain of steps 0, 10, 20, 30 and of an end at 35.
std::string write_chain() {
  ProofWriter writer(".", run_at(0));
  for (const std::int64_t step : {0, 10, 20, 30}) writer.append(link_at(step));
  writer.append(link_at(35, true));
  return read_text(kProofFile);
}

/// The n-th line of a text, from 0.
std::size_t begin_of(const std::string& text, int line) {
  std::size_t at = 0;
  while (line-- > 0) at = text.find('\n', at) + 1;
  return at;
}

}  // namespace

TEST_SUITE("proof.proof") {
  TEST_CASE("a chain reads back; a start at a step keeps the links up to it, and another kind of machine is recorded") {
    const std::string text = write_chain();
    const ProofChain chain = ProofChain::read(kProofFile);
    CHECK(chain.text() == text);
    REQUIRE(chain.link(20) != nullptr);
    CHECK(*chain.link(20) == link_at(20));
    CHECK(chain.link(35)->last);
    CHECK(chain.run(30) == run_at(0));
    CHECK(chain.last_link(29) == 20);

    ProofWriter again(".", run_at(25));  // on the same machine, so it only cuts the chain
    CHECK(read_text(kProofFile) == text.substr(0, begin_of(text, 4)));
    again.append(link_at(30));
    again.append(link_at(35, true));
    CHECK(read_text(kProofFile) == text);
    const ProofWriter longer(".", run_at(35));  // the run continues past its end
    CHECK(read_text(kProofFile) == text.substr(0, begin_of(text, 5)));

    ProofRun other = run_at(30);
    other.isa = "avx512";
    const ProofWriter moved(".", other);
    const ProofChain both = ProofChain::read(kProofFile);
    CHECK(both.run(29).isa == "avx2");
    CHECK(both.run(30) == other);
  }

  TEST_CASE("a line cut off by a kill is not part of the chain; a changed, removed or added line is named") {
    const std::string text = write_chain();
    CHECK(ProofChain(text.substr(0, text.size() - 5), "c").link(35) == nullptr);
    CHECK(ProofChain(text.substr(0, text.size() - 5), "c").link(30) != nullptr);

    const std::size_t third = begin_of(text, 2), fourth = begin_of(text, 3);
    std::string changed = text;
    changed[changed.find("position=", third) + 9] = '7';
    const std::string broken[] = {changed, text.substr(0, third) + text.substr(fourth),
                                  text.substr(0, fourth) + text.substr(third)};
    const int lines[] = {3, 3, 4};
    for (int i = 0; i < 3; ++i) {
      CHECK(contains(error_of(Fault::data, [&] { ProofChain(broken[i], "c"); }),
                     join("proof chain 'c': line ", lines[i], " does not follow from the lines before")));
    }
    CHECK(contains(error_of(Fault::data, [] { ProofChain("step 1\nstep 2\n", "c"); }),
                   "does not begin with the header of a proof chain"));
    CHECK(contains(error_of(Fault::usage, [&] { ProofChain::read("none"); }), "no such file"));
  }

  TEST_CASE("missing links at the end are noticed, and the chain tells where it continues") {
    const std::string text = write_chain();
    CHECK_FALSE(ProofChain(text, "c").is_cut_before(35));
    write_text(kProofFile, text.substr(0, begin_of(text, 3)));  // 0 and 10
    CHECK(ProofChain::read(kProofFile).is_cut_before(25));
    CHECK_FALSE(ProofChain::read(kProofFile).is_cut_before(20));
    ProofWriter writer(".", run_at(25));
    writer.append(link_at(30));
    const ProofChain chain = ProofChain::read(kProofFile);
    CHECK(chain.run(30).step == 25);
    CHECK_FALSE(chain.is_cut_before(35));
  }

  TEST_CASE("the chain of another run is refused") {
    write_chain();
    ProofRun other = run_at(20);
    other.seed = 6;
    CHECK(
        contains(error_of(Fault::usage, [&] { ProofWriter(".", other); }), "it is of another run (model toy, seed 5"));
  }

  TEST_CASE("a checkpoint is compared with its link: each part that differs is named") {
    ToyTask model(DType::f32, 100, 2);
    const auto optimizer = make_optimizer({.name = "adam"}, model.params(), trainable_ranges(model.params()));
    OwnedTensor gradient(DType::f32, Shape{model.params().flat_size()});
    for (const Param& p : model.params().all()) p.value.data<float>()[0] = gradient->data<float>()[p.offset] = 0.5f;
    optimizer->step(gradient, 0.01);
    TrainState state;
    state.step = 10, state.epoch = 1, state.position = 4, state.epoch_loss = 3;
    const CheckpointParts parts{.model = &model,
                                .params = &model.params(),
                                .optimizers = {{"", optimizer.get()}},
                                .vectors = {},
                                .state = &state,
                                .config = "",
                                .seed = 5,
                                .data_hash = 42};
    ProofWriter writer(".", run_at(0));
    for (const std::int64_t step : {0, 10}) {
      ProofLink link = proof_link(parts);
      link.step = step;
      writer.append(link);
    }
    save_checkpoint("good.h5", parts);
    const auto compare = [&](const char* file) { return writer.chain().compare(CheckpointReader(file)); };
    CHECK(compare("good.h5") == "agrees with the chain");

    model.params().at("w1").value.data<float>()[1] += 0.25f;
    save_checkpoint("weights.h5", parts);
    CHECK(contains(error_of(Fault::data, [&] { compare("weights.h5"); }),
                   "in: weights, first those of 'w1' (1 of 2 arrays);"));
    model.params().at("w1").value.data<float>()[1] -= 0.25f;
    optimizer->state()[0].value.data<float>()[0] += 1;
    save_checkpoint("optimizer.h5", parts);
    CHECK(contains(error_of(Fault::data, [&] { compare("optimizer.h5"); }),
                   "in: optimizer states; it belongs to another run"));
    optimizer->state()[0].value.data<float>()[0] -= 1;

    state.position = 5;  // stopped before the end of its epoch, where the link was made
    save_checkpoint("early.h5", parts);
    CHECK(contains(compare("early.h5"), "the chain has no link of this state"));
    state.step = 31;
    save_checkpoint("late.h5", parts);
    CHECK(contains(error_of(Fault::data, [&] { compare("late.h5"); }), "its last link before step 31 is of step 10"));
    CheckpointParts other = parts;
    other.seed = 6;
    save_checkpoint("other.h5", other);
    CHECK(contains(error_of(Fault::data, [&] { compare("other.h5"); }), "is of another run: its seed is 5"));
  }
}
