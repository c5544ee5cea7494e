#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/c10d/internal/group_backend.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/scatter.h"

namespace hanji::comm::c10d {
namespace {

using ::c10d::OpType;

constexpr CallOptions kLabel{.label = "c10d"};

[[noreturn]] void refuse(const char* title, const std::string& why) {
  throw Error(base::invalid_argument(fmt::format("{}: {}", title, why)));
}

/// The root brings one list of a tensor per rank, others none.
void check_root_list(const std::vector<Tensors>& lists, bool is_root, int size, const char* title) {
  if (!is_root && !lists.empty()) refuse(title, "only the root brings a list of tensors");
  if (!is_root) return;
  if (lists.size() != 1 || lists[0].size() != static_cast<size_t>(size)) {
    refuse(title, fmt::format("the root brings one list of {} tensors, one for each rank", size));
  }
}

/// Even pieces move without counts, whose shapes c10d wants equal.
void check_equal_shares(const Tensors& tensors, int64_t elements, const char* title) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != elements) {
      refuse(title, fmt::format("a tensor of {} elements in the list where each rank has {}",
                                tensor.numel(), elements));
    }
  }
}

/// Elements of `tensor` that go to or come from each rank, by rows of its first dimension.
std::vector<int64_t> shares(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                            const char* title) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const int64_t width = rows == 0 ? 0 : tensor.numel() / rows;
  if (splits.empty()) {
    if (rows % size != 0) refuse(title, fmt::format("{} rows do not divide by {}", rows, size));
    return std::vector<int64_t>(size, rows / size * width);
  }
  if (static_cast<int>(splits.size()) != size) {
    refuse(title, fmt::format("{} splits for {} ranks", splits.size(), size));
  }
  int64_t sum = 0;
  std::vector<int64_t> elements;
  for (const int64_t split : splits) {
    if (split < 0) refuse(title, fmt::format("a split of {} rows", split));
    sum += split;
    elements.push_back(split * width);
  }
  if (sum != rows) refuse(title, fmt::format("splits of {} rows for a tensor of {}", sum, rows));
  return elements;
}

/// What each rank gives to each, as all_to_all() takes it, out of what this rank gives and expects.
/// Every rank learns both of all ranks, so all refuse together.
std::vector<int64_t> agree_on_counts(const std::vector<int64_t>& given,
                                     const std::vector<int64_t>& expected, const Group& group,
                                     const char* title) {
  const auto size = static_cast<int64_t>(expected.size());
  at::Tensor mine = at::empty({2 * size}, at::kLong);
  std::copy(given.begin(), given.end(), mine.data_ptr<int64_t>());
  std::copy(expected.begin(), expected.end(), mine.data_ptr<int64_t>() + size);
  at::Tensor all = at::empty({2 * size * size}, at::kLong);
  all_gather(all, mine, group, kLabel).wait();
  const auto* said = all.const_data_ptr<int64_t>();
  std::vector<int64_t> counts;
  for (int64_t from = 0; from < size; ++from) {
    for (int64_t to = 0; to < size; ++to) {
      const int64_t sent = said[2 * size * from + to];
      const int64_t awaited = said[2 * size * to + size + from];
      if (sent != awaited) {
        throw Error(
            base::mismatch(fmt::format("{}: rank {} sends {} elements to rank {}, which expects {}",
                                       title, from, sent, to, awaited)));
      }
      counts.push_back(sent);
    }
  }
  return counts;
}

}  // namespace

hanji::comm::Work GroupBackend::start_all_gather(at::Tensor& output, const at::Tensor& input,
                                                 std::vector<Then>& thens) {
  at::Tensor staged = to_fill(output);
  auto work = all_gather(staged, to_move(input), group(), kLabel);
  thens.push_back([output, staged] { put_back(output, staged); });
  return work;
}

hanji::comm::Work GroupBackend::start_all_gather(const Tensors& outputs, const at::Tensor& input,
                                                 std::vector<Then>& thens) {
  if (static_cast<int>(outputs.size()) != size_) {
    refuse("all_gather", fmt::format("{} output tensors for {} ranks", outputs.size(), size_));
  }
  const auto counts = uneven_counts(outputs);
  int64_t elements = 0;
  for (const at::Tensor& tensor : outputs) elements += tensor.numel();
  at::Tensor flat = at::empty({elements}, input.options().layout(at::kStrided));
  auto work = counts.empty() ? all_gather(flat, to_move(input), group(), kLabel)
                             : all_gather(flat, to_move(input), counts, group(), kLabel);
  thens.push_back([flat, outputs] { spread(flat, outputs); });
  return work;
}

WorkPtr GroupBackend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  const auto name = named(OpType::BROADCAST, "hanji:broadcast", options.timeout, tensors);
  const at::Tensor tensor = only(tensors, name.title);
  at::Tensor staged = to_move(tensor);
  auto work = comm::broadcast(staged, static_cast<int>(options.rootRank), group(), kLabel);
  return track(name, tensors, std::move(work), [tensor, staged] { put_back(tensor, staged); });
}

WorkPtr GroupBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const ::c10d::AllgatherOptions& options) {
  const auto name = named(OpType::ALLGATHER, "hanji:all_gather", options.timeout, inputs);
  const at::Tensor& input = only(inputs, name.title);
  if (outputs.size() != 1) refuse(name.title, "one list of output tensors is needed");
  std::vector<Then> thens;
  auto work = start_all_gather(outputs[0], input, thens);
  return track(name, outputs[0], std::move(work), in_turn(std::move(thens)));
}

WorkPtr GroupBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const ::c10d::AllgatherOptions& options) {
  const auto name =
      named(OpType::_ALLGATHER_BASE, "hanji:_all_gather_base", options.timeout, {input});
  std::vector<Then> thens;
  auto work = start_all_gather(output, input, thens);
  return track(name, {output}, std::move(work), in_turn(std::move(thens)));
}

// outputs[rank][tensor], where allgather() has outputs[tensor][rank].
WorkPtr GroupBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) {
  const auto name =
      named(OpType::ALLGATHER_COALESCED, "hanji:all_gather_coalesced", options.timeout, inputs);
  if (static_cast<int>(outputs.size()) != size_) {
    refuse(name.title, fmt::format("{} output lists for {} ranks", outputs.size(), size_));
  }
  hanji::comm::Work last;  // calls complete in order, so the last one speaks for all
  std::vector<Then> thens;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (const Tensors& list : outputs) {
      if (list.size() != inputs.size()) {
        refuse(name.title, "an output list is not as long as the list of inputs");
      }
      of_ranks.push_back(list[i]);
      all.push_back(list[i]);
    }
    last = start_all_gather(of_ranks, inputs[i], thens);
  }
  return track(name, all, last, in_turn(std::move(thens)));
}

WorkPtr GroupBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const ::c10d::AllgatherOptions& options) {
  const auto name =
      named(OpType::COALESCED, "hanji:all_gather_into_tensor_coalesced", options.timeout, inputs);
  if (outputs.size() != inputs.size()) {
    refuse(name.title, fmt::format("{} outputs for {} inputs", outputs.size(), inputs.size()));
  }
  hanji::comm::Work last;
  std::vector<Then> thens;
  for (size_t i = 0; i < inputs.size(); ++i) {
    last = start_all_gather(outputs[i], inputs[i], thens);
  }
  return track(name, outputs, last, in_turn(std::move(thens)));
}

WorkPtr GroupBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const ::c10d::GatherOptions& options) {
  const auto name = named(OpType::GATHER, "hanji:gather", options.timeout, inputs);
  const at::Tensor input = to_move(only(inputs, name.title));
  const auto root = static_cast<int>(options.rootRank);
  check_root_list(outputs, root == rank_, size_, name.title);
  at::Tensor flat;
  if (root == rank_) {
    check_equal_shares(outputs[0], input.numel(), name.title);
    flat = at::empty({size_ * input.numel()}, input.options());
  }
  auto work = comm::gather(flat, input, root, group(), kLabel);
  if (root != rank_) return track(name, {}, std::move(work));
  const Tensors list = outputs[0];
  return track(name, list, std::move(work), [flat, list] { spread(flat, list); });
}

WorkPtr GroupBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const ::c10d::ScatterOptions& options) {
  const auto name = named(OpType::SCATTER, "hanji:scatter", options.timeout,
                          inputs.empty() ? Tensors() : inputs[0]);
  const at::Tensor output = only(outputs, name.title);
  const auto root = static_cast<int>(options.rootRank);
  check_root_list(inputs, root == rank_, size_, name.title);
  at::Tensor flat;
  if (root == rank_) {
    check_equal_shares(inputs[0], output.numel(), name.title);
    flat = flatten(inputs[0]);
  }
  at::Tensor staged = to_fill(output);
  auto work = comm::scatter(staged, flat, root, group(), kLabel);
  return track(name, outputs, std::move(work), [output, staged] { put_back(output, staged); });
}

WorkPtr GroupBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits,
                                    const ::c10d::AllToAllOptions& options) {
  const auto name = named(OpType::ALLTOALL_BASE, "hanji:all_to_all", options.timeout, {input});
  at::Tensor from = to_move(input);
  at::Tensor staged = to_fill(output);
  if (staged.is_alias_of(from)) from = from.clone();
  const auto given = shares(input, input_splits, size_, name.title);
  const auto expected = shares(output, output_splits, size_, name.title);
  hanji::comm::Work work;
  if (output_splits.empty() && input_splits.empty()) {
    work = all_to_all(staged, from, group(), kLabel);
  } else {
    const auto counts = agree_on_counts(given, expected, group(), name.title);
    work = all_to_all(staged, from, counts, group(), kLabel);
  }
  return track(name, {output}, std::move(work), [output, staged] { put_back(output, staged); });
}

WorkPtr GroupBackend::alltoall(Tensors& outputs, Tensors& inputs,
                               const ::c10d::AllToAllOptions& options) {
  const auto name = named(OpType::ALLTOALL, "hanji:all_to_all", options.timeout, inputs);
  if (static_cast<int>(outputs.size()) != size_ || static_cast<int>(inputs.size()) != size_) {
    refuse(name.title, fmt::format("{} outputs and {} inputs for {} ranks", outputs.size(),
                                   inputs.size(), size_));
  }
  std::vector<int64_t> given;
  std::vector<int64_t> expected;
  for (const at::Tensor& tensor : inputs) given.push_back(tensor.numel());
  for (const at::Tensor& tensor : outputs) expected.push_back(tensor.numel());
  const at::Tensor from = flatten(inputs);
  int64_t elements = 0;
  for (const int64_t count : expected) elements += count;
  at::Tensor flat = at::empty({elements}, from.options());
  const auto counts = agree_on_counts(given, expected, group(), name.title);
  auto work = all_to_all(flat, from, counts, group(), kLabel);
  const Tensors list = outputs;
  return track(name, list, std::move(work), [flat, list] { spread(flat, list); });
}

}  // namespace hanji::comm::c10d
