#include "hanji/lens/profile.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "hanji/base/units.h"
#include "hanji/lens/cost.h"
#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/interceptor.h"
#include "hanji/lens/internal/meta_kernels.h"
#include "hanji/lens/storage_index.h"

namespace hanji::lens {
namespace {

using Storages = std::unordered_set<const void*>;

Storages storages_of(const Operation& operation) {
  Storages found;
  operation.for_each_input([&](const at::Tensor& tensor) {
    if (tensor.has_storage()) found.insert(tensor.storage().unsafeGetStorageImpl());
  });
  return found;
}

class Profiler : public Interceptor {
 public:
  explicit Profiler(const torch::nn::Module& module) {
    std::vector<at::Tensor> tensors;
    std::unordered_set<const void*> met;
    const auto take = [&](const std::string& name, const at::Tensor& tensor) {
      tensors.push_back(tensor);
      const size_t dot = name.rfind('.');
      modules_.push_back(dot == std::string::npos ? "" : name.substr(0, dot));
    };
    for (const auto& item : module.named_parameters()) {
      const bool is_new = met.insert(item.value().unsafeGetTensorImpl()).second;
      if (is_new) profile_.parameter_sizes.push_back(item.value().numel());
      take(item.key(), item.value());
    }
    for (const auto& item : module.named_buffers()) take(item.key(), item.value());
    index_ = StorageIndex(std::move(tensors));
  }

  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
            std::vector<c10::IValue>& stack) override {
    if (is_composite(handle)) return call_parts(handle, keys, stack);
    Operation operation(handle, stack);
    const bool backward = torch::autograd::get_current_node() != nullptr;
    if (backward) count_kept();
    operation.for_each_input([&](const at::Tensor& tensor) {
      if (const int position = index_.find(tensor); position >= 0) {
        module_ = modules_[static_cast<size_t>(position)];
      }
    });
    const size_t row = row_of(operation.name(), backward);
    const Storages before = backward || operation.is_view() ? Storages{} : storages_of(operation);
    profile_.sums[row].flops += flops(operation);
    profile_.sums[row].read_bytes += moved_bytes(operation);
    meta_kernels_.call(handle, stack);
    operation.finish();
    profile_.sums[row].written_bytes += moved_bytes(operation);
    ++profile_.sums[row].calls;
    if (!backward && !operation.is_view()) note_made(operation, before, row);
  }

  Profile finish() && { return std::move(profile_); }

 private:
  struct Made {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t bytes;
    size_t row;
  };

  size_t row_of(const std::string& operation, bool backward) {
    const auto [place, is_new] =
        rows_.try_emplace({module_, operation, backward}, profile_.sums.size());
    if (is_new) profile_.sums.push_back({module_, operation, backward});
    return place->second;
  }

  void note_made(const Operation& operation, const Storages& before, size_t row) {
    operation.for_each_output([&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      const c10::Storage& storage = tensor.storage();
      if (before.count(storage.unsafeGetStorageImpl()) != 0) return;
      made_.push_back({storage.getWeakStorageImpl(), static_cast<int64_t>(storage.nbytes()), row});
    });
  }

  /// Who holds a result of the forward when backward begins keeps it for that.
  void count_kept() {
    for (const Made& made : made_) {
      if (!made.storage.expired()) profile_.sums[made.row].kept_bytes += made.bytes;
    }
    made_.clear();
  }

  MetaKernels meta_kernels_;
  StorageIndex index_;
  std::vector<std::string> modules_;
  std::string module_;
  std::map<std::tuple<std::string, std::string, bool>, size_t> rows_;
  std::vector<Made> made_;
  Profile profile_;
};

double flops_of(const std::vector<OperationSum>& sums, bool backward) {
  double flops = 0;
  for (const auto& sum : sums) flops += sum.backward == backward ? sum.flops : 0;
  return flops;
}

void add(OperationSum& total, const OperationSum& sum) {
  total.calls += sum.calls;
  total.flops += sum.flops;
  total.read_bytes += sum.read_bytes;
  total.written_bytes += sum.written_bytes;
  total.kept_bytes += sum.kept_bytes;
}

std::string line(const OperationSum& sum, const std::string& pass) {
  return fmt::format("{:32.32} {:32.32} {:8} {:>6} {:>10} {:>10} {:>10} {:>10}\n", sum.module,
                     sum.operation, pass, sum.calls,
                     base::format_count(static_cast<int64_t>(sum.flops)),
                     base::format_bytes(sum.read_bytes), base::format_bytes(sum.written_bytes),
                     base::format_bytes(sum.kept_bytes));
}

}  // namespace

int64_t Profile::num_parameters() const {
  int64_t count = 0;
  for (const int64_t size : parameter_sizes) count += size;
  return count;
}

double Profile::forward_flops() const { return flops_of(sums, false); }

double Profile::backward_flops() const { return flops_of(sums, true); }

int64_t Profile::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& sum : sums) bytes += sum.kept_bytes;
  return bytes;
}

std::string Profile::table(size_t rows) const {
  auto sorted = sums;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    if (a.flops != b.flops) return a.flops > b.flops;
    return a.read_bytes + a.written_bytes > b.read_bytes + b.written_bytes;
  });
  std::string text = fmt::format("{:32} {:32} {:8} {:>6} {:>10} {:>10} {:>10} {:>10}\n", "module",
                                 "operation", "pass", "calls", "flop", "read", "written", "kept");
  OperationSum rest{"others", ""}, total{"all", ""};
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i < rows) text += line(sorted[i], sorted[i].backward ? "backward" : "forward");
    if (i >= rows) add(rest, sorted[i]);
    add(total, sorted[i]);
  }
  if (sorted.size() > rows) text += line(rest, "");
  return text + line(total, "");
}

Profile profile(const torch::nn::Module& module, const std::function<void()>& run) {
  Profiler profiler(module);
  {
    const InterceptorScope scope(profiler);
    run();
  }
  return std::move(profiler).finish();
}

}  // namespace hanji::lens
