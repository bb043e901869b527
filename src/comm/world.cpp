#include "lockstep/comm/world.hpp"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <thread>

#include "context.hpp"
#include "deadline.hpp"
#include "desk.hpp"
#include "launch.hpp"
#include "lifeline.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "mpi_comm.hpp"
#include "node_memory.hpp"
#include "thread_team.hpp"
#include "watchdog.hpp"

namespace lockstep {

namespace {
constexpr std::size_t kNodeReduceBytes = std::size_t{16} << 20;  // limit of node memory for the slots of all its ranks

std::string short_host() {
  const std::string full = host_name();
  return full.substr(0, full.find('.'));
}

int processors_of_node(MPI_Comm node) {
  // Ranks that are bound to one core each see one CPU; the union of their masks has all CPUs of the node.
  cpu_set_t mine, all;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  check_mpi(MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, node), "counting processors");
  return CPU_COUNT(&all);
}

/// "Open MPI v4.1.4" or "MPICH 4.0.2" of MPI_Get_library_version's text.
std::string library_name(const char* text) {
  std::istringstream words(std::string(std::string_view(text).substr(0, std::string_view(text).find_first_of(",\n"))));
  std::string name, word;
  while (words >> word)
    if (word != "Version:") name += (name.empty() ? "" : " ") + word;
  return name;
}

/// Before the watchdog exists, only MPI can tell the other ranks that this one has failed.
[[noreturn]] void abort_start(int code, const std::string& message) {
  log::error(message);
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}
}  // namespace

struct World::Impl {
  int rank = 0, size = 1, node_rank = 0, node_size = 1, node = 0, nodes = 1;
  std::string host, description = "not initialised (started alone)";
  bool owns_mpi = false, threads_may_call_mpi = false;
  Impl* whole = nullptr;  ///< the world that this one is a part of
  MPI_Comm all = MPI_COMM_WORLD, node_comm = MPI_COMM_NULL, leaders = MPI_COMM_NULL, watch = MPI_COMM_NULL;
  std::vector<int> node_of;
  std::unique_ptr<NodeMemory> shared;  ///< NodeBoard and RankBoard[node_size], unless a part; region of NodeReduce
  NodeBoard* board = nullptr;
  RankBoard *boards = nullptr, *mine = nullptr;  ///< boards: of the node's ranks of the whole world
  std::unique_ptr<CommContext> context;
  std::unique_ptr<NodeReduce> node_reduce;
  std::unique_ptr<Communicator> world, on_node;
  std::unique_ptr<Watchdog> watchdog;
  std::unique_ptr<Lifeline> lifeline;
  std::unique_ptr<Progress> progress;
  std::shared_ptr<ThreadTeam> team;  ///< of a rank that is a thread
  bool guest = false, lost = false;  ///< of another program's communicator; whether a collective of it has failed
  std::timed_mutex changing;
  std::function<bool()> save;  ///< protected by `changing`

  /// Calls `save` once the state does not change, and keeps it so. Returns false if there is none, or if the state
  /// stays in the middle of a change.
  bool rescue();
  void on_loss(std::function<bool()> new_save);
  [[noreturn]] void abort(int exit_code, const std::string& message);

  void start_alone();
  void start_guest(MPI_Comm all, const WorldOptions& options);
  void start_thread(std::shared_ptr<ThreadTeam> all, int number);
  std::shared_ptr<NodeMemory> share_between_threads(std::size_t size_bytes);
  void start_mpi(int* argc, char*** argv, const std::string& launcher, Deadline& deadline);
  void place_on_nodes();
  void share_boards();
  void use_boards(NodeBoard* of_node, RankBoard* of_ranks);
  void connect(const char* channel);
  void free_communicators();
  void watch_other_nodes();
};

void World::Impl::start_alone() {
  if (whole == nullptr) {
    shared = plain_memory(sizeof(NodeBoard) + sizeof(RankBoard));
    auto* of_node = reinterpret_cast<NodeBoard*>(shared->bytes().data());
    use_boards(of_node, reinterpret_cast<RankBoard*>(of_node + 1));
  }
  context = std::make_unique<CommContext>(mine);
  context->hosts = {host};
  world = make_self_communicator();
  on_node = make_self_communicator();
}

void World::Impl::start_guest(MPI_Comm all, const WorldOptions& options) {
  start_alone();
  guest = true;
  check_mpi(MPI_Comm_rank(all, &rank), "MPI_Comm_rank");
  MPI_Comm_size(all, &size);
  if (size == 1) return;
  context->options = options;
  context->while_waiting = [this] {
    const Whereabouts here = boards->whereabouts.load();
    const double waited_s = static_cast<double>(monotonic_ns() - here.since_ns) * 1e-9;
    if (context->options.timeout_s == 0 || waited_s < context->options.timeout_s) return;
    lost = true;
    throw LostRank(Fault::internal,
                   join(here.operation.view(), " '", here.what.view(), "': waited ", context->options.timeout_s,
                        " s (dist.timeout) for another rank, which has ended or does not take part"));
  };
  world = make_mpi_communicator(all, "guest", *context);
}

void World::Impl::start_thread(std::shared_ptr<ThreadTeam> all, int number) {
  team = std::move(all);
  rank = node_rank = number;
  size = node_size = team->size();
  context = std::make_unique<CommContext>(team->board(rank));
  context->crowded = static_cast<int>(std::thread::hardware_concurrency()) < size;
  context->hosts.assign(size, host);
  context->while_waiting = [this] { team->look(rank, context->options.timeout_s); };
  world = make_thread_communicator(team->world, "world", rank, *context);
  on_node = make_thread_communicator(team->node, "node", rank, *context);
}

std::shared_ptr<NodeMemory> World::Impl::share_between_threads(std::size_t size_bytes) {
  std::exception_ptr failure;
  if (rank == 0) {
    try {
      team->shared = plain_memory(size_bytes);
    } catch (...) {
      failure = std::current_exception();
      team->shared = nullptr;
    }
  }
  on_node->barrier("memory of rank 0");
  std::shared_ptr<NodeMemory> memory = team->shared;
  on_node->barrier("sharing memory between threads");
  if (failure) std::rethrow_exception(failure);
  require(memory != nullptr, "sharing ", human_bytes(static_cast<double>(size_bytes)),
          " between threads: rank 0 could not allocate the memory");
  return memory;
}

void World::Impl::start_mpi(int* argc, char*** argv, const std::string& launcher, Deadline& deadline) {
  int ready = 0;
  MPI_Initialized(&ready);
  int provided = MPI_THREAD_SINGLE;
  if (!ready) {
    // If ranks share CPUs, a rank that waits inside MPI must yield. A setting of the user takes precedence.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    // By default Open MPI sends the whole vector up and down a tree for an in-place all-reduce. Between two hosts this
    // is twice, between four hosts 2.7 times the traffic of reduce-scatter and all-gather (Rabenseifner), with as many
    // rounds.
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0);
    // A rank that writes to a dead rank must survive to report the death.
    std::signal(SIGPIPE, SIG_IGN);
    deadline.at("MPI_Init_thread");
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owns_mpi = true;
  } else {
    MPI_Query_thread(&provided);
  }
  threads_may_call_mpi = provided >= MPI_THREAD_MULTIPLE;
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, version = 0, subversion = 0;
  MPI_Get_library_version(library, &length);
  MPI_Get_version(&version, &subversion);
  const char* levels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
  description =
      join(library_name(library), ", MPI ", version, ".", subversion, ", ", levels[std::clamp(provided, 0, 3)]);
  if (size == 1) {
    require_launched_together(launcher, library_name(library));
    return start_alone();
  }

  deadline.at("the placement of the ranks on hosts");
  place_on_nodes();
  deadline.at("the memory that the ranks of a host share");
  share_boards();
  deadline.at("the connection of the ranks");
  connect("world");
  check_mpi(MPI_Comm_dup(all, &watch), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(watch, MPI_ERRORS_RETURN);

  watchdog = std::make_unique<Watchdog>(Watchdog::Setup{.comm = watch,
                                                        .threads_may_call_mpi = threads_may_call_mpi,
                                                        .rank = rank,
                                                        .size = size,
                                                        .node = node,
                                                        .node_rank = node_rank,
                                                        .node_size = node_size,
                                                        .board = board,
                                                        .boards = boards,
                                                        .node_of = node_of,
                                                        .hosts = context->hosts,
                                                        .rescue = [this] { return rescue(); }});
  context->wait_failed = [this](const std::string& why, bool late) { watchdog->wait_failed(why, late); };
  if (threads_may_call_mpi) {
    progress = std::make_unique<Progress>();
    context->progress = progress.get();
  } else {
    context->while_waiting = [this] { watchdog->while_waiting(); };  // only ranks that wait can report to other nodes
  }
  if (nodes > 1) watch_other_nodes();
}

void World::Impl::connect(const char* channel) {
  NodePath path;
  if (node_reduce) {
    path.reduce = node_reduce.get();
    path.leaders = leaders;
    path.several_nodes = nodes > 1;
    path.world_ranks.resize(node_size);
    for (int r = 0, at = 0; r < size; ++r)
      if (node_of[r] == node) path.world_ranks[at++] = r;
  }
  world = make_mpi_communicator(all, channel, *context, path);
  on_node = make_mpi_communicator(node_comm, "node", *context);
}

void World::Impl::on_loss(std::function<bool()> new_save) {
  if (whole != nullptr) whole->on_loss(new_save ? [this] { return rescue(); } : std::function<bool()>());
  const std::unique_lock lock(changing);
  if (watchdog) watchdog->set_saves(static_cast<bool>(new_save));
  save = std::move(new_save);
}

bool World::Impl::rescue() {
  constexpr std::chrono::milliseconds kLook(500);
  std::int64_t waits_since_ns = 0;
  while (!changing.try_lock_for(kLook)) {  // never unlocked
    const Whereabouts here = mine->whereabouts.load();
    const bool waits = here.activity == Activity::in_collective;
    if (waits && here.since_ns == waits_since_ns) return false;
    waits_since_ns = waits ? here.since_ns : 0;
  }
  return save && save();
}

void World::Impl::watch_other_nodes() {
  std::vector<int> ring(nodes, -1), ranks(ring.size(), 0);
  for (int r = 0; r < size; ++r) {
    const auto n = static_cast<std::size_t>(node_of[r]);
    if (ranks[n]++ == 0) ring[n] = r;
  }
  std::vector<bool> alone;
  for (const int count : ranks) alone.push_back(count == 1);
  lifeline = std::make_unique<Lifeline>(*world, ring, alone, *mine,
                                        Lifeline::Events{.died = [this](const RankSeen& seen) { watchdog->died(seen); },
                                                         .ending = [this] { board->ending = 1; }});
  watchdog->before_end([this] { lifeline->announce_end(); });
}

void World::Impl::place_on_nodes() {
  check_mpi(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node_comm), "MPI_Comm_split_type");
  MPI_Comm_set_errhandler(node_comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(node_comm, &node_rank);
  MPI_Comm_size(node_comm, &node_size);
  int first = rank;  // the first rank identifies a node
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, node_comm), "numbering the nodes");
  std::vector<int> firsts(size);
  check_mpi(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, all), "numbering the nodes");
  std::vector<int> distinct = firsts;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  nodes = static_cast<int>(distinct.size());
  for (const int f : firsts)
    node_of.push_back(static_cast<int>(std::lower_bound(distinct.begin(), distinct.end(), f) - distinct.begin()));
  node = node_of[rank];
  check_mpi(MPI_Comm_split(all, node_rank == 0 ? 0 : MPI_UNDEFINED, rank, &leaders), "MPI_Comm_split");
  if (leaders != MPI_COMM_NULL) MPI_Comm_set_errhandler(leaders, MPI_ERRORS_RETURN);
}

void World::Impl::share_boards() {
  // All nodes use the path through shared memory, or none does. The fullest node determines the slot size.
  int fullest = node_size;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &fullest, 1, MPI_INT, MPI_MAX, all), "counting ranks per node");
  std::size_t slot_bytes = kNodeReduceBytes / (2 * (static_cast<std::size_t>(fullest) + 1)) / 64 * 64;
  slot_bytes = std::min(slot_bytes, std::size_t{1} << 20);
  const auto line = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t boards_at = line(sizeof(NodeBoard));
  const std::size_t reduce_at =
      whole != nullptr ? 0 : boards_at + line(static_cast<std::size_t>(node_size) * sizeof(RankBoard));
  const std::size_t reduce_bytes = fullest > 1 ? NodeReduce::region_bytes(node_size, slot_bytes) : 0;
  shared = shared_memory(node_comm, node_rank, host, std::max<std::size_t>(reduce_at + reduce_bytes, 1));
  const std::span<std::byte> memory = shared->bytes();
  if (whole == nullptr)
    use_boards(reinterpret_cast<NodeBoard*>(memory.data()), reinterpret_cast<RankBoard*>(memory.data() + boards_at));
  if (fullest > 1)
    node_reduce = std::make_unique<NodeReduce>(memory.subspan(reduce_at), node_rank, node_size, slot_bytes);

  context = std::make_unique<CommContext>(mine, board);
  context->crowded = processors_of_node(node_comm) < node_size;
  Identity me{};
  me.pid = getpid();
  me.started = process_started(me.pid);
  me.rank = rank;
  me.node = node;
  me.node_rank = node_rank;
  me.host.set(host);
  if (whole == nullptr) {
    context->status.introduce(me);
    context->status.at("start", -1);
  }
  std::vector<Text<64>> names(size);
  check_mpi(MPI_Allgather(&me.host, sizeof me.host, MPI_BYTE, names.data(), sizeof me.host, MPI_BYTE, all),
            "exchanging host names");
  for (const Text<64>& name : names) context->hosts.emplace_back(name.view());
}

void World::Impl::use_boards(NodeBoard* of_node, RankBoard* of_ranks) {
  board = of_node;
  boards = of_ranks;
  mine = boards + node_rank;
}

World::World(int* argc, char*** argv) : impl_(std::make_unique<Impl>()) {
  impl_->host = short_host();
  if (const std::string launcher = launched_by(); launcher.empty()) {
    impl_->start_alone();
  } else {
    const int number = launched_rank();
    Deadline deadline(start_limit_s(), number < 0 ? impl_->host : join("rank ", number, ", ", impl_->host),
                      "look for ranks that have not started and hosts that cannot be reached; LOCKSTEP_START_TIMEOUT "
                      "sets the limit in seconds, 0 waits for ever");
    const auto fail = [&](int code, const std::string& message) {
      if (impl_->size == 1) {
        if (number <= 0) return;
        // All ranks fail in the same way. The first one prints the message; the others wait, so that the launcher does
        // not end the first one before.
        std::this_thread::sleep_for(std::chrono::seconds(2));
        _exit(code);
      }
      log::set_speaker({impl_->rank, impl_->size, impl_->host});
      // A failure on all ranks of the node, such as of their shared memory, is printed once.
      if (impl_->node_rank > 0) std::this_thread::sleep_for(std::chrono::seconds(5));
      abort_start(code, message);
    };
    try {
      impl_->start_mpi(argc, argv, launcher, deadline);
    } catch (const std::exception& problem) {
      const Error error = log::as_error(problem);
      fail(static_cast<int>(error.fault()), error.what());
      throw;
    }
  }
  log::set_speaker({impl_->rank, impl_->size, impl_->host});
  if (impl_->watchdog) impl_->watchdog->set_timeout(options().timeout_s);
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<World> World::part(int group) {
  auto impl = std::make_unique<Impl>();
  Impl &part = *impl, &whole = *impl_;
  require(!whole.team, "dividing ranks that are threads into groups");
  part.whole = &whole;
  part.host = whole.host;
  part.description = whole.description;
  part.board = whole.board;
  part.boards = whole.boards;
  part.mine = whole.mine;
  if (whole.size > 1) {
    whole.world->barrier("dividing the ranks into groups");
    check_mpi(MPI_Comm_split(whole.all, group, whole.rank, &part.all), "MPI_Comm_split");
    MPI_Comm_set_errhandler(part.all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(part.all, &part.rank);
    MPI_Comm_size(part.all, &part.size);
  }
  if (part.size == 1) {
    part.start_alone();
  } else {
    part.place_on_nodes();
    part.share_boards();
    part.context->progress = whole.progress.get();
    part.context->while_waiting = whole.context->while_waiting;
    part.connect("group");
  }
  part.context->options = whole.context->options;
  return std::unique_ptr<World>(new World(std::move(impl)));
}

std::unique_ptr<Desk> World::open_desk(Desk::Answer answer) {
  Impl& w = *impl_;
  require_usage(w.size == 1 || w.threads_may_call_mpi, "training several runs at once on ", w.size,
                " ranks: ", w.description,
                " does not let threads call it at the same time; choose a library with MPI_THREAD_MULTIPLE");
  w.world->barrier("opening the desk");
  return make_desk(w.size == 1 ? MPI_COMM_NULL : w.all, *w.context, std::move(answer));
}

World::World(const void* communicator, const WorldOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->host = short_host();
  impl_->start_guest(*static_cast<const MPI_Comm*>(communicator), options);
}

World::~World() {
  Impl& w = *impl_;
  if (w.guest) {
    if (w.lost) static_cast<void>(impl_.release());  // MPI may still write to its memory
    return;
  }
  if (w.team) {
    w.context->status.leaving();
    return;
  }
  if (w.whole != nullptr) {
    w.free_communicators();
    return;
  }
  int finalized = 0;
  if (w.watchdog) {
    if (std::uncaught_exceptions() > 0) abort(1, "an exception ends this rank while others continue");
    try {
      // The watchdog runs until all ranks arrive, so that waiting ranks can name a rank that left early.
      w.context->status.at("end", -1);
      w.world->barrier("end of the program");
      w.context->status.leaving();
    } catch (const std::exception& problem) {
      abort(1, problem.what());
    }
    w.watchdog->before_end([] {});
    w.lifeline.reset();
    w.watchdog.reset();
    w.progress.reset();
  }
  // A launcher on a busy machine may need seconds here, so a short dist.timeout does not apply.
  constexpr double kLeast_s = 5;
  const double timeout_s = w.owns_mpi && w.context ? w.context->options.timeout_s : 0;
  // Rank 0 prints the message for all: it ends a second before the others, and the launcher then ends them.
  const double patience_s = std::max(timeout_s, kLeast_s) + (w.rank == 0 ? 0 : 1);
  Deadline deadline(timeout_s > 0 ? patience_s : 0, join("rank ", w.rank, ", ", w.host),
                    "all ranks have finished, and their results are complete");
  deadline.at("MPI_Finalize");
  w.free_communicators();
  if (w.owns_mpi) {
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Finalize();
  }
  log::set_speaker({});
}

void World::Impl::free_communicators() {
  world.reset();
  on_node.reset();
  node_reduce.reset();
  context.reset();
  shared.reset();
  for (MPI_Comm* comm : {&watch, &leaders, &node_comm, &all})
    if (*comm != MPI_COMM_NULL && *comm != MPI_COMM_WORLD) MPI_Comm_free(comm);
}

void World::configure(const WorldOptions& options) {
  require_usage(options.timeout_s >= 0, "option dist.timeout = ", options.timeout_s,
                ": must be >= 0 (0 waits forever)");
  require_usage(options.max_message_bytes >= 64 && options.max_message_bytes <= std::size_t{1} << 30,
                "setting the longest message to ", options.max_message_bytes, " bytes: must be 64 to 2^30");
  Impl& w = *impl_;
  // These options decide which messages travel: ranks with different values would wait for each other.
  const auto same = [&](std::uint64_t value) {
    std::uint64_t high = value, low = ~value;
    w.world->all_reduce(std::span(&high, 1), ReduceOp::max, "communication options");
    w.world->all_reduce(std::span(&low, 1), ReduceOp::max, "communication options");
    return high == ~low;
  };
  require(same(options.check_collectives ? 1 : 0) && same(options.max_message_bytes) && same(options.node_path_bytes),
          "the communication options of the ranks differ (dist.check_collectives, message sizes); use the same "
          "configuration on all ranks");
  w.context->options = options;
  if (w.watchdog) w.watchdog->set_timeout(options.timeout_s);
}

const WorldOptions& World::options() const { return impl_->context->options; }
int World::rank() const { return impl_->rank; }
int World::size() const { return impl_->size; }
int World::node_rank() const { return impl_->node_rank; }
int World::node_size() const { return impl_->node_size; }
int World::node() const { return impl_->node; }
int World::nodes() const { return impl_->nodes; }
const std::string& World::host() const { return impl_->host; }
Communicator& World::communicator() { return *impl_->world; }
Communicator& World::node_communicator() { return *impl_->on_node; }
const std::string& World::mpi_description() const { return impl_->description; }
void World::on_loss(std::function<bool()> save) { impl_->on_loss(std::move(save)); }
std::unique_lock<std::timed_mutex> World::change() { return std::unique_lock(impl_->changing); }
void World::at(const char* phase, std::int64_t step) { impl_->context->status.at(phase, step); }

std::shared_ptr<NodeMemory> World::share_on_node(std::size_t size_bytes) {
  if (impl_->node_size == 1) return plain_memory(size_bytes);
  if (impl_->team) return impl_->share_between_threads(size_bytes);
  impl_->on_node->barrier("sharing memory on the node");
  return shared_memory(impl_->node_comm, impl_->node_rank, impl_->host, size_bytes);
}

void World::together(const char* doing, const std::function<void()>& body) {
  if (size() == 1) return body();
  bool failed = false;
  Fault fault = Fault::internal;
  std::string message;
  try {
    body();
  } catch (const CollectiveError&) {
    throw;  // all ranks throw it already
  } catch (const LostRank&) {
    throw;  // no collective can follow
  } catch (const Error& problem) {
    failed = true;
    fault = problem.fault();
    message = problem.what();
  } catch (const std::exception& problem) {
    const Error error = log::as_error(problem);
    failed = true;
    fault = error.fault();
    message = join(doing, ": ", error.what());
  }
  Communicator& all = communicator();
  const std::int64_t first = all.all_reduced(std::int64_t{failed ? rank() : size()}, ReduceOp::min, doing);
  if (first == size()) return;
  const std::int64_t how_many = all.all_reduced(std::int64_t{failed ? 1 : 0}, ReduceOp::sum, doing);
  const auto code = all.all_reduced(std::int64_t{rank() == first ? static_cast<int>(fault) : 0}, ReduceOp::max, doing);
  message = all.broadcast_text(message, static_cast<int>(first), doing);
  if (rank() == first) {
    const std::string others =
        how_many > 1 && how_many < size() ? join(" (", how_many, " of ", size(), " ranks failed)") : std::string();
    log::error(message, others);
  }
  throw CollectiveError(static_cast<Fault>(code), message);
}

int World::run(const std::function<int()>& body) {
  int code = static_cast<int>(Fault::internal);
  std::string message;
  try {
    return body();
  } catch (const CollectiveError& printed) {
    return static_cast<int>(printed.fault());
  } catch (const std::exception& problem) {
    const Error error = log::as_error(problem);
    code = static_cast<int>(error.fault());
    message = error.what();
  }
  if (size() > 1) abort(code, message);
  log::error(message);
  return code;
}

void World::abort(int exit_code, const std::string& message) { impl_->abort(exit_code, message); }

void World::Impl::abort(int exit_code, const std::string& message) {
  if (whole != nullptr) whole->abort(exit_code, message);
  if (guest) throw Error(static_cast<Fault>(exit_code), message);
  if (team) team->end(exit_code, message);
  std::int32_t nobody = 0;
  const bool first = board->aborting.compare_exchange_strong(nobody, node_rank + 1);
  if (first) log::error(message);
  std::fflush(nullptr);
  if (size == 1) _exit(exit_code);
  board->ending = 1;
  // The other ranks of the node stay silent and let the first one end the job, unless that takes too long.
  if (!first) std::this_thread::sleep_for(std::chrono::seconds(5));
  watchdog->abort_job(exit_code);
}

int run_as_threads(World& process, int ranks, const std::function<int(World&)>& body) {
  require((process.size() == 1 && ranks > 0) || ranks == 1, "running ", ranks, " ranks as threads of a process with ",
          process.size(), " ranks: needs a single rank");
  const auto team = std::make_shared<ThreadTeam>(ranks, process.host());
  std::vector<int> codes(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto impl = std::make_unique<World::Impl>();
      impl->host = process.host();
      impl->description = process.mpi_description();
      impl->start_thread(team, r);
      impl->context->options = process.options();
      log::set_thread_speaker({r, ranks, process.host()});
      World world(std::move(impl));
      codes[r] = world.run([&] { return body(world); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace lockstep
