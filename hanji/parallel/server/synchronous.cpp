#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <array>

#include "hanji/base/status.h"
#include "hanji/layout/unit.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/gradients/shard_norm.h"
#include "hanji/parallel/server/internal/server_state.h"
#include "hanji/trace/recorder.h"

namespace hanji::parallel {
namespace {

using trace::Category;

class Synchronous : public ServerState {
 public:
  Synchronous(std::vector<NamedParameter> parameters, const comm::Group& group,
              const ParameterServerOptions& options, const layout::FlatLayout& flat,
              const layout::ServerShares& shares)
      : ServerState(std::move(parameters), group, options, flat, shares),
        unit_(layout::unit_of(shares, flat)) {
    if (is_server()) place_staging();
  }

  ServerStep step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    reduce();
    return update(learning_rate, 1);
  }

  double push() override {
    const at::NoGradGuard no_grad;
    reduce();
    return norm() / divisor();
  }

  ServerStep update(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    take_writes();
    if (is_server() && !own_range().empty()) {
      const trace::Span span(recorder(), "update", Category::kCompute);
      optimizer_->step(learning_rate, gradient_divisor * divisor());
    }
    pull(pushed_);
    pushed_.clear();
    return {.version = ++version_};
  }

  void finish() override {
    throw Error(base::invalid_argument(
        "finish() ends asynchronous work; with kSynchronous every rank just calls step()"));
  }

 private:
  void place_staging() {
    const auto all = pieces_of({0, own_range().size()});
    const int64_t size = all.empty() ? 0 : all[0].size();
    for (at::Tensor& one : staging_) {
      one = group_.heap().zeros({static_cast<int64_t>(tree_.partials.size()), size},
                                sum_.scalar_type(), "staging");
    }
  }

  void reduce() {
    take_writes();
    for (comm::Work& work : pushed_) work.wait();  // of a step that was left out
    pushed_.clear();
    if (is_worker()) push_gradients();
    if (!is_server()) return;
    const trace::Span span(recorder(), "wait for all", Category::kCommunication);
    gather_gradients();
    if (options_.on_sum) options_.on_sum(sum_);
  }

  /// A range begins and ends at whole partial sums, and ranges follow each other as servers do.
  double norm() const {
    std::vector<double> mine;
    for (const layout::Piece& piece : layout::pieces(unit_, group_.rank())) {
      const int64_t begin = piece.flat - own_range().begin;
      const auto sums = norm_blocks(sum_.slice(0, begin, begin + piece.elements.size()));
      mine.insert(mine.end(), sums.begin(), sums.end());
    }
    const layout::Unit* unit = &unit_;
    return norm_of_shards({&unit, 1}, mine, group_, tags_);
  }

  double divisor() const {
    return options_.average == Average::kMean ? static_cast<double>(tree_.num_grains) : 1.0;
  }

  void push_gradients() {
    trace::Span span(recorder(), "push", Category::kCommunication);
    const int64_t before = moved_.sent;
    engine_->end_step();
    span.set_bytes(moved_.sent - before);
    if (is_server()) return;  // the others may wait for this rank's part
    for (comm::Work& work : pushed_) work.wait();
  }

  void push_rows() override {
    const auto num_parts = static_cast<int64_t>(tree_.ranks[worker_].partials.size());
    for (const int server : shares_.servers) {
      if (server == group_.rank()) continue;
      for (const layout::Range piece : pieces_of(shares_.range_of(server))) {
        for (int64_t part = 0; part < num_parts; ++part) {
          send_to(gradients_[part].slice(0, piece.begin, piece.end), server, "gradients", pushed_);
        }
      }
    }
  }

  /// The sum over all workers of this server's range, piece by piece; the next piece arrives while
  /// one is added up.
  void gather_gradients() {
    const auto pieces = pieces_of(own_range());
    std::array<Works, 2> arriving;
    if (!pieces.empty()) receive_parts(pieces[0], staging_[0], arriving[0]);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i + 1 < pieces.size()) {
        receive_parts(pieces[i + 1], staging_[(i + 1) % 2], arriving[(i + 1) % 2]);
      }
      for (comm::Work& work : arriving[i % 2]) work.wait();
      arriving[i % 2].clear();
      add_up(pieces[i], staging_[i % 2]);
    }
  }

  at::Tensor staged(const at::Tensor& staging, size_t partial, layout::Range piece) const {
    return staging[static_cast<int64_t>(partial)].slice(0, 0, piece.size());
  }

  void receive_parts(layout::Range piece, const at::Tensor& staging, Works& works) {
    for (size_t i = 0; i < tree_.partials.size(); ++i) {
      const int from = shares_.workers[tree_.partials[i].rank];
      if (from != group_.rank()) {
        receive_from(staged(staging, i, piece), from, "gradients", works);
      }
    }
  }

  /// By the tree over all partials. The buffers are this server's to overwrite.
  void add_up(layout::Range piece, const at::Tensor& staging) {
    const int64_t begin = piece.begin - own_range().begin;
    at::Tensor out = sum_.slice(0, begin, begin + piece.size());
    std::vector<at::Tensor> stack;
    for (size_t i = 0; i < tree_.tree.size(); ++i) {
      if (tree_.tree[i] >= 0) {
        stack.push_back(partial(tree_.tree[i], piece, staging));
        continue;
      }
      const at::Tensor right = stack.back();
      stack.pop_back();
      if (i + 1 == tree_.tree.size()) {
        at::add_out(out, stack.back(), right);
        return;
      }
      stack.back().add_(right);
    }
    out.copy_(stack.back());
  }

  at::Tensor partial(size_t index, layout::Range piece, const at::Tensor& staging) const {
    const auto& which = tree_.partials[index];
    if (shares_.workers[which.rank] != group_.rank()) return staged(staging, index, piece);
    return gradients_[which.part].slice(0, piece.begin, piece.end);
  }

  void pull(Works& works) {
    trace::Span span(recorder(), "pull", Category::kCommunication);
    const int64_t before = moved_.received;
    if (is_server()) {
      for (const int worker : shares_.workers) {
        if (worker != group_.rank()) send_weights(worker, works);
      }
    }
    if (is_worker()) {
      for (const int server : shares_.servers) {
        if (server != group_.rank()) receive_weights(server, works);
      }
    }
    for (comm::Work& work : works) work.wait();
    span.set_bytes(moved_.received - before);
  }

  layout::Unit unit_;  ///< Whose shards are the servers' ranges.
  std::array<at::Tensor, 2> staging_;
  Works pushed_;  ///< On the way while this rank, a server too, adds up what others push.
  int64_t version_ = 0;
};

}  // namespace

std::unique_ptr<ServerState> synchronous_server(std::vector<NamedParameter> parameters,
                                                const comm::Group& group,
                                                const ParameterServerOptions& options,
                                                const layout::FlatLayout& flat,
                                                const layout::ServerShares& shares) {
  return std::make_unique<Synchronous>(std::move(parameters), group, options, flat, shares);
}

}  // namespace hanji::parallel
