#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/status.h"
#include "hanji/comm/message.h"
#include "hanji/parallel/server/internal/server_state.h"
#include "hanji/trace/recorder.h"

namespace hanji::parallel {
namespace {

using trace::Category;

/// What a message announces; what one rank sends to another is one stream, whatever their roles.
enum class Kind : int64_t {
  kPush,    ///< Of a worker: its learning rate; gradients follow.
  kFinish,  ///< Of a worker: nothing more comes.
  kAnswer,  ///< Of a server: version, staleness, ahead; weights follow.
};

at::Tensor announcement(Kind kind = Kind::kPush, double rate = 0, const ServerStep& step = {}) {
  at::Tensor tensor = at::zeros({5}, at::kDouble);
  auto* values = tensor.mutable_data_ptr<double>();
  values[0] = static_cast<double>(kind);
  values[1] = rate;
  values[2] = static_cast<double>(step.version);
  values[3] = static_cast<double>(step.staleness);
  values[4] = static_cast<double>(step.ahead);
  return tensor;
}

/// What a server knows of a worker.
struct Progress {
  int64_t clock = 0;   ///< Steps finished.
  int64_t pulled = 0;  ///< Version of the weights it has.
  bool waits = false;  ///< Has pushed, and not been answered yet.
  bool finished = false;
  ServerStep seen;  ///< What its last push will be answered with.
  /// Of a push that came while answers were on their way, which read the weights.
  at::Tensor parked;
  double parked_rate = 0;
};

/// The stream from another rank.
struct Stream {
  at::Tensor next;                  ///< The announcement that is awaited.
  std::vector<comm::Work> arrival;  ///< Empty: nothing is awaited.
  bool owes_answer = false;         ///< As a server.
};

/// Drives all of them: what one waits for may be the next.
bool all_done(std::vector<comm::Work>& works) {
  bool done = true;
  for (comm::Work& work : works) done &= work.done();
  return done;
}

class Asynchronous : public ServerState {
 public:
  Asynchronous(std::vector<NamedParameter> parameters, const comm::Group& group,
               const ParameterServerOptions& options, const layout::FlatLayout& flat,
               const layout::ServerShares& shares)
      : ServerState(std::move(parameters), group, options, flat, shares),
        workers_(shares_.workers.size()),
        streams_(group.size()) {}

  ServerStep step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    if (!is_worker() || finished_) {
      throw Error(base::invalid_argument(
          is_worker() ? "step() after finish(): the servers no longer wait for this worker"
                      : "step() of an asynchronous rank that only serves; it calls finish(), which "
                        "serves until all workers are done"));
    }
    take_writes();
    step_ = {.version = std::numeric_limits<int64_t>::max()};
    push(learning_rate);
    if (is_server()) update_own(learning_rate);
    const trace::Span span(recorder(), "pull", Category::kCommunication);
    pump_until([&] {
      const bool answered = std::ranges::none_of(streams_, &Stream::owes_answer);
      return answered && !(is_server() && workers_[worker_].waits) && sent(pushes_) &&
             sent(answers_);
    });
    return step_;
  }

  double push() override { refuse_halves("push"); }
  ServerStep update(double, double) override { refuse_halves("update"); }

  void finish() override {
    const at::NoGradGuard no_grad;
    if (finished_) return;
    take_writes();
    finished_ = true;
    for (const int server : shares_.servers) {
      if (is_worker() && server != group_.rank()) {
        send_to(announcement(Kind::kFinish), server, "finish", pushes_);
      }
    }
    if (is_worker() && is_server()) workers_[worker_].finished = true;
    const trace::Span span(recorder(), "serve", Category::kCommunication);
    pump_until([&] {
      return sent(pushes_) && sent(answers_) &&
             (!is_server() || std::ranges::all_of(workers_, &Progress::finished));
    });
  }

 private:
  [[noreturn]] static void refuse_halves(const char* what) {
    throw Error(base::unsupported(
        std::string(what) +
        "(): an asynchronous server updates as each gradient comes, so no step has halves; call "
        "step(), or use ServerTiming::kSynchronous"));
  }

  static bool sent(Works& works) {
    if (!all_done(works)) return false;
    works.clear();
    return true;
  }

  void push(double learning_rate) {
    trace::Span span(recorder(), "push", Category::kCommunication);
    const int64_t before = moved_.sent;
    learning_rate_ = learning_rate;
    engine_->end_step();
    span.set_bytes(moved_.sent - before);
  }

  void push_rows() override {
    for (const int server : shares_.servers) {
      if (server == group_.rank()) continue;
      send_to(announcement(Kind::kPush, learning_rate_), server, "push", pushes_);
      for (const layout::Range piece : pieces_of(shares_.range_of(server))) {
        send_to(gradients_[0].slice(0, piece.begin, piece.end), server, "gradients", pushes_);
      }
      streams_[server].owes_answer = true;
    }
  }

  void update_own(double learning_rate) {
    pump_until([&] { return sent(answers_); });
    const layout::Range range = own_range();
    sum_.copy_(gradients_[0].slice(0, range.begin, range.end));
    update_for(worker_, learning_rate);
  }

  /// One update with the gradients in sum_, which worker `index` has pushed.
  void update_for(size_t index, double learning_rate) {
    const trace::Span span(recorder(), "update", Category::kCompute);
    Progress& worker = workers_[index];
    worker.seen = {.staleness = version_ - worker.pulled, .ahead = worker.clock - slowest()};
    if (!own_range().empty()) optimizer_->step(learning_rate, 1.0);
    ++version_;
    ++worker.clock;
    worker.waits = true;
  }

  int64_t slowest() const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Progress& worker : workers_) {
      if (!worker.finished) least = std::min(least, worker.clock);
    }
    return least;
  }

  /// Workers give up later than servers, which know whom all wait for.
  base::Deadline new_deadline() const {
    return base::Deadline::after(group_.options().deadline * (is_server() ? 1 : 2));
  }

  template <class Done>
  void pump_until(const Done& done) {
    constexpr auto kPollInterval = std::chrono::microseconds(50);
    auto deadline = new_deadline();
    while (!done()) {
      if (pump()) {
        deadline = new_deadline();
      } else if (deadline.passed()) {
        throw Error(base::timeout(describe_stall()));
      } else {
        std::this_thread::sleep_for(kPollInterval);
      }
    }
  }

  /// Takes what has arrived and answers whom the bound lets go; false if there was nothing to do.
  bool pump() {
    bool moved = false;
    sent(pushes_);
    sent(answers_);
    moved |= update_for_parked();
    for (int rank = 0; rank < group_.size(); ++rank) moved |= listen(rank);
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i].waits || workers_[i].clock - slowest() > options_.max_staleness) continue;
      answer(i);
      moved = true;
    }
    return moved;
  }

  int worker_index(int rank) const {
    const auto found = std::ranges::find(shares_.workers, rank);
    return found == shares_.workers.end() ? -1 : static_cast<int>(found - shares_.workers.begin());
  }

  bool awaits(int rank) const {
    const int worker = worker_index(rank);
    if (rank == group_.rank()) return false;
    return streams_[rank].owes_answer || (is_server() && worker >= 0 && !workers_[worker].finished);
  }

  bool listen(int rank) {
    Stream& stream = streams_[rank];
    if (stream.arrival.empty()) {
      if (!awaits(rank)) return false;
      stream.next = announcement();
      // Our own deadline comes first: it can say who waits for whom.
      const comm::CallOptions options{
          .tag = tags_, .label = "announcement", .deadline = 4 * group_.options().deadline};
      stream.arrival.push_back(comm::recv(stream.next, rank, group_, options));
      moved_.received += static_cast<int64_t>(stream.next.nbytes());
    }
    if (!all_done(stream.arrival)) return false;
    const auto* values = stream.next.const_data_ptr<double>();
    const Kind kind = static_cast<Kind>(static_cast<int64_t>(values[0]));
    stream.arrival.clear();
    switch (kind) {
      case Kind::kPush: take_gradients(rank, values[1]); break;
      case Kind::kFinish: workers_[worker_index(rank)].finished = true; break;
      case Kind::kAnswer: take_weights(rank, values); break;
    }
    return true;
  }

  /// A push is taken whether or not its update must wait: behind it in the stream may be the answer
  /// that its sender's own update waits for, and so round a circle of servers.
  void take_gradients(int rank, double learning_rate) {
    const bool parks = !sent(answers_);
    at::Tensor into = parks ? at::empty_like(sum_) : sum_;
    Works works;
    for (const layout::Range piece : pieces_of(own_range())) {
      const int64_t begin = piece.begin - own_range().begin;
      receive_from(into.slice(0, begin, begin + piece.size()), rank, "gradients", works);
    }
    for (comm::Work& work : works) work.wait();
    if (!parks) return update_for(worker_index(rank), learning_rate);
    Progress& worker = workers_[worker_index(rank)];
    worker.parked = into;
    worker.parked_rate = learning_rate;
  }

  bool update_for_parked() {
    bool updated = false;
    for (size_t i = 0; i < workers_.size() && sent(answers_); ++i) {
      Progress& worker = workers_[i];
      if (!worker.parked.defined()) continue;
      sum_.copy_(std::exchange(worker.parked, {}));
      update_for(i, worker.parked_rate);
      updated = true;
    }
    return updated;
  }

  void take_weights(int server, const double* values) {
    Works works;
    receive_weights(server, works);
    for (comm::Work& work : works) work.wait();
    streams_[server].owes_answer = false;
    saw({static_cast<int64_t>(values[2]), static_cast<int64_t>(values[3]),
         static_cast<int64_t>(values[4])});
  }

  void saw(const ServerStep& step) {
    step_.version = std::min(step_.version, step.version);
    step_.staleness = std::max(step_.staleness, step.staleness);
    step_.ahead = std::max(step_.ahead, step.ahead);
  }

  void answer(size_t index) {
    Progress& worker = workers_[index];
    worker.waits = false;
    worker.pulled = worker.seen.version = version_;
    const int rank = shares_.workers[index];
    if (rank == group_.rank()) return saw(worker.seen);
    send_to(announcement(Kind::kAnswer, 0, worker.seen), rank, "pull", answers_);
    send_weights(rank, answers_);
  }

  std::string describe_stall() const {
    std::string slow, waiting, silent;
    const auto add = [](std::string& list, const std::string& entry) {
      list += (list.empty() ? "" : ", ") + entry;
    };
    for (size_t i = 0; is_server() && i < workers_.size(); ++i) {
      const Progress& worker = workers_[i];
      if (worker.finished) continue;
      add(worker.waits ? waiting : slow,
          fmt::format("rank {} after {} steps", shares_.workers[i], worker.clock));
    }
    for (size_t rank = 0; rank < streams_.size(); ++rank) {
      if (streams_[rank].owes_answer) add(silent, fmt::format("rank {}", rank));
    }
    return fmt::format(
        "parameter server, rank {}: nothing came within {} s; workers that compute: {}; workers "
        "that "
        "wait for them, being {} steps ahead: {}; servers that have not answered: {}. A worker "
        "that "
        "is done calls finish()",
        group_.rank(), std::chrono::duration<double>(group_.options().deadline).count(),
        slow.empty() ? "none" : slow, options_.max_staleness + 1,
        waiting.empty() ? "none" : waiting, silent.empty() ? "none" : silent);
  }

  std::vector<Progress> workers_;
  std::vector<Stream> streams_;
  Works pushes_;   ///< On their way to servers.
  Works answers_;  ///< On their way to workers; weights must not change until they are there.
  ServerStep step_;
  double learning_rate_ = 0;  ///< Of this worker's step.
  int64_t version_ = 0;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<ServerState> asynchronous_server(std::vector<NamedParameter> parameters,
                                                 const comm::Group& group,
                                                 const ParameterServerOptions& options,
                                                 const layout::FlatLayout& flat,
                                                 const layout::ServerShares& shares) {
  return std::make_unique<Asynchronous>(std::move(parameters), group, options, flat, shares);
}

}  // namespace hanji::parallel
