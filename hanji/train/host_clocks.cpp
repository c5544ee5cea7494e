#include "hanji/train/host_clocks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/message.h"

namespace hanji::train {
namespace {

constexpr int kQuestions = 32;
constexpr int kNumbers = 3;  // of a reading

std::vector<trace::ClockSample> ask(const comm::Group& group) {
  std::vector<trace::ClockSample> samples;
  at::Tensor question = at::zeros({1}, at::kLong), answer = at::empty({2}, at::kLong);
  for (int i = 0; i < kQuestions; ++i) {
    trace::ClockSample one{.t0 = base::now_ns()};
    comm::send(question, 0, group, {.label = "clock"}).wait();
    comm::recv(answer, 0, group, {.label = "clock"}).wait();
    one.t3 = base::now_ns();
    one.t1 = answer.const_data_ptr<int64_t>()[0];
    one.t2 = answer.const_data_ptr<int64_t>()[1];
    samples.push_back(one);
  }
  return samples;
}

void answer(int rank, const comm::Group& group) {
  at::Tensor question = at::zeros({1}, at::kLong), answer = at::empty({2}, at::kLong);
  auto* const values = answer.mutable_data_ptr<int64_t>();
  for (int i = 0; i < kQuestions; ++i) {
    comm::recv(question, rank, group, {.label = "clock"}).wait();
    values[0] = base::now_ns();
    values[1] = base::now_ns();
    comm::send(answer, rank, group, {.label = "clock"}).wait();
  }
}

}  // namespace

HostClocks::HostClocks(const comm::Group& group, std::vector<int> ranks_per_host)
    : group_(group), ranks_per_host_(std::move(ranks_per_host)), begin_(compare()) {}

trace::ClockOffset HostClocks::offset() const {
  const auto end = compare();
  return begin_ ? trace::ClockOffset(*begin_, end) : trace::ClockOffset();
}

std::optional<trace::ClockReading> HostClocks::compare() const {
  if (ranks_per_host_.size() == 1) return std::nullopt;
  at::Tensor own = at::zeros({kNumbers}, at::kLong);
  int first = ranks_per_host_.at(0), own_first = 0;
  for (size_t host = 1; host < ranks_per_host_.size(); ++host) {
    if (group_.rank() == 0) answer(first, group_);
    if (group_.rank() == first) {
      const auto reading = trace::read_clock(ask(group_)).value();
      auto* const numbers = own.mutable_data_ptr<int64_t>();
      numbers[0] = reading.at_ns;
      numbers[1] = reading.offset_ns;
      numbers[2] = reading.error_ns;
    }
    if (group_.rank() >= first) own_first = first;
    first += ranks_per_host_[host];
  }
  at::Tensor all = at::empty({group_.size() * kNumbers}, at::kLong);
  comm::all_gather(all, own, group_, {.label = "clocks"}).wait();
  if (own_first == 0) return std::nullopt;
  const auto* const numbers = all.const_data_ptr<int64_t>() + own_first * kNumbers;
  return trace::ClockReading{numbers[0], numbers[1], numbers[2]};
}

}  // namespace hanji::train
