#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/comm_share.hpp"
#include "apps/lockstep/commands.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/doctor/communication_check.hpp"
#include "lockstep/doctor/doctor.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

int run_comm_test(World& world, const Args& args) {
  constexpr double kTimeout_s = 30, kShareOfBudget = 0.4;
  std::int64_t max_bytes = 0;
  double budget_s = 0;
  bool json = false, doctor = false;
  std::string site;
  RunConfig config;
  Options options(
      "lockstep comm-test", "Test the communication of this allocation: correctness, latency, bandwidth, slow ranks.",
      "The command compares the result of every collective with the expected one, and exits with 0 only if all are "
      "correct. If no rank or link is slow either, the report is one line; --log-level detail prints the tables. "
      "The command times messages of growing size: the time of a collective is that of its slowest rank. For "
      "comparison it shows the raw link, the data that every rank sends to the next one in that time. It proposes a "
      "bucket size, and marks ranks that take 1.5 times the median time in a fixed computation and links that are 1.5 "
      "times slower than the median. With a configuration it also runs training steps, and shows which part of a step "
      "is communication, now and with other bucket sizes. Start it like the training: with the same launcher, nodes "
      "and ranks. The longest wait in a collective is 30 s unless --timeout is set.");
  options.add("max-bytes", &max_bytes, std::int64_t{16} << 20, at_least(8), "size of the longest message")
      .unit("bytes");
  options
      .add("budget", &budget_s, 10, positive,
           "time limit of the test; later messages are not timed. The steps of a model take another 0.4 times this "
           "limit, and pairs of hosts (--doctor) once more this limit")
      .unit("s");
  options.add("json", &json, false, "print one JSON object instead of tables");
  options.add(
      "doctor", &doctor, false,
      "also measure pairs of hosts and the memory of each host, compare them with the nominal rates of the interfaces, "
      "and name settings that slow communication down or can break it; with --device cuda also check NCCL's protocols");
  options
      .add("write-site", &site, "",
           "with --doctor: file for slurm/sites/ with the settings for this network, such as slurm/sites/here.sh; jobs "
           "use it with SITE=here")
      .value_name("FILE");
  options.example("srun --mpi=pmix lockstep comm-test --doctor --write-site slurm/sites/here.sh",
                  "find network problems and write the site file; one rank per node is enough");
  options.example("mpirun -n 2 lockstep comm-test", "two ranks on this machine");
  options.example("srun --mpi=pmix lockstep comm-test --max-bytes 64MiB --json", "on an allocation, for a script");
  options.example("srun --mpi=pmix lockstep comm-test --config configs/sasrec-ml1m.ini",
                  "also the cost of communication for this model");
  if (!parse(world, options, args, config)) return 0;
  world.together("checking the options", [&] {
    require_usage(site.empty() || doctor, "option write-site = ", site, ": only with --doctor");
    if (!site.empty() && world.rank() == 0) require_writable(site);
  });
  const bool with_model = !Options::config_files(args).empty() || !config.data.path.empty();
  if (with_model) world.together("checking the configuration", [&] { check(config); });

  WorldOptions limits = world.options();
  limits.timeout_s = options.given("dist.timeout") ? config.dist.timeout : kTimeout_s;
  world.configure(limits);
  const StopSignals signals;  // of a job that stops during its preflight: the check ends anyway
  const CommReport report = comm_test(world, {.max_bytes = static_cast<std::size_t>(max_bytes), .budget_s = budget_s});
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(comm_test_json(report));
  const bool brief = report.passed() && !report.slow() && log::detail() != LogDetail::all;
  std::string text = brief ? comm_test_line(report) : comm_test_text(report);
  if (doctor) {
    DoctorOptions about{.budget_s = budget_s, .file_system = {}, .device = {}};
    world.together("choosing the device", [&] {
      about.device = choose_device(world, config.run.device, config.dist.gpu_ids);
      about.file_system = shared_file_system(std::filesystem::current_path());
    });
    const DoctorReport found = examine(world, about);
    out["doctor"] = nlohmann::ordered_json::parse(doctor_json(found));
    text += doctor_text(found);
    world.together("writing the site file", [&] {
      if (!site.empty() && world.rank() == 0) {
        write_text_atomically(site, site_file(found));
        log::info("site file: ", site);
      }
    });
  }
  if (with_model) {
    const int threads = prepare_cpu(world, config);
    LocalDataMemory data_memory;
    const std::unique_ptr<Task> model = load_task(world, config, data_memory);
    const CommShare share = comm_share(world, config, *model, report, threads, kShareOfBudget * budget_s);
    out["model"] = comm_share_json(share);
    text += comm_share_text(share);
  }
  if (world.rank() == 0) std::cout << (json ? out.dump(2) + "\n" : text) << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
