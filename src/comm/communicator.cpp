#include "lockstep/comm/communicator.hpp"

#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
std::span<std::byte> writable_bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

/// Computes the offsets of contributions of these sizes and allocates their memory.
Gathered laid_out(std::span<const std::int64_t> sizes) {
  Gathered all{.bytes = {}, .begin = {0}};
  for (const std::int64_t size : sizes) all.begin.push_back(all.begin.back() + size);
  all.bytes.resize(all.begin.back());
  return all;
}

class DoneRequest final : public Request {
 public:
  bool test() override { return true; }
  void wait() override {}
};

class SelfComm final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* backend() const override { return "self"; }
  void all_reduce(Numbers values, ReduceOp op, const char* what) override {
    require(op != ReduceOp::bit_or || std::holds_alternative<std::span<std::uint64_t>>(values), "all_reduce '", what,
            "': bit_or needs unsigned integers");
  }
  std::unique_ptr<Request> start_all_reduce(Reals, const char*) override { return std::make_unique<DoneRequest>(); }
  std::unique_ptr<Request> start_compressed_sum(std::span<float>, const char*) override {
    return std::make_unique<DoneRequest>();
  }
  void broadcast(std::span<std::byte>, int root, const char* what) override {
    require(root == 0, "broadcast '", what, "': root ", root, " of 1 rank");
  }
  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override {
    copy_own("all_gather", mine, sizes, into, what);
  }
  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override {
    require(to.size() == 1, "all_to_all '", what, "': ", to.size(), " pieces for 1 rank");
    copy_own("all_to_all", to[0], from_sizes, into, what);
  }
  void barrier(const char*) override {}

 private:
  static void copy_own(const char* operation, std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                       std::span<std::byte> into, const char* what) {
    require(sizes.size() == 1 && sizes[0] == std::ssize(mine) && into.size() == mine.size(), operation, " '", what,
            "': ", mine.size(), " bytes into ", into.size(), ": must equal the size in `sizes`");
    if (!mine.empty()) std::memcpy(into.data(), mine.data(), mine.size());
  }
};
}  // namespace

Gathered Communicator::all_gather(std::span<const std::byte> mine, const char* what) {
  std::vector<std::int64_t> sizes(size());
  const auto size_bytes = std::ssize(mine);
  const std::vector<std::int64_t> eight(sizes.size(), sizeof(std::int64_t));
  all_gather_known(std::as_bytes(std::span(&size_bytes, 1)), eight, writable_bytes(sizes), what);
  Gathered all = laid_out(sizes);
  all_gather_known(mine, sizes, all.bytes, what);
  return all;
}

Gathered Communicator::all_to_all(std::span<const std::span<const std::byte>> to, const char* what) {
  const auto ranks = static_cast<std::size_t>(size());
  require(to.size() == ranks, "all_to_all '", what, "': ", to.size(), " pieces for ", ranks, " ranks");
  std::vector<std::int64_t> send_sizes(ranks), receive_sizes(ranks);
  std::vector<std::span<const std::byte>> size_pieces(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    send_sizes[r] = std::ssize(to[r]);
    size_pieces[r] = std::as_bytes(std::span(&send_sizes[r], 1));
  }
  const std::vector<std::int64_t> eight(ranks, sizeof(std::int64_t));
  all_to_all_known(size_pieces, eight, writable_bytes(receive_sizes), what);
  Gathered all = laid_out(receive_sizes);
  all_to_all_known(to, receive_sizes, all.bytes, what);
  return all;
}

std::unique_ptr<Request> Communicator::start_all_to_all(std::span<const std::span<const std::byte>> to,
                                                        std::span<const std::int64_t> from_sizes,
                                                        std::span<std::byte> into, const char* what) {
  all_to_all_known(to, from_sizes, into, what);
  return std::make_unique<DoneRequest>();
}

void Communicator::pass(int from, int to, std::span<const std::byte> out, std::span<std::byte> in, const char* what) {
  std::vector<std::span<const std::byte>> sent(size());
  std::vector<std::int64_t> sizes(sent.size(), 0);
  if (rank() == from) sent[to] = out;
  if (rank() == to) sizes[from] = std::ssize(in);
  all_to_all_known(sent, sizes, rank() == to ? in : in.first(0), what);
}

bool Communicator::agree(bool mine, const char* what) {
  return all_reduced(std::int64_t{mine ? 1 : 0}, ReduceOp::min, what) != 0;
}

std::string Communicator::broadcast_text(std::string text, int root, const char* what) {
  auto length = static_cast<std::uint64_t>(text.size());
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root, what);
  text.resize(length);
  broadcast(std::as_writable_bytes(std::span<char>(text.data(), text.size())), root, what);
  return text;
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine, const char* what) {
  const Gathered all = all_gather(bytes_of(mine), what);
  std::vector<std::string> texts;
  for (int r = 0; r < all.ranks(); ++r) texts.push_back(text_of(all.of(r)));
  return texts;
}

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfComm>(); }

}  // namespace lockstep
