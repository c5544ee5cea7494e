#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/status.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/host_values.h"
#include "hanji/layout/split.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/gradients/gradient_hook.h"
#include "hanji/parallel/without_memory.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {
namespace {

constexpr size_t kMaxTold = 8;  // of tensors with one mistake: one too many moves all that follow

int64_t hash_of(const void* data, size_t bytes) {
  return static_cast<int64_t>(base::xxh3({static_cast<const std::byte*>(data), bytes}));
}

std::string signature(const NamedParameter& entry) {
  std::string text = entry.name + " [";
  for (const int64_t size : entry.tensor.sizes()) text += std::to_string(size) + " ";
  if (text.back() == ' ') text.pop_back();
  return text + "] " + c10::toString(entry.tensor.scalar_type());
}

/// With what ranks must have alike before training.
std::string full_signature(const NamedParameter& entry) {
  return signature(entry) + (entry.tensor.requires_grad() ? " that requires" : " without") +
         " a gradient";
}

int64_t largest_over_ranks(int64_t value, const comm::Group& group) {
  at::Tensor tensor = at::full({1}, value, at::kLong);
  comm::all_reduce_on_host(tensor, group,
                           {.op = schedule::ReduceOp::kMax, .label = "tensor count"});
  return tensor.item<int64_t>();
}

/// Every rank's hashes, one row per rank, padded with zeros to the longest.
std::vector<std::vector<int64_t>> gather_hashes(std::vector<int64_t> mine,
                                                const comm::Group& group) {
  const int64_t columns = std::max<int64_t>(1, largest_over_ranks(mine.size(), group));
  mine.resize(columns, 0);
  const at::Tensor input = at::empty({columns}, at::kLong);
  std::copy(mine.begin(), mine.end(), input.mutable_data_ptr<int64_t>());
  at::Tensor output = at::empty({group.size() * columns}, at::kLong);
  comm::all_gather_on_host(output, input, group, {.label = "hashes"});
  std::vector<std::vector<int64_t>> rows(group.size());
  const auto* data = output.const_data_ptr<int64_t>();
  for (int rank = 0; rank < group.size(); ++rank) {
    rows[rank].assign(data + rank * columns, data + (rank + 1) * columns);
  }
  return rows;
}

/// The ranks whose entry in `column` is not the most common one, as "1, 3".
std::string odd_ranks(const std::vector<std::vector<int64_t>>& rows, size_t column) {
  std::map<int64_t, int> votes;
  for (const auto& row : rows) ++votes[row[column]];
  int64_t common = rows[0][column];
  for (const auto& [hash, count] : votes) {
    if (count > votes[common]) common = hash;
  }
  std::string text;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank][column] != common) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

/// The columns in which the rows differ.
std::vector<size_t> differences(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<size_t> found;
  for (size_t column = 0; column < rows[0].size(); ++column) {
    const bool same =
        std::ranges::all_of(rows, [&](const auto& row) { return row[column] == rows[0][column]; });
    if (!same) found.push_back(column);
  }
  return found;
}

/// What this rank holds in those columns, and who holds something else.
std::string describe(const std::vector<size_t>& columns, const std::vector<NamedParameter>& tensors,
                     const std::vector<std::vector<int64_t>>& rows, int rank) {
  std::string text = "the ranks hold different modules; rank " + std::to_string(rank) + " has ";
  for (size_t i = 0; i < columns.size() && i < kMaxTold; ++i) {
    const size_t column = columns[i];
    text += (i > 0 ? ", " : "") + std::string("tensor ") + std::to_string(column) + ": " +
            (column < tensors.size() ? full_signature(tensors[column]) : "none") +
            " (other on ranks " + odd_ranks(rows, column) + ")";
  }
  if (columns.size() > kMaxTold) {
    text += " and " + std::to_string(columns.size() - kMaxTold) + " more";
  }
  return text + "; build the same module on every rank";
}

/// "1) this; 2) that", or this alone; its code in front, as one character.
std::string joined(const std::vector<Status>& mistakes) {
  if (mistakes.empty()) return {};
  std::string text(1, static_cast<char>(mistakes[0].code()));
  for (size_t i = 0; i < mistakes.size(); ++i) {
    if (mistakes.size() > 1) text += (i > 0 ? "; " : "") + std::to_string(i + 1) + ") ";
    text += mistakes[i].message();
  }
  return text;
}

/// Every rank's text. None is longer than `length`.
std::vector<std::string> gather_texts(const std::string& mine, int64_t length,
                                      const comm::Group& group) {
  const at::Tensor input = at::zeros({length}, at::kByte);
  std::ranges::copy(mine, input.mutable_data_ptr<uint8_t>());
  at::Tensor output = at::zeros({group.size() * length}, at::kByte);
  comm::all_gather_on_host(output, input, group, {.label = "mistakes"});
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* begin =
        reinterpret_cast<const char*>(output.const_data_ptr<uint8_t>()) + rank * length;
    texts.emplace_back(begin, strnlen(begin, length));
  }
  return texts;
}

/// Those of this rank, or if it has none of the first rank of the group that has some.
std::string first_of_ranks(const std::string& mine, const comm::Group& group) {
  const int64_t length = largest_over_ranks(static_cast<int64_t>(mine.size()), group);
  if (length == 0) return {};
  const auto texts = gather_texts(mine, length, group);
  if (!mine.empty()) return mine;
  const auto other = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  const std::string rank = "rank " + std::to_string(other - texts.begin()) + ": ";
  return other->front() + (other->compare(1, 5, "rank ") == 0 ? "" : rank) + other->substr(1);
}

/// What joined() gives; nothing of an empty one.
void throw_joined(const std::string& joined) {
  if (joined.empty()) return;
  throw Error(Status(static_cast<base::Code>(joined[0]), joined.substr(1)));
}

void refuse_together(const std::vector<Status>& mistakes, const comm::Group& group) {
  throw_joined(first_of_ranks(joined(mistakes), group));
}

}  // namespace

std::vector<NamedParameter> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedParameter> found;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) found.push_back({item.key(), item.value()});
  }
  return found;
}

std::vector<NamedParameter> with_buffers(std::vector<NamedParameter> parameters,
                                         const std::vector<NamedParameter>& buffers) {
  parameters.insert(parameters.end(), buffers.begin(), buffers.end());
  return parameters;
}

void Mistakes::add(const std::string& kind, const std::string& parameter, const Status& mistake) {
  for (Entry& entry : entries_) {
    if (entry.kind == kind) return entry.others.push_back(parameter);
  }
  entries_.push_back({kind, mistake, {}});
}

void Mistakes::add_if_taken(const NamedParameter& parameter, const std::string& caller) {
  const std::string strategy = strategy_of(parameter.tensor);
  if (strategy.empty()) return;
  add("taken", parameter.name,
      base::invalid_argument(caller + ": parameter " + parameter.name +
                             " is trained already by what " + strategy +
                             "() gave; wrap the outermost module once, or end that handle first"));
}

void Mistakes::add_if_without_memory(const NamedParameter& tensor, const std::string& caller) {
  if (!tensor.tensor.is_meta()) return;
  add("memory", tensor.name,
      base::invalid_argument(caller + ": " + tensor.name +
                             " has no memory and no values (it is on the meta device); give what "
                             "hanji::deferred() returned to fully_shard() or shard_optimizer(), or "
                             "let its materialise() fill the module first"));
}

void Mistakes::add_if_learning(const NamedParameter& buffer, const std::string& caller) {
  if (!buffer.tensor.requires_grad() || !buffer.tensor.is_leaf()) return;
  add("buffer", buffer.name,
      base::invalid_argument(caller + ": buffer " + buffer.name +
                             " requires a gradient, and only those of parameters are summed over "
                             "ranks; register it by register_parameter()"));
}

void Mistakes::add_if_no_sum(const NamedParameter& parameter, const std::string& caller) {
  const at::Tensor& tensor = parameter.tensor;
  const std::string is = caller + ": parameter " + parameter.name + " is ";
  if (tensor.layout() != c10::kStrided) {
    add("layout", parameter.name,
        base::unsupported(is + "not dense, and ranks keep parameters in dense memory; make it "
                               "dense by to_dense()"));
  } else if (tensor.requires_grad() && !c10::isFloatingType(tensor.scalar_type())) {
    add("no sum", parameter.name,
        base::unsupported(is + c10::toString(tensor.scalar_type()) +
                          ", and gradients are summed over ranks in real floating dtypes; register "
                          "at::view_as_real() of it, and take at::view_as_complex() in forward()"));
  }
}

ModuleTensors tensors_of(const torch::nn::Module& module) {
  ModuleTensors found;
  found.buffers = buffers_of(module);
  for (NamedParameter& entry : distinct_parameters(module)) {
    const bool learns = entry.tensor.requires_grad();
    if (!learns && is_without_memory(entry.tensor)) continue;  // of another stage of a pipeline
    (learns ? found.learning : found.frozen).push_back(entry);
    found.in_order.push_back(std::move(entry));
  }
  found.in_order = with_buffers(std::move(found.in_order), found.buffers);
  return found;
}

Mistakes flat_mistakes(const ModuleTensors& tensors, const std::string& caller) {
  const std::vector<NamedParameter>& parameters = tensors.learning;
  Mistakes mistakes;
  for (const auto& entry : tensors.in_order) mistakes.add_if_without_memory(entry, caller);
  if (parameters.empty()) {
    mistakes.add(
        "none", "",
        base::invalid_argument(caller + ": no parameter of the module requires a gradient; "
                                        "nothing to reduce"));
    return mistakes;
  }
  const auto kind_of = [](const at::Tensor& tensor) {
    return std::string(c10::toString(tensor.scalar_type())) + " on " + tensor.device().str();
  };
  const std::string first = kind_of(parameters[0].tensor);
  for (const NamedParameter& entry : tensors.buffers) mistakes.add_if_learning(entry, caller);
  for (const NamedParameter& entry : tensors.frozen) mistakes.add_if_no_sum(entry, caller);
  for (const NamedParameter& entry : parameters) {
    mistakes.add_if_taken(entry, caller);
    mistakes.add_if_no_sum(entry, caller);
    const std::string kind = kind_of(entry.tensor);
    if (entry.tensor.is_meta() || kind == first) continue;
    mistakes.add("kind", entry.name,
                 base::unsupported(caller + ": " + entry.name + " is " + kind + " but " +
                                   parameters[0].name + " is " + first +
                                   "; convert the module to one dtype and device, or wrap its "
                                   "parts one by one"));
  }
  return mistakes;
}

std::vector<layout::Range> stable_owners(const StableOptions& options, int num_ranks) {
  std::vector<layout::Range> owners = options.owners;
  if (options.num_grains == 0 && owners.empty()) return {};
  if (owners.empty()) owners = layout::split_grains(options.num_grains, num_ranks).or_throw();
  base::throw_if_error(schedule::check_owners(options.num_grains, owners));
  if (static_cast<int>(owners.size()) != num_ranks) {
    throw Error(
        base::invalid_argument(options.caller + ": owners names " + std::to_string(owners.size()) +
                               " ranks that compute, there are " + std::to_string(num_ranks)));
  }
  if (options.average == Average::kWeighted) {
    throw Error(base::unsupported(options.caller +
                                  ": Average::kWeighted scales before the sum, which stable bits "
                                  "forbid; weigh the loss of each grain and use Average::kSum"));
  }
  return owners;
}

void check_stable_sums(const std::string& caller, const std::string& parameter,
                       at::ScalarType dtype, const std::string& remedy) {
  if (c10::elementSize(dtype) >= 4) return;
  throw Error(base::unsupported(
      caller + ": gradients of " + parameter + " are added up in " + c10::toString(dtype) +
      ", which rounds differently within a rank and between ranks; " + remedy));
}

std::vector<Status> Mistakes::all() const {
  std::vector<Status> all;
  for (const auto& [kind, first, others] : entries_) {
    std::string text = first.message();
    for (size_t i = 0; i < others.size() && i < kMaxTold; ++i) {
      text += (i == 0 ? "; the same of " : ", ") + others[i];
    }
    if (others.size() > kMaxTold) {
      text += " and " + std::to_string(others.size() - kMaxTold) + " more";
    }
    all.emplace_back(first.code(), text);
  }
  return all;
}

void Mistakes::refuse() const { throw_joined(joined(all())); }

void refuse_together(const Mistakes& mistakes, std::span<const comm::Group> groups) {
  std::string known = joined(mistakes.all());
  for (const comm::Group& group : groups) known = first_of_ranks(known, group);
  throw_joined(known);
}

void check_same_structure(const std::vector<NamedParameter>& tensors, const comm::Group& group,
                          const Mistakes& mistakes) {
  std::vector<int64_t> hashes;
  for (const auto& entry : tensors) {
    const std::string text = full_signature(entry);
    hashes.push_back(hash_of(text.data(), text.size()));
  }
  const auto rows = gather_hashes(hashes, group);
  const auto columns = differences(rows);
  std::vector<Status> all;
  if (!columns.empty())
    all.push_back(base::mismatch(describe(columns, tensors, rows, group.rank())));
  for (const Status& mistake : mistakes.all()) all.push_back(mistake);
  refuse_together(all, group);
}

void check_same_words(const std::string& option, const std::string& words, const comm::Group& group,
                      const Mistakes& mistakes) {
  const auto rows = gather_hashes({hash_of(words.data(), words.size())}, group);
  std::vector<Status> all;
  if (!differences(rows).empty()) {
    all.push_back(base::mismatch("the option " + option + " differs between ranks; rank " +
                                 std::to_string(group.rank()) + " has \"" + words +
                                 "\" (other on ranks " + odd_ranks(rows, 0) +
                                 "); give the same on every rank"));
  }
  for (const Status& mistake : mistakes.all()) all.push_back(mistake);
  refuse_together(all, group);
}

void check_same_values(const std::vector<NamedParameter>& tensors, const comm::Group& group) {
  std::vector<int64_t> hashes;
  for (const auto& entry : tensors) {
    const at::Tensor dense = entry.tensor.detach().cpu().contiguous();
    hashes.push_back(hash_of(dense.const_data_ptr(), dense.nbytes()));
  }
  const auto rows = gather_hashes(hashes, group);
  const auto columns = differences(rows);
  if (columns.empty()) return;
  const size_t column = columns[0];
  throw Error(base::mismatch("the replicas have drifted apart: " + signature(tensors.at(column)) +
                             " has other bytes on ranks " + odd_ranks(rows, column) +
                             "; restart from the last checkpoint and test that host's memory"));
}

void broadcast_from_first(const std::vector<NamedParameter>& tensors, const comm::Group& group) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : tensors) {
    at::Tensor dense = entry.tensor.detach().contiguous();
    const auto name = static_cast<uint64_t>(hash_of(entry.name.data(), entry.name.size()));
    comm::broadcast(dense, 0, group, {.tag = name << 32, .label = entry.name}).wait();
    if (!dense.is_same(entry.tensor) && dense.data_ptr() != entry.tensor.data_ptr()) {
      entry.tensor.detach().copy_(dense);
    }
  }
}

}  // namespace hanji::parallel
