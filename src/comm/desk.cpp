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

/// Of one rank if `comm` is null.
class RankDesk final : public Desk {
 public:
  RankDesk(MPI_Comm comm, CommContext& context, Answer answer) : answer_(std::move(answer)), context_(context) {
    if (comm == MPI_COMM_NULL) return;
    check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    if (rank_ == 0) thread_ = helper_thread([this](const std::stop_token& stop) { serve(stop); });
  }
  RankDesk(const RankDesk&) = delete;
  RankDesk& operator=(const RankDesk&) = delete;
  ~RankDesk() override {
    thread_ = {};
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  std::string ask(const std::string& question) override {
    if (rank_ == 0) {
      const std::lock_guard lock(one_at_a_time_);
      return answer_(question);
    }
    send({0, kQuestion, question});
    Backoff backoff(context_);
    std::optional<Message> reply;
    while (!(reply = receive())) {
      context_.stay_if_ending();
      backoff.pause();
    }
    require(reply->tag == kAnswer, "asking rank 0: ", reply->text);
    return reply->text;
  }

 private:
  struct Message {
    int peer, tag;
    std::string text;
  };
  static constexpr int kQuestion = 1, kAnswer = 2, kRefusal = 3;

  void send(const Message& message) const {
    check_mpi(MPI_Send(message.text.data(), static_cast<int>(message.text.size()), MPI_BYTE, message.peer, message.tag,
                       comm_),
              "sending to the desk");
  }
  /// The next message, if one has arrived.
  std::optional<Message> receive() const {
    int here = 0, size = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &here, &status), "looking for a message");
    if (here == 0) return {};
    MPI_Get_count(&status, MPI_BYTE, &size);
    Message message{status.MPI_SOURCE, status.MPI_TAG, std::string(static_cast<std::size_t>(size), '\0')};
    check_mpi(MPI_Recv(message.text.data(), size, MPI_BYTE, message.peer, message.tag, comm_, MPI_STATUS_IGNORE),
              "receiving a message");
    return message;
  }
  void serve(const std::stop_token& stop) {
    Stopwatch since;  // the last question
    while (!stop.stop_requested()) {
      const std::optional<Message> question = receive();
      if (!question) {
        // A rank waits for a small part of its training, and looking takes a small part of rank 0's time.
        std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(since.seconds() / 32, 1e-4, 1e-2)));
        continue;
      }
      since.restart();
      Message reply{question->peer, kAnswer, ""};
      try {
        reply.text = ask(question->text);
      } catch (const std::exception& problem) {
        reply = {question->peer, kRefusal, problem.what()};
      }
      send(reply);
    }
  }

  Answer answer_;
  std::mutex one_at_a_time_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  CommContext& context_;
  int rank_ = 0;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<Desk> make_desk(MPI_Comm comm, CommContext& context, Desk::Answer answer) {
  return std::make_unique<RankDesk>(comm, context, std::move(answer));
}

}  // namespace lockstep
