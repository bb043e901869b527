#include "lockstep/proof/proof_writer.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep {

ProofWriter::ProofWriter(const std::filesystem::path& run_dir, const ProofRun& now) : path_(run_dir / kProofFile) {
  chain_ = ProofChain(read_if_there(path_), path_.string());
  chain_.cut(now.step);
  bool begins = chain_.entries().empty();
  if (!begins) {
    const ProofRun& before = chain_.run(now.step);
    const bool own = before.kind == now.kind && before.seed == now.seed && before.data_hash == now.data_hash &&
                     before.parameters == now.parameters;
    require_usage(own, "proof chain ", path_, ": it is of another run (model ", before.kind, ", seed ", before.seed,
                  ", data ", before.data_hash, "; this run: ", now.kind, ", ", now.seed, ", ", now.data_hash,
                  "); remove it");
    ProofRun same = before;
    same.step = now.step;
    const bool gap = chain_.is_cut_before(now.step);
    if (gap)
      log::warning("proof chain ", path_.string(), ": its last link before step ", now.step, " is of step ",
                   chain_.last_link(now.step - 1), ": its end was cut off, and the steps between cannot be proved");
    begins = gap || !(same == now);
  }
  cut(now.step);
  if (begins) append(ProofChain::Entry{.is_run = true, .run = now, .link = {}});
}

void ProofWriter::cut(std::int64_t step) {
  chain_.cut(step);
  if (const std::string text = chain_.text(); text != read_if_there(path_)) write_text_atomically(path_, text);
  file_ = AppendFile(path_);
}

void ProofWriter::append(const ProofLink& link) { append(ProofChain::Entry{.is_run = false, .run = {}, .link = link}); }

void ProofWriter::append(ProofChain::Entry entry) {
  file_.append(chain_.add(std::move(entry)));
  if (file_.failure().empty() == !failing_) return;
  failing_ = !failing_;
  if (failing_) log::warning(file_.failure(), "; the run goes on, and its proof waits in memory until there is space");
}

}  // namespace lockstep
