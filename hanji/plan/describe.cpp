#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/context.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/memory_bars.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/moves.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/predict.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::plan {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kLabel = 12;

/// Text from outside, made fit for a terminal and shortened in the middle.
std::string plain(const std::string& text, size_t longest) {
  std::string out;
  for (char c : text) out += c >= ' ' && c <= '~' ? c : '?';
  if (out.size() <= longest) return out;
  const size_t half = (longest - 3) / 2;
  return out.substr(0, half) + "..." + out.substr(out.size() - half);
}

/// "label       words words": broken between words where a line would pass 80 columns.
std::string paragraph(std::string_view label, std::string_view text) {
  std::string out, line = fmt::format("{:<{}}", label, kLabel);
  bool fresh = true;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (!fresh && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = std::string(kLabel, ' ');
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += word;
    fresh = false;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out + line + "\n";
}

/// "4 4 3"; of more than a host's ranks "8 (126 times), 7 (2 times)" in the order of `values`.
template <class T>
std::string listed(const std::vector<T>& values, std::string_view separator) {
  if (values.size() <= static_cast<size_t>(base::kMaxRanksPerHost)) {
    return fmt::format("{}", fmt::join(values, separator));
  }
  std::string text;
  for (auto begin = values.begin(); begin != values.end();) {
    const auto end = std::find_if(begin, values.end(), [&](T value) { return value != *begin; });
    text += fmt::format("{}{}", text.empty() ? "" : ", ", *begin);
    if (end - begin > 1) text += fmt::format(" ({} times)", end - begin);
    begin = end;
  }
  return text;
}

std::string flops(double rate) { return fmt::format("{:.3g} GF/s", rate / 1e9); }

/// "token" of "tokens".
std::string_view one_of(std::string_view targets) { return targets.substr(0, targets.size() - 1); }

std::string describe_model(const Plan& plan) {
  const ModelConfig& m = plan.config.model;
  const ModelFamily& family = family_of(m);
  const ModelFacts whole = facts_of_whole(plan.config, plan.model);
  return fmt::format("{}: {}; {} parameters, {:.3g} MF per {}", m.preset,
                     family.describe(m, plan.data.vocabulary),
                     base::format_count(whole.num_parameters()), whole.flops_per_target() / 1e6,
                     one_of(targets_of(family.data)));
}

/// ", each in 7.6 ms, 0.004 of them for a sample", where they were timed.
std::string describe_pages(const OperationTimes& times) {
  if (times.page_seconds <= 0) return "";
  const std::string each = fmt::format(", each in {}", base::format_seconds(times.page_seconds));
  return times.pages_per_sample > 0
             ? fmt::format("{}, {:.2g} of them for a sample", each, times.pages_per_sample)
             : each + ", all of them once";
}

/// How samples are drawn from a file, where that is not the default.
std::string describe_order(const Plan& plan) {
  const DataConfig& data = plan.config.data;
  std::string text;
  if (data.order != SampleOrder::kRandom) text += fmt::format("; order {}", name_of(data.order));
  if (!data.weights.empty()) text += fmt::format("; drawn by {} weights", plain(data.weights, 20));
  if (data.cache != FileCache::kProcess) return text;
  return text + fmt::format("; {} of {} in memory of the host, {}, read past the kernel's cache{}",
                            base::counted(data.pages, "page"),
                            base::format_bytes(plan.data.page_bytes),
                            base::format_bytes(cache_bytes(plan)), describe_pages(plan.times));
}

/// The part of a step that more threads, ranks or a larger machine would have to shorten first.
std::string_view slowest_part(const Prediction& p) {
  if (p.data_seconds >= std::max(p.compute_seconds, p.exposed_transfer_seconds)) {
    return "reading samples";
  }
  return p.compute_seconds >= p.exposed_transfer_seconds ? "compute" : "transfer";
}

std::string describe_data(const Plan& plan) {
  const DataConfig& data = plan.config.data;
  std::string source = "the embedded text";
  if (!data.tokens.empty()) source = plain(data.tokens, 50);
  if (!data.text.empty()) source = plain(data.text, 50);
  if (!data.files.empty()) source = plain(data.files, 50);
  const DataKind kind = data_kind(plan.config);
  if (kind == DataKind::kPairs) {
    const std::string sequences =
        has_sequences(data.pairs) ? fmt::format(" by {}", base::counted(data.sequences, "sequence"))
                                  : std::string();
    return fmt::format("{} of {}{}: {} to train on and {} to validate", name_of(data.pairs),
                       base::counted(data.residues, "residue"), sequences,
                       base::format_count(plan.data.num_train_samples),
                       base::format_count(plan.data.num_validation_samples));
  }
  if (kind != DataKind::kTokens) {
    const std::string images =
        data.files.empty() ? fmt::format("{} images of {} x {}", name_of(data.images),
                                         data.image_size, data.image_size)
                           : fmt::format("{} as {} x {}, {}", plain(data.files, 50),
                                         data.image_size, data.image_size, plain(data.stage, 200));
    const std::string what =
        kind == DataKind::kOwn ? "samples of the program's own source" : images;
    return fmt::format("{}: {} to train on and {} to validate{}", what,
                       base::format_count(plan.data.num_train_samples),
                       base::format_count(plan.data.num_validation_samples), describe_order(plan));
  }
  return fmt::format("{}: {} training and {} validation samples of {}{}", source,
                     base::format_count(plan.data.num_train_samples),
                     base::format_count(plan.data.num_validation_samples),
                     base::counted(plan.model.targets_per_sample, "token"), describe_order(plan));
}

/// Who reads samples, where they are not only copied.
std::string describe_reading(const Plan& plan) {
  const DataConfig& data = plan.config.data;
  if (data.workers == 0) return "by each rank before a step";
  std::string text = fmt::format("{} thread{} of each rank beside its own", data.workers,
                                 data.workers == 1 ? "" : "s");
  if (data.prefetch == 0) return text + ", before a step";
  const auto bytes = std::ranges::find(plan.memory, "data", &MemoryLine::category);
  text += fmt::format(", {} step{} ahead", data.prefetch, data.prefetch == 1 ? "" : "s");
  if (bytes == plan.memory.end()) return text;
  return text + fmt::format("; samples take {}", base::format_bytes(bytes->bytes));
}

std::string describe_mesh(const Plan& plan) {
  std::string text;
  for (const layout::Axis& axis : plan.mesh.axes())
    text += fmt::format("{} {}, ", axis.name, axis.degree);
  text += fmt::format("{} rank{} of {} thread{}", plan.ranks, plan.ranks == 1 ? "" : "s",
                      plan.threads, plan.threads == 1 ? "" : "s");
  if (plan.config.compute.device == Device::kCuda) text += ", a GPU each";
  bool pinned = true;
  for (const auto& cpus : plan.cpus) pinned = pinned && !cpus.empty();
  if (!pinned) return text + ", not pinned";
  text += " on cpus";
  for (const auto& cpus : plan.cpus) text += fmt::format(" {}", fmt::join(cpus, "+"));
  return text;
}

/// "; groups of tp lie on several hosts: layers send 1.26 MB between them in a step, which takes 12 ms ...".
std::string describe_axes_over_hosts(const Plan& plan) {
  const std::vector<std::string_view> axes = axes_over_hosts(plan);
  if (axes.empty()) return "";
  std::string text = fmt::format("; groups of {} lie on several hosts", fmt::join(axes, " and "));
  const Prediction& p = plan.predicted;
  if (p.layer_network_bytes_per_step == 0) return text;  // a plan that was read does not say
  return text +
         fmt::format(": layers send {} between them in a step, which takes {} of their links",
                     base::format_bytes(p.layer_network_bytes_per_step),
                     base::format_seconds(p.layer_network_seconds));
}

/// "118 MB/s", "2.31 GB/s".
std::string describe_rate(double bytes_per_second) {
  return base::format_bytes(std::llround(bytes_per_second)) + "/s";
}

/// "2 hosts with 2, 2 ranks, joined at 118 MB/s and 80.0 us (measured when the ranks met)".
std::string describe_hosts(const Plan& plan) {
  const HostLayout& hosts = plan.hosts;
  return fmt::format(
      "{} with {}, joined at {} and {} ({}){}", base::counted(hosts.ranks.size(), "host"),
      listed(hosts.ranks, ", ") + " ranks", describe_rate(hosts.link.bytes_per_second),
      base::format_seconds(hosts.link.latency_seconds), plain(hosts.link.source, 80),
      describe_axes_over_hosts(plan));
}

std::string describe_batch(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const DataShare& share : plan.shares) sizes.push_back(share.samples.size());
  const TrainConfig& train = plan.config.train;
  std::string_view target = targets_of(family_of(plan.config.model).data);
  target.remove_suffix(1);
  return fmt::format("{} = {} a step; per {} {}, at most {} at once; {}",
                     base::counted(train.global_batch, "sample"),
                     base::counted(train.global_batch * plan.model.targets_per_sample, target),
                     std::ssize(sizes) == plan.ranks ? "rank" : "data coordinate",
                     listed(sizes, " "), plan.micro_batch, base::counted(train.steps, "step"));
}

/// "120 operations of 2 samples timed one by one, 12 ms together".
std::string describe_times(const Plan& plan) {
  const OperationTimes& times = plan.times;
  const std::string together =
      base::format_seconds(times.seconds_of(static_cast<double>(times.samples)));
  if (times.residues == 0) {
    return fmt::format("{} of {} timed one by one, {} together",
                       base::counted(times.operations.size(), "operation"),
                       base::counted(times.samples, "sample"), together);
  }
  return fmt::format(
      "{} of {}, scaled by floating operations and bytes from those of {}"
      " that were timed one by one: {} together",
      base::counted(times.operations.size(), "operation"), base::counted(times.samples, "sample"),
      base::counted(times.residues, "residue"), together);
}

std::string describe_kernels(const Plan& plan) {
  const KernelChoice& k = plan.kernels;
  if (plan.config.compute.device == Device::kCuda) {
    const std::string text = fmt::format("{}, libtorch's on cuda", name_of(k.precision));
    if (!plan.times.gpu) return text + ", not measured";
    return fmt::format("{}; {}; {}", text, topology::gpu_rates_text(*plan.times.gpu),
                       describe_times(plan));
  }
  std::string text =
      fmt::format("{}, gemm {} {}", name_of(k.precision), name_of(k.gemm),
                  k.gemm_flops_per_second > 0 ? flops(k.gemm_flops_per_second) : "not measured");
  text += fmt::format(", attention {}", name_of(k.attention));
  if (k.attention_flops_per_second > 0) {
    text += fmt::format(" {}", flops(k.attention_flops_per_second));
  }
  if (k.weight_gradient == base::WeightGradient::kFloat32)
    text += ", weight gradients summed in float32";
  if (k.simd) text += fmt::format(", own kernels {}", base::name_of(*k.simd));
  if (!k.products_why.empty()) text += "; float32 products: " + plain(k.products_why, 400);
  if (plan.times.samples > 0) text += "; " + describe_times(plan);
  return text;
}

/// What a strategy shards of a host's ranks; they share one copy of the parameters in any case.
std::string_view sharded_state(Sharding data) {
  if (cuts_parameters(data)) return "parameters, gradients and optimizer are";
  return data == Sharding::kZero1 ? "the optimizer is" : "gradients and optimizer are";
}

/// "; reshard = step gathers 1.26 MB a step and has at most 819 kB whole on a rank, micro_batch ...".
std::string describe_gathers(const Plan& plan) {
  std::string text;
  const Reshard chosen = reshard_of(plan);
  for (const Reshard one : {Reshard::kStep, Reshard::kMicroBatch}) {
    int64_t most = 0;
    for (const int rank : plan.mesh.data_peers(0)) {
      const auto gathers = gathers_of(plan, rank, compute_actions(plan, rank), one);
      most = std::max(most, gathers.peak_elements * parameter_bytes(plan.kernels.precision));
    }
    text += fmt::format("; {}{} gathers {} a step and has at most {} whole on a rank",
                        one == chosen ? "reshard = " : "", name_of(one),
                        base::format_bytes(gathered_bytes(plan, one)), base::format_bytes(most));
  }
  return text;
}

/// "; each rank has its own shards; of 37.7 MB between hosts a step, 25.2 MB are parameters, ...".
std::string describe_shards_on_hosts(const Plan& plan) {
  const bool gathers = gathers_parameters(plan);
  std::string text = fmt::format(
      "; these ranks are on several hosts, so each has its own shards and their moments; of {} "
      "between hosts a step, {} are parameters{}",
      base::format_bytes(plan.predicted.network_bytes_per_step),
      base::format_bytes(gathered_between_hosts(plan)),
      gathers ? "" : ", which each rank has whole and gathers after each update");
  return gathers ? text + describe_gathers(plan) : text;
}

/// "zero1: the optimizer is sharded over 2 ranks, in 3 units; ..."
std::string describe_states(const Plan& plan) {
  const Sharding data = plan.config.parallel.data;
  const auto shards = shards_of(plan);
  if (!shards) {
    return "server: every rank computes, and holds the optimizer of a range of the parameters, to "
           "which the others push gradients and from which they pull weights";
  }
  const bool in_stages = plan.mesh.degree("pp") > 1;
  std::string text = fmt::format("{}: {}{} sharded over {} rank{}", name_of(data),
                                 in_stages ? "of each stage, " : "", sharded_state(data),
                                 shards->ranks, shards->ranks == 1 ? "" : "s");
  if (shards->groups > 1)
    text += fmt::format(" of each of {}", base::counted(shards->groups, "group"));
  const char* sharers = shards->groups > 1 ? "the ranks of a group share"
                        : in_stages        ? "these ranks share"
                                           : "all ranks share";
  text +=
      fmt::format(", in {} unit{}{}{}", shards->units.size(), shards->units.size() == 1 ? "" : "s",
                  cuts_parameters(data) ? " of a layer each" : "", in_stages ? " on rank 0" : "");
  if (shards->spans_hosts) return text + describe_shards_on_hosts(plan);
  text += fmt::format("; {} one copy of {} in shared memory", sharers,
                      plan.config.parallel.share_memory ? "parameters and moments" : "moments");
  if (!cuts_parameters(data)) return text;
  if (!plan.config.parallel.share_memory) return text + describe_gathers(plan);
  return text + ", so unsharding a layer moves no bytes";
}

std::string describe_sums(const Plan& plan) {
  const Config& c = plan.config;
  std::string text = fmt::format("bits {}, engine {}, {} of at most {}", name_of(c.train.bits),
                                 name_of(c.comm.engine), base::counted(plan.num_buckets, "bucket"),
                                 base::format_bytes(c.comm.bucket_bytes));
  for (const auto& [routine, algorithm] : named_algorithms(c.comm)) {
    text += fmt::format(", {} by {}", name_of(routine), plain(algorithm, 20));
  }
  const bool is_message_engine = c.comm.engine == Engine::kGloo || c.comm.engine == Engine::kMpi;
  if (is_message_engine && plan.hosts.ranks.size() <= 1) {
    text += "; within a host not timed: transfer is priced as that of shm, which is faster";
  }
  if (c.train.bits != Bits::kStable) return text;
  return text +
         fmt::format(", {} of {}, {}", base::counted(c.train.global_batch / c.train.grain, "grain"),
                     c.train.grain, base::counted(num_gradient_buffers(plan), "gradient buffer"));
}

/// "each MLP moves weights: 2.1 ms for the 4096 tokens of a micro-batch; activations take 3.4 ms".
std::string describe_moves(Moves moves, const ComparedMoves& compared) {
  const bool by_rows = moves == Moves::kWeights;
  const cost::RegionCost& chosen = by_rows ? compared.weights : compared.activations;
  const cost::RegionCost& other = by_rows ? compared.activations : compared.weights;
  return fmt::format("each MLP moves {}: {} for the {} of a micro-batch; {} take {}",
                     name_of(moves), base::format_seconds(chosen.seconds),
                     base::counted(compared.rows, "token"),
                     name_of(by_rows ? Moves::kActivations : Moves::kWeights),
                     base::format_seconds(other.seconds));
}

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("  {:<36}{:>16}\n", name, value);
}

std::string memory_row(std::string_view name, int64_t rank_bytes, int64_t host_bytes) {
  return fmt::format("  {:<36}{:>16}{:>16}\n", name, base::format_bytes(rank_bytes),
                     base::format_bytes(host_bytes));
}

/// The lines of a host in the order of a rank's.
std::vector<MemoryLine> in_order_of(const std::vector<MemoryLine>& order,
                                    const std::vector<MemoryLine>& lines) {
  std::vector<MemoryLine> sorted;
  for (const MemoryLine& like : order) {
    const auto found = std::ranges::find(lines, like.category, &MemoryLine::category);
    sorted.push_back({like.category, found == lines.end() ? 0 : found->bytes});
  }
  return sorted;
}

/// What processes have beside tensors; mapped files are there once for all ranks of a host.
std::string process_rows(const Plan& plan, const std::vector<MemoryLine>& host) {
  const std::vector<MemoryLine> one = process_lines(plan, plan.memory);
  if (one.empty()) return "";
  const std::vector<MemoryLine> all = process_lines(plan, host, most_ranks_on_host(plan));
  const int64_t libraries = plan.process.library_bytes;
  const auto sum = [&](const std::vector<MemoryLine>& tensors, const std::vector<MemoryLine>& own) {
    return total_bytes(tensors) + total_bytes(own) + libraries;
  };
  return memory_row("process: program and libtorch", one[0].bytes, all[0].bytes) +
         memory_row("freed memory that malloc keeps", one[1].bytes, all[1].bytes) +
         memory_row("libraries, once on a host", libraries, libraries) +
         memory_row("total in memory", sum(plan.memory, one), sum(host, all));
}

std::string memory_table(const Plan& plan) {
  const bool gpu = plan.config.compute.device == Device::kCuda;
  const std::vector<MemoryLine> host = in_order_of(plan.memory, host_memory(plan));
  std::string out =
      fmt::format("{:<38}{:>16}{:>16}\n", "memory, of those that need most", "a rank", "a host");
  for (size_t i = 0; i < host.size(); ++i) {
    const MemoryLine& line = plan.memory[i];
    const char* place = !gpu ? "" : stays_on_host(line.category) ? " (host)" : " (cuda)";
    out += memory_row(plain(line.category, 27) + place, line.bytes, host[i].bytes);
  }
  if (gpu) out += memory_row("total on GPUs", device_bytes(plan.memory), device_bytes(host));
  out += memory_row("total", total_bytes(plan.memory), total_bytes(host));
  out += process_rows(plan, host);
  return out + bars_text({{"  a rank", plan.memory}, {"  a host", host}}, 0);
}

std::string rate_text(double seconds) {
  return base::format_count(std::llround(std::clamp(1 / seconds, 0.0, 9e18)));
}

/// What one thread reads of a file: whole samples, and what each part of one takes.
std::string reading_rows(const Plan& plan) {
  const OperationTimes& times = plan.times;
  if (plan.config.data.files.empty() || times.sample_seconds <= 0) return "";
  std::string out = row("  samples a rank reads per second", rate_text(times.sample_seconds));
  for (const SamplePart& part : times.sample_parts) {
    const double share = part.seconds / times.sample_seconds;
    const bool is_nothing = share < 0.005;
    out += row(
        "    " + plain(part.name, 30),
        is_nothing ? "0 %" : fmt::format("{:.0f} %, {}/s", 100 * share, rate_text(part.seconds)));
  }
  if (const SamplePart* longest = longest_part(times.sample_parts)) {
    out += row("    bottleneck of reading", plain(longest->name, 30));
  }
  return out + row("  longest part of the step", std::string(slowest_part(plan.predicted)));
}

/// What a step of the largest share computes on the GPU, and what its host takes to queue it: the longer is predicted.
std::string bounds_on_gpu(const Plan& plan) {
  OperationTimes on_device = plan.times;
  for (TimedOperation& one : on_device.operations) one.launch = 0;
  double device = 0, launches = 0;
  for (const DataShare& share : plan.shares) {
    const auto samples = static_cast<double>(share.samples.size());
    device = std::max(device, on_device.seconds_of(samples));
    launches = std::max(launches, plan.times.launches_of(share.num_micro_batches));
  }
  const bool is_launch_bound = launches > device;
  return row("  forwards and backwards on the GPU", base::format_seconds(device)) +
         row("  their launches by the host", base::format_seconds(launches)) +
         row("  bound by", is_launch_bound ? "launches" : "the GPU") +
         row("  update, with the norm", base::format_seconds(plan.times.update_seconds));
}

std::string transfer_rows(const Plan& plan) {
  const Prediction& p = plan.predicted;
  if (plan.config.compute.device == Device::kCuda) {
    return plan.ranks == 1 ? "" : row("transfer, in no time below", "NCCL is not timed");
  }
  std::string out = row("transfer", base::format_seconds(p.transfer_seconds));
  if (plan.hosts.several()) {
    out += row("  of it between hosts", base::format_seconds(p.network_seconds));
  }
  out += row("  of it exposed", base::format_seconds(p.exposed_transfer_seconds));
  return out + row("  of it hidden", base::format_seconds(p.hidden_transfer_seconds));
}

/// What moves in a step; of NCCL nobody counts it.
std::string traffic_rows(const Plan& plan) {
  const Prediction& p = plan.predicted;
  if (plan.config.compute.device == Device::kCuda) return "";
  std::string out = row("collectives of a rank", base::format_count(p.collectives_per_step));
  out += row(plan.hosts.several() ? "bytes read within hosts" : "bytes on the wire, all ranks",
             base::format_bytes(p.wire_bytes_per_step));
  if (plan.hosts.several()) {
    out += row("bytes between ranks by messages", base::format_bytes(p.network_bytes_per_step));
  }
  return out;
}

std::string prediction_table(const Plan& plan) {
  const Prediction& p = plan.predicted;
  const bool on_gpus = plan.config.compute.device == Device::kCuda;
  if (on_gpus && !plan.times.gpu) return "no time is predicted: nothing was timed on a GPU\n";
  std::string out = "predicted for one step\n";
  out += row("compute", base::format_seconds(p.compute_seconds));
  if (on_gpus) out += bounds_on_gpu(plan);
  out += transfer_rows(plan);
  out += row("data", base::format_seconds(p.data_seconds));
  out += reading_rows(plan);
  out += row("step", base::format_seconds(p.step_seconds));
  out += traffic_rows(plan);
  const auto rate = static_cast<int64_t>(std::min(p.tokens_per_second, 9e18));
  out += row(fmt::format("{} per second", targets_of(family_of(plan.config.model).data)),
             base::format_count(rate));
  const double steps = static_cast<double>(plan.config.train.steps);
  return out + row("all steps", base::format_seconds(p.step_seconds * steps));
}

std::string describe_offload(const Plan& plan) {
  const Config& config = plan.config;
  const int64_t elements =
      gradient_buckets(plan.model.parameter_sizes(), config.comm.bucket_bytes).flat.count;
  const int64_t bytes = 2 * elements * parameter_bytes(plan.kernels.precision);
  return fmt::format(
      "the moments of each rank, {}, in a file in {}; {} of windows in memory; the "
      "times below do not count the disk",
      base::format_bytes(bytes), plain(config.offload.folder, 40),
      base::format_bytes(offload_window_bytes(elements, parameter_bytes(plan.kernels.precision))));
}

/// "triangles of a block by channels: 1.2 ms; gather 2.0 ms and 8.4 MB more, ring 3 ms".
std::string describe_triangles(TriangleWay chosen, const std::vector<cost::TriangleCost>& ways) {
  const auto own = std::ranges::find(ways, chosen, &cost::TriangleCost::way);
  const auto memory = [](const cost::TriangleCost& one) {
    return one.kept_bytes + one.passing_bytes;
  };
  std::string others;
  for (const cost::TriangleCost& one : ways) {
    if (one.way == chosen) continue;
    const int64_t more = memory(one) - memory(*own);
    others += fmt::format("{}{} {}", others.empty() ? "; " : ", ", name_of(one.way),
                          base::format_seconds(one.seconds));
    if (more > 0) others += fmt::format(" and {} more", base::format_bytes(more));
  }
  return fmt::format("triangles of a block by {}: {}{}", name_of(chosen),
                     base::format_seconds(own->seconds), others);
}

/// "each of 2 ranks has 12 of 24 rows of pairs and all parameters; triangles by channels".
std::string describe_axial(const Plan& plan) {
  const int64_t ranks = plan.mesh.degree("axial"), residues = plan.config.data.residues;
  const std::string rows = residues % ranks == 0
                               ? fmt::format("{}", residues / ranks)
                               : fmt::format("{} or {}", residues / ranks, residues / ranks + 1);
  const bool sequences = has_sequences(plan.config.data.pairs);
  const TriangleWay way = plan.config.parallel.triangle;
  const auto ways = compare_triangles(plan);
  return fmt::format("each of {} has {} of {} of pairs,{} and all parameters; {}",
                     base::counted(ranks, "rank"), rows, base::counted(residues, "row"),
                     sequences ? " its share of the sequences" : "",
                     ways ? describe_triangles(way, *ways)
                          : fmt::format("triangles by {}, in {} of rows", name_of(way),
                                        base::counted(plan.config.train.cuts.tokens, "block")));
}

/// "each of 2 ranks has 128 of the 256 tokens of a sample and all parameters; attention by ulysses: 1.2 ms a
/// layer and micro-batch; ring takes 1.9 ms".
std::string describe_context(const Plan& plan) {
  const ContextWay way = plan.config.parallel.context;
  const int ranks = plan.mesh.degree("cp");
  const int64_t tokens = plan.config.model.block;
  std::vector<int64_t> each = context_extents(plan.config);
  std::ranges::sort(each, std::greater());
  each.erase(std::unique(each.begin(), each.end()), each.end());
  std::string text =
      fmt::format("each of {} has {} of the {} of a sample and all parameters; attention by {}",
                  base::counted(ranks, "rank"), fmt::join(each, " or "),
                  base::counted(tokens, "token"), name_of(way));
  const auto costs = compare_context(plan);
  for (const ContextWay named :
       {way, way == ContextWay::kRing ? ContextWay::kUlysses : ContextWay::kRing}) {
    const auto found = std::ranges::find(costs, named, &ContextCost::way);
    if (found == costs.end()) continue;
    text +=
        named == way
            ? fmt::format(": {} a layer of a micro-batch", base::format_seconds(found->seconds()))
            : fmt::format("; {} takes {}", name_of(named), base::format_seconds(found->seconds()));
  }
  return text;
}

}  // namespace

std::string describe(const Plan& plan) {
  std::string out = fmt::format("plan of job {}\n", plain(plan.job_hash.substr(0, 16), 16));
  out += paragraph("model", describe_model(plan));
  out += paragraph("data", describe_data(plan));
  if (plan.config.data.workers > 0 || data_kind(plan.config) == DataKind::kImages) {
    out += paragraph("reading", describe_reading(plan));
  }
  out += paragraph("mesh", describe_mesh(plan));
  if (plan.hosts.several()) out += paragraph("hosts", describe_hosts(plan));
  if (plan.threads > 1) out += paragraph("threads", topology::describe(plan.waits));
  out += paragraph("batch", describe_batch(plan));
  out += paragraph("kernels", describe_kernels(plan));
  if (const std::string load = topology::describe_load(plan.load); !load.empty()) {
    out +=
        paragraph("load", fmt::format("of what was timed here: {}; steps may take less time than "
                                      "is predicted, and the next plan on a quieter machine "
                                      "times again",
                                      load));
  }
  if (plan.config.parallel.data != Sharding::kReplicas) {
    out += paragraph("states", describe_states(plan));
  }
  if (plan.config.offload.optimizer == Place::kFile) {
    out += paragraph("offload", describe_offload(plan));
  }
  if (const auto moves = compare_moves(plan)) {
    out += paragraph("tp", describe_moves(plan.config.parallel.moves, *moves));
  }
  if (plan.mesh.degree("cp") > 1) out += paragraph("cp", describe_context(plan));
  if (plan.mesh.degree("axial") > 1) out += paragraph("axial", describe_axial(plan));
  out += paragraph("sums", describe_sums(plan));
  if (plan.mesh.degree("pp") > 1) out += describe_pipeline(plan);
  return out + memory_table(plan) + prediction_table(plan);
}

}  // namespace hanji::plan
