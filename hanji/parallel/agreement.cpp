#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <map>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/status.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/agreement.h"

namespace hanji::parallel {
namespace {

int64_t hash_of(const void* data, size_t bytes) {
  return static_cast<int64_t>(base::xxh3({static_cast<const std::byte*>(data), bytes}));
}

std::string signature(const NamedParameter& entry) {
  std::string text = entry.name + " [";
  for (const int64_t size : entry.tensor.sizes()) text += std::to_string(size) + " ";
  if (text.back() == ' ') text.pop_back();
  return text + "] " + c10::toString(entry.tensor.scalar_type());
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

/// The first column in which the rows differ, or -1.
int first_difference(const std::vector<std::vector<int64_t>>& rows) {
  for (size_t column = 0; column < rows[0].size(); ++column) {
    for (const auto& row : rows) {
      if (row[column] != rows[0][column]) return static_cast<int>(column);
    }
  }
  return -1;
}

}  // namespace

void check_same_structure(const std::vector<NamedParameter>& tensors, const comm::Group& group) {
  std::vector<int64_t> hashes;
  for (const auto& entry : tensors) {
    const std::string text = signature(entry);
    hashes.push_back(hash_of(text.data(), text.size()));
  }
  const auto rows = gather_hashes(hashes, group);
  const int column = first_difference(rows);
  if (column < 0) return;
  const std::string here = column < static_cast<int>(tensors.size())
                               ? signature(tensors[column])
                               : "nothing: it has " + std::to_string(tensors.size()) + " tensors";
  throw Error(base::mismatch("the ranks hold different modules: tensor " + std::to_string(column) +
                             " on rank " + std::to_string(group.rank()) + " is " + here +
                             "; it differs on ranks " + odd_ranks(rows, column) +
                             "; build the same module on every rank"));
}

void check_same_values(const std::vector<NamedParameter>& tensors, const comm::Group& group) {
  std::vector<int64_t> hashes;
  for (const auto& entry : tensors) {
    const at::Tensor dense = entry.tensor.detach().cpu().contiguous();
    hashes.push_back(hash_of(dense.const_data_ptr(), dense.nbytes()));
  }
  const auto rows = gather_hashes(hashes, group);
  const int column = first_difference(rows);
  if (column < 0) return;
  throw Error(base::mismatch("the replicas have drifted apart: " + signature(tensors.at(column)) +
                             " has other bytes on ranks " + odd_ranks(rows, column) +
                             "; restart from the last checkpoint and test that host's memory"));
}

void broadcast_from_first(const std::vector<NamedParameter>& tensors, const comm::Group& group) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : tensors) {
    at::Tensor dense = entry.tensor.detach().contiguous();
    comm::broadcast(dense, 0, group, {.label = entry.name}).wait();
    if (!dense.is_same(entry.tensor) && dense.data_ptr() != entry.tensor.data_ptr()) {
      entry.tensor.detach().copy_(dense);
    }
  }
}

}  // namespace hanji::parallel
