#include "hanji/data/sampler.h"

#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <string>

#include "hanji/base/status.h"
#include "hanji/data/internal/epoch_order.h"

namespace hanji::data {
namespace {

constexpr const char* kKey = "hanji.sampler";
constexpr int64_t kFields = 5;
constexpr int64_t kFieldsWithoutOrder = 4;

}  // namespace

struct Sampler::State {
  int64_t rank, ranks;
  int64_t num_samples;
  uint64_t seed;
  Remainder remainder;
  plan::SampleOrder order;
  int64_t per_rank = 0;
  uint64_t epoch = 0;
  int64_t taken = 0;   // of this rank, in this epoch
  bool go_on = false;  // the next reset() keeps the position that load() brought
  std::shared_ptr<const internal::EpochOrder> sample_at = {};

  void divide() {
    per_rank = num_samples / ranks;
    if (remainder == Remainder::kPad && num_samples % ranks != 0) ++per_rank;
    if (num_samples < 1 || per_rank < 1) {
      throw Error(base::invalid_argument(
          "Sampler: " + std::to_string(num_samples) + " samples for " + std::to_string(ranks) +
          " ranks leave none for some; use fewer ranks or Remainder::kPad"));
    }
    sample_at =
        internal::make_epoch_order({.seed = seed, .num_samples = num_samples, .order = order})
            .or_throw();
    taken = 0;
  }
};

Sampler::Sampler(int rank, int ranks, const Epochs& epochs)
    : state_(std::make_shared<State>(State{rank, ranks, static_cast<int64_t>(epochs.num_samples),
                                           epochs.seed, epochs.remainder, epochs.order})) {
  state_->divide();
}

void Sampler::set_epoch(uint64_t epoch) {
  if (epoch > uint64_t{INT64_MAX}) {
    throw Error(base::invalid_argument("Sampler: epoch " + std::to_string(epoch) +
                                       " is above 2^63 - 1; count epochs from 0"));
  }
  state_->epoch = epoch;
  state_->go_on = false;
  state_->taken = 0;
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
    const int64_t sample = s.sample_at->at(static_cast<int64_t>(s.epoch), position % s.num_samples);
    indices.push_back(static_cast<size_t>(sample));
  }
  return indices;
}

void Sampler::save(torch::serialize::OutputArchive& archive) const {
  const State& s = *state_;
  archive.write(
      kKey, at::tensor({s.num_samples, static_cast<int64_t>(s.seed), static_cast<int64_t>(s.epoch),
                        s.taken * s.ranks, static_cast<int64_t>(s.order)},
                       at::kLong));
}

void Sampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor saved;
  const bool is_there = archive.try_read(kKey, saved) && saved.scalar_type() == at::kLong;
  if (!is_there || (saved.numel() != kFields && saved.numel() != kFieldsWithoutOrder)) {
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
  const int64_t order = saved.numel() == kFields ? fields[4] : 0;
  if (order != static_cast<int64_t>(s.order)) {
    throw Error(base::mismatch("Sampler: saved in another order than " +
                               std::string(plan::name_of(s.order))));
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
