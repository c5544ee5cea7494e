#include "hanji/train/operation_profile.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

#include "hanji/base/atomic_file.h"
#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/lens/cost.h"
#include "hanji/plan/profiled_steps.h"
#include "hanji/report/statistics.h"

namespace hanji::train {
namespace {

double profiled_seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Sums of one rank: memory is shared by all ranks of the fullest host.
report::Roof roof_of_rank(const plan::Plan& plan) {
  const base::KernelChoice& kernels = plan.kernels;
  int ranks_of_host = plan.ranks;
  if (plan.hosts.several()) {
    std::vector<int> counts;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const auto host = static_cast<size_t>(plan.hosts.host_of(rank));
      if (counts.size() <= host) counts.resize(host + 1);
      ++counts[host];
    }
    ranks_of_host = *std::ranges::max_element(counts);
  }
  return {.flops_per_second = kernels.gemm_flops_per_second,
          .bytes_per_second = plan.rates.memory_bytes_per_second / ranks_of_host};
}

/// Memory that is only taken is neither read nor written.
int64_t bytes_moved_by(const lens::Operation& operation) {
  const std::string& name = operation.name();
  if (name.starts_with("aten::empty") || name.starts_with("aten::new_empty")) return 0;
  return lens::moved_bytes(operation);
}

double median_of_profiled(const std::vector<StepSeconds>& seconds, layout::Range steps) {
  std::vector<double> values;
  for (int64_t i = steps.begin; i < steps.end; ++i) values.push_back(seconds[i].step);
  return values.empty() ? 0 : report::median(values);
}

}  // namespace

struct OperationProfile::Step::Scopes {
  explicit Scopes(OperationProfile& profile) : operations(profile), kernels(profile) {}
  lens::Scope operations;
  trace::KernelScope kernels;
};

OperationProfile::OperationProfile(Job& job, const plan::Plan& plan, const PrivateMemory& memory)
    : steps_(plan::profiled_steps(plan.config.train.profile).or_throw()),
      plan_(plan),
      rank_(job.group.rank()),
      recorder_(*job.group.recorder()),
      memory_(memory),
      heap_(job.group.heap()) {
  { const lens::Scope first(*this); }  // takes libtorch's key, which is milliseconds, before a step
  job.scopes.push_back([this](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    return is_on_ ? run_layer(layer, std::move(flow), run) : run(std::move(flow));
  });
}

layers::Flow OperationProfile::run_layer(int64_t layer, layers::Flow flow,
                                         const layers::RunLayer& run) {
  const int64_t outer = std::exchange(layer_, layer);
  const uint64_t begin = at::sequence_number::peek();
  layers::Flow next = run(std::move(flow));
  nodes_.push_back({begin, at::sequence_number::peek(), layer});
  layer_ = outer;
  return next;
}

OperationProfile::Step::Step(OperationProfile* profile, int64_t number) {
  if (profile == nullptr || number < profile->steps_.begin || number >= profile->steps_.end) return;
  profile_ = profile;
  profile_->is_on_ = true;
  profile_->nodes_.clear();
  profile_->open_.clear();
  profile_->layer_ = profile_->backward_layer_ = -1;
  scopes_ = std::make_unique<Scopes>(*profile);
}

OperationProfile::Step::~Step() {
  if (profile_ != nullptr) profile_->is_on_ = false;
}

void OperationProfile::end(int64_t number, const StepSeconds& seconds) {
  if (number < steps_.begin || number >= steps_.end) return;
  if (steps_done_++ == 0) record_.first_step = number + 1;
  record_.last_step = number + 1;
  record_.seconds += seconds.step;
  record_.waits += seconds.data;
  if (seconds.calls) record_.waits += seconds.calls->exposed_transfer + seconds.calls->skew;
}

Status OperationProfile::write(const std::filesystem::path& out,
                               const std::vector<StepSeconds>& seconds, int64_t first_step) {
  if (steps_done_ == 0) return {};
  record_.rank = rank_;
  record_.ranks = plan_.ranks;
  record_.threads = static_cast<int>(plan_.threads);
  record_.roof = roof_of_rank(plan_);
  const layout::Range own = {record_.first_step - 1 - first_step, record_.last_step - first_step};
  record_.step_seconds = median_of_profiled(seconds, own);
  constexpr int64_t kBeside = 10;
  std::vector<StepSeconds> beside;
  for (int64_t i = std::max<int64_t>(1, own.begin - kBeside);  // the first step warms up
       i < std::min(std::ssize(seconds), own.end + kBeside); ++i) {
    if (i < own.begin || i >= own.end) beside.push_back(seconds[i]);
  }
  if (!beside.empty())
    record_.other_step_seconds = median_of_profiled(beside, {0, std::ssize(beside)});
  record_.rows.push_back(
      {.operation = std::string(report::kBetweenOperations),
       .calls = steps_done_,
       .seconds = std::max(0.0, record_.seconds - record_.waits - in_operations_)});
  const std::filesystem::path path = out / report::operations_file(rank_);
  HANJI_RETURN_IF_ERROR(base::make_directories(path.parent_path()));
  return base::write_file_atomic(path, report::to_jsonl(record_));
}

void OperationProfile::before(const lens::Operation& operation) {
  open({.name = operation.name(),
        .flops = lens::flops(operation),
        .bytes = bytes_moved_by(operation),
        .is_seen = !operation.is_view()});
}

void OperationProfile::after(const lens::Operation& operation) {
  const int64_t end_ns = base::now_ns();
  close(bytes_moved_by(operation), end_ns);
}

void OperationProfile::failed(const std::exception&) { open_.pop_back(); }

void OperationProfile::begin(const trace::KernelWork& work) {
  open({.name = std::string(work.name), .flops = work.flops, .bytes = work.bytes});
}

void OperationProfile::end() { close(0, base::now_ns()); }

void OperationProfile::open(Open operation) {
  operation.phase = phase_now();
  operation.layer = layer_now();
  operation.start_ns = base::now_ns();
  open_.push_back(std::move(operation));
}

void OperationProfile::close(int64_t written_bytes, int64_t end_ns) {
  const Open operation = std::move(open_.back());
  open_.pop_back();
  const int64_t passed_ns = end_ns - operation.start_ns;
  if (!open_.empty()) open_.back().within_ns += passed_ns;
  const auto [place, is_new] =
      rows_.try_emplace({operation.name, operation.layer, operation.phase}, record_.rows.size());
  if (is_new) {
    record_.rows.push_back(
        {.operation = operation.name, .layer = operation.layer, .phase = operation.phase});
  }
  report::OperationRow& row = record_.rows[place->second];
  const double seconds = profiled_seconds(passed_ns - operation.within_ns);
  ++row.calls;
  row.seconds += seconds;
  row.flops += operation.flops;
  row.bytes += operation.bytes + written_bytes;
  row.memory_bytes = std::max(row.memory_bytes,
                              memory_.current_bytes() + static_cast<int64_t>(heap_.used_bytes()));
  in_operations_ += seconds;
  if (!operation.is_seen) return;
  recorder_.add({.start_ns = operation.start_ns,
                 .end_ns = end_ns,
                 .name = recorder_.intern(operation.name),
                 .category = trace::Category::kCompute,
                 .bytes = operation.bytes + written_bytes});
}

/// The main lane comes first among the open spans, and is in one all through a step.
std::string OperationProfile::phase_now() const {
  const std::string spans = recorder_.open_spans();
  const std::string phase = spans.substr(0, spans.find(','));
  if (!phase.starts_with("backward")) return phase;
  return layer_ >= 0 ? "recompute" : "backward";  // of a layer's forward, once more
}

int64_t OperationProfile::layer_now() {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || layer_ >= 0) return layer_;
  const uint64_t number = node->sequence_nr();
  const auto behind = std::ranges::upper_bound(nodes_, number, {}, &Nodes::begin);
  if (behind != nodes_.begin() && number < std::prev(behind)->end) {
    backward_layer_ = std::prev(behind)->layer;
  }
  return backward_layer_;
}

}  // namespace hanji::train
