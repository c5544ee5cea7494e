#include "hanji/data/sampler.h"

#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <string>

#include "hanji/base/status.h"
#include "hanji/data/order.h"

namespace hanji::data {
namespace {

constexpr const char* kKey = "hanji.sampler";
constexpr int64_t kFields = 4;

}  // namespace

struct Sampler::State {
  int64_t rank, ranks;
  int64_t num_samples;
  uint64_t seed;
  Remainder remainder;
  int64_t per_rank = 0;
  uint64_t epoch = 0;
  int64_t taken = 0;   // of this rank, in this epoch
  bool go_on = false;  // the next reset() keeps the position that load() brought
  Permutation order{0, 0, 1};

  void divide() {
    per_rank = num_samples / ranks;
    if (remainder == Remainder::kPad && num_samples % ranks != 0) ++per_rank;
    if (num_samples < 1 || per_rank < 1) {
      throw Error(base::invalid_argument(
          "Sampler: " + std::to_string(num_samples) + " samples for " + std::to_string(ranks) +
          " ranks leave none for some; use fewer ranks or Remainder::kPad"));
    }
    begin();
  }

  void begin() {
    order = Permutation(seed, epoch, num_samples);
    taken = 0;
  }
};

Sampler::Sampler(int rank, int ranks, size_t num_samples, uint64_t seed, Remainder remainder)
    : state_(std::make_shared<State>(
          State{rank, ranks, static_cast<int64_t>(num_samples), seed, remainder})) {
  state_->divide();
}

void Sampler::set_epoch(uint64_t epoch) {
  state_->epoch = epoch;
  state_->go_on = false;
  state_->begin();
}

uint64_t Sampler::epoch() const { return state_->epoch; }

size_t Sampler::size() const { return static_cast<size_t>(state_->per_rank); }

void Sampler::reset(std::optional<size_t> num_samples) {
  State& s = *state_;
  const bool resized = num_samples && static_cast<int64_t>(*num_samples) != s.num_samples;
  if (resized) {
    s.num_samples = static_cast<int64_t>(*num_samples);
    s.divide();
  } else if (!s.go_on) {
    s.taken = 0;
  }
  s.go_on = false;
}

std::optional<std::vector<size_t>> Sampler::next(size_t batch_size) {
  State& s = *state_;
  const int64_t end = std::min(s.per_rank, s.taken + static_cast<int64_t>(batch_size));
  if (s.taken == end) return std::nullopt;
  std::vector<size_t> indices;
  for (; s.taken < end; ++s.taken) {
    const int64_t position = s.taken * s.ranks + s.rank;
    indices.push_back(static_cast<size_t>(s.order(position % s.num_samples)));
  }
  return indices;
}

void Sampler::save(torch::serialize::OutputArchive& archive) const {
  const State& s = *state_;
  archive.write(kKey, at::tensor({s.num_samples, static_cast<int64_t>(s.seed),
                                  static_cast<int64_t>(s.epoch), s.taken * s.ranks},
                                 at::kLong));
}

void Sampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor saved;
  if (!archive.try_read(kKey, saved) || saved.numel() != kFields ||
      saved.scalar_type() != at::kLong) {
    throw Error(base::corrupt("Sampler: the archive holds no state of a sampler"));
  }
  State& s = *state_;
  const auto* fields = saved.const_data_ptr<int64_t>();
  if (fields[0] != s.num_samples || static_cast<uint64_t>(fields[1]) != s.seed) {
    throw Error(base::mismatch("Sampler: saved over " + std::to_string(fields[0]) +
                               " samples with seed " + std::to_string(fields[1]) +
                               ", this one has " + std::to_string(s.num_samples) + " and " +
                               std::to_string(s.seed)));
  }
  const int64_t taken = fields[3];
  if (taken < 0 || taken % s.ranks != 0 || taken / s.ranks > s.per_rank) {
    throw Error(base::invalid_argument(
        "Sampler: " + std::to_string(taken) + " samples were taken, which " +
        std::to_string(s.ranks) + " ranks cannot share evenly; go on with as many ranks as saved"));
  }
  set_epoch(static_cast<uint64_t>(fields[2]));
  s.taken = taken / s.ranks;
  s.go_on = true;
}

}  // namespace hanji::data
