#include "desk.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "mpi_comm.hpp"

namespace lockstep {
namespace {

class LocalDesk : public Desk {
 public:
  explicit LocalDesk(Answer answer) : answer_(std::move(answer)) {}
  std::string ask(const std::string& question) override {
    const std::lock_guard lock(one_at_a_time_);
    return answer_(question);
  }

 private:
  Answer answer_;
  std::mutex one_at_a_time_;
};

class MpiDesk final : public LocalDesk {
 public:
  MpiDesk(MPI_Comm comm, CommContext& context, Answer answer) : LocalDesk(std::move(answer)), context_(context) {
    check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    if (rank_ == 0) thread_ = helper_thread([this](const std::stop_token& stop) { serve(stop); });
  }
  MpiDesk(const MpiDesk&) = delete;
  MpiDesk& operator=(const MpiDesk&) = delete;
  ~MpiDesk() override {
    if (thread_.joinable()) {
      thread_.request_stop();
      thread_.join();
    }
    MPI_Comm_free(&comm_);
  }
  std::string ask(const std::string& question) override {
    if (rank_ == 0) return LocalDesk::ask(question);
    send(question, 0, kQuestion);
    Backoff backoff(context_);
    std::optional<Message> reply;
    while (!(reply = receive(0, kAnswer))) {
      context_.stay_if_ending();
      backoff.pause();
    }
    require(reply->text.starts_with(kGood), "asking rank 0: ", reply->text.substr(1));
    return reply->text.substr(1);
  }

 private:
  struct Message {
    int from;
    std::string text;
  };
  static constexpr int kQuestion = 1, kAnswer = 2;
  static constexpr char kGood = '+', kBad = '-';  ///< the first byte of an answer

  void send(const std::string& text, int to, int tag) const {
    check_mpi(MPI_Send(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, tag, comm_), "sending to the desk");
  }
  /// The next message, if one has arrived.
  std::optional<Message> receive(int from, int tag) const {
    int here = 0, size = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(from, tag, comm_, &here, &status), "looking for a message");
    if (here == 0) return {};
    MPI_Get_count(&status, MPI_BYTE, &size);
    Message message{status.MPI_SOURCE, std::string(size, '\0')};
    check_mpi(MPI_Recv(message.text.data(), size, MPI_BYTE, message.from, tag, comm_, MPI_STATUS_IGNORE),
              "receiving a message");
    return message;
  }
  void serve(const std::stop_token& stop) {
    Stopwatch since;  // the last question
    while (!stop.stop_requested()) {
      const std::optional<Message> question = receive(MPI_ANY_SOURCE, kQuestion);
      if (!question) {
        // A rank waits for a small part of its training, and looking takes a small part of rank 0's time.
        std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(since.seconds() / 32, 1e-4, 1e-2)));
        continue;
      }
      since.restart();
      std::string reply;
      try {
        reply = kGood + LocalDesk::ask(question->text);
      } catch (const std::exception& problem) {
        reply = kBad + std::string(problem.what());
      }
      send(reply, question->from, kAnswer);
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  CommContext& context_;
  int rank_ = 0;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<Desk> make_local_desk(Desk::Answer answer) { return std::make_unique<LocalDesk>(std::move(answer)); }
std::unique_ptr<Desk> make_mpi_desk(MPI_Comm comm, CommContext& context, Desk::Answer answer) {
  return std::make_unique<MpiDesk>(comm, context, std::move(answer));
}

}  // namespace lockstep
