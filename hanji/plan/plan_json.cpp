#include <fmt/format.h>

#include <numeric>

#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/internal/facts_json.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/train_limits.h"

namespace hanji::plan {
namespace {

using base::Json;

constexpr int64_t kFormat = 2;  // 1: no transfer apart from skew, no measured overheads
constexpr int kMaxCpus = 1 << 16;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr double kMaxSeconds = 1e12;
constexpr double kMaxRate = 1e24;

Json to_value(const KernelChoice& k) {
  Json json = {{"gemm", name_of(k.gemm)},
               {"attention", name_of(k.attention)},
               {"dtype", name_of(k.precision)},
               {"gemm_flops_per_second", k.gemm_flops_per_second},
               {"attention_flops_per_second", k.attention_flops_per_second},
               {"gemm_error", k.gemm_error},
               {"attention_error", k.attention_error},
               {"why", k.why},
               {"simd", k.simd ? base::name_of(*k.simd) : ""},
               {"float32_flops_per_second", k.float32_flops_per_second}};
  if (k.weight_gradient != WeightGradient::kRounded)
    json["weight_gradient"] = name_of(k.weight_gradient);
  if (k.products_why.empty())
    return json;  // without compute.products = medium there is nothing to say
  json["products"] = name_of(k.products);
  json["products_why"] = k.products_why;
  return json;
}

/// Some plans of format 1 have them.
void read_simd(JsonFields& fields, KernelChoice& k) {
  if (const std::string word = fields.text("simd"); !word.empty()) {
    const auto simd = base::parse_simd(word);
    if (simd.ok()) k.simd = *simd;
    if (!simd.ok()) fields.fail("simd", "is " + simd.status().message());
  }
  k.float32_flops_per_second = fields.real("float32_flops_per_second", 0, kMaxRate);
}

KernelChoice read_kernels(JsonFields& fields, int64_t format) {
  KernelChoice k;
  k.gemm = fields.word<Gemm>("gemm");
  k.attention = fields.word<Attention>("attention");
  k.precision = fields.word<Precision>("dtype");
  k.gemm_flops_per_second = fields.real("gemm_flops_per_second", 0, kMaxRate);
  k.attention_flops_per_second = fields.real("attention_flops_per_second", 0, kMaxRate);
  k.gemm_error = fields.real("gemm_error", 0, kMaxRate);
  k.attention_error = fields.real("attention_error", 0, kMaxRate);
  k.why = fields.text("why");
  if (format > 1 || fields.has("simd")) read_simd(fields, k);
  if (fields.has("products") || fields.has("products_why")) {
    k.products = fields.word<Products>("products");
    k.products_why = fields.text("products_why");
  }
  if (fields.has("weight_gradient")) {
    k.weight_gradient = fields.word<WeightGradient>("weight_gradient");
  }
  for (const char* rate : {"seconds_per_operation", "elementwise_bytes_per_second"}) {
    fields.ignore(rate);  // of plans before operations were timed
  }
  if (k.gemm == Gemm::kAuto) fields.fail("gemm", "is undecided");
  if (k.attention == Attention::kAuto) fields.fail("attention", "is undecided");
  if (k.weight_gradient == WeightGradient::kAuto) fields.fail("weight_gradient", "is undecided");
  return k;
}

Json to_value(const Prediction& p) {
  return {{"step_seconds", p.step_seconds},
          {"compute_seconds", p.compute_seconds},
          {"transfer_seconds", p.transfer_seconds},
          {"exposed_transfer_seconds", p.exposed_transfer_seconds},
          {"hidden_transfer_seconds", p.hidden_transfer_seconds},
          {"data_seconds", p.data_seconds},
          {"tokens_per_second", p.tokens_per_second},
          {"peak_bytes_per_rank", p.peak_bytes_per_rank},
          {"wire_bytes_per_step", p.wire_bytes_per_step},
          {"network_seconds", p.network_seconds},
          {"network_bytes_per_step", p.network_bytes_per_step},
          {"collectives_per_step", p.collectives_per_step}};
}

void read_transfer(JsonFields& fields, int64_t format, Prediction& p) {
  if (format == 1) {
    p.transfer_seconds = fields.real("communication_seconds", 0, kMaxSeconds);
    p.exposed_transfer_seconds = fields.real("exposed_communication_seconds", 0, kMaxSeconds);
    return;
  }
  p.transfer_seconds = fields.real("transfer_seconds", 0, kMaxSeconds);
  p.exposed_transfer_seconds = fields.real("exposed_transfer_seconds", 0, kMaxSeconds);
  p.hidden_transfer_seconds = fields.real("hidden_transfer_seconds", 0, kMaxSeconds);
}

Prediction read_prediction(JsonFields& fields, int64_t format) {
  Prediction p;
  p.step_seconds = fields.real("step_seconds", 0, kMaxSeconds);
  p.compute_seconds = fields.real("compute_seconds", 0, kMaxSeconds);
  read_transfer(fields, format, p);
  p.data_seconds = fields.real("data_seconds", 0, kMaxSeconds);
  p.tokens_per_second = fields.real("tokens_per_second", 0, kMaxRate);
  p.peak_bytes_per_rank = fields.integer("peak_bytes_per_rank", 0, kMaxBytes);
  p.wire_bytes_per_step = fields.integer("wire_bytes_per_step", 0, kMaxBytes);
  p.network_seconds = fields.real("network_seconds", 0, kMaxSeconds);
  p.network_bytes_per_step = fields.integer("network_bytes_per_step", 0, kMaxBytes);
  p.collectives_per_step = fields.integer("collectives_per_step", 0, kMaxBytes);
  return p;
}

/// What a rank does, which is its data coordinate's work, and where.
struct RankLine {
  DataShare share;
  std::vector<int> cpus;
};

Json to_value(const DataShare& share, const std::vector<int>& cpus) {
  return {{"samples", {share.samples.begin, share.samples.end}},
          {"micro_batches", share.num_micro_batches},
          {"cpus", cpus}};
}

/// A list of integers in [0, most], or a mistake.
std::vector<int64_t> read_integers(JsonFields& fields, const char* name, size_t max_size,
                                   int64_t most) {
  std::vector<int64_t> values;
  for (const Json& one : fields.list(name, max_size)) {
    const bool good = one.is_number_unsigned() && one.get<uint64_t>() <= uint64_t(most);
    if (!good) {
      fields.fail(name, fmt::format("has a member that is no integer in 0 to {}", most));
      return {};
    }
    values.push_back(one.get<int64_t>());
  }
  return values;
}

RankLine read_line_of_rank(JsonFields& fields) {
  RankLine line;
  DataShare& share = line.share;
  const auto samples = read_integers(fields, "samples", 2, kMaxBytes);
  if (samples.size() == 2) {
    share.samples = {samples[0], samples[1]};
  } else {
    fields.fail("samples", "is not a pair");
  }
  share.num_micro_batches = fields.integer("micro_batches", 1, kMaxBytes);
  for (int64_t cpu : read_integers(fields, "cpus", kMaxCpus, kMaxCpus - 1)) {
    line.cpus.push_back(static_cast<int>(cpu));
  }
  return line;
}

Json to_value(const HostLayout& hosts) {
  return {{"ranks", hosts.ranks},
          {"latency_seconds", hosts.link.latency_seconds},
          {"bytes_per_second", hosts.link.bytes_per_second},
          {"source", hosts.link.source}};
}

HostLayout read_hosts(JsonFields& fields) {
  HostLayout hosts;
  for (const int64_t ranks :
       read_integers(fields, "ranks", base::kMaxRanks, base::kMaxRanksPerHost)) {
    hosts.ranks.push_back(static_cast<int>(ranks));
  }
  hosts.link.latency_seconds = fields.real("latency_seconds", 0, kMaxSeconds);
  hosts.link.bytes_per_second = fields.real("bytes_per_second", 0, kMaxRate);
  hosts.link.source = fields.text("source");
  return hosts;
}

Json memory_to_value(const std::vector<MemoryLine>& lines) {
  Json json = Json::array();
  for (const MemoryLine& line : lines) {
    json.push_back({{"category", line.category}, {"bytes", line.bytes}});
  }
  return json;
}

ProcessMemory read_process(JsonFields& fields) {
  return {fields.integer("private_bytes", 0, kMaxBytes),
          fields.integer("library_bytes", 0, kMaxBytes)};
}

DataFacts read_data(JsonFields& fields) {
  DataFacts data;
  data.vocabulary = fields.integer("vocabulary", 1, kMaxBytes);
  data.num_train_samples = fields.integer("train_samples", 1, kMaxBytes);
  data.num_validation_samples = fields.integer("validation_samples", 0, kMaxBytes);
  if (fields.has("page_bytes")) data.page_bytes = fields.integer("page_bytes", 0, kMaxBytes);
  return data;
}

layout::Axis read_axis(JsonFields& fields) {
  return {fields.text("name"), static_cast<int>(fields.integer("degree", 1, base::kMaxRanks))};
}

MemoryLine read_line(JsonFields& fields) {
  return {fields.text("category"), fields.integer("bytes", 0, kMaxBytes)};
}

/// One share per data coordinate, which the lines of its ranks repeat.
Status gather_shares(const std::vector<RankLine>& lines, Plan& plan) {
  if (std::ssize(lines) != plan.ranks) {
    return base::corrupt(fmt::format("plan.shares has {} for {}",
                                     base::counted(lines.size(), "member"),
                                     base::counted(plan.ranks, "rank")));
  }
  std::vector<const RankLine*> first(plan.mesh.num_data_coordinates());
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankLine*& found = first[plan.mesh.data_coordinate(rank)];
    if (found == nullptr) found = &lines[rank];
    if (found->share != lines[rank].share) {
      return base::corrupt(fmt::format(
          "plan.shares[{}] differs from that of another rank of its data coordinate", rank));
    }
    plan.cpus.push_back(lines[rank].cpus);
  }
  for (const RankLine* line : first) plan.shares.push_back(line->share);
  return {};
}

/// What members say of each other: a plan that does not add up would hang its ranks.
Status check_sums(const Plan& plan) {
  const std::vector<int>& hosts = plan.hosts.ranks;
  if (hosts.empty() && plan.ranks > base::kMaxRanksPerHost) {
    return base::corrupt(fmt::format("plan.ranks is {}, but one host has at most {}", plan.ranks,
                                     base::kMaxRanksPerHost));
  }
  if (!hosts.empty() && std::reduce(hosts.begin(), hosts.end()) != plan.ranks) {
    return base::corrupt("plan.hosts.ranks do not add up to plan.ranks");
  }
  if (plan.config.run.ranks != plan.ranks || plan.config.compute.threads != plan.threads ||
      plan.config.train.micro_batch != plan.micro_batch) {
    return base::corrupt("plan.config differs from what the plan decided");
  }
  for (const AxisKey& one : kAxisKeys) {
    if (plan.config.mesh.*one.degree == plan.mesh.degree(one.axis)) continue;
    return base::corrupt(fmt::format("plan.config.{} differs from plan.mesh", one.key));
  }
  std::string wrong;
  for (const Contradiction& one : find_contradictions(plan.config, layout::kAxisNames)) {
    wrong += (wrong.empty() ? "plan.config: " : "; ") + one.message;
  }
  if (!wrong.empty()) return base::corrupt(wrong);
  if (plan.config.train.bits == Bits::kStable && plan.micro_batch != plan.config.train.grain) {
    return base::corrupt(fmt::format("plan.micro_batch is {} in stable, where it is the grain, {}",
                                     plan.micro_batch, plan.config.train.grain));
  }
  int64_t next = 0;
  for (const DataShare& share : plan.shares) {
    const int64_t passes = (share.samples.size() + plan.micro_batch - 1) / plan.micro_batch;
    const bool whole = share.samples.begin == next && share.samples.end > next &&
                       share.samples.size() % plan.config.train.grain == 0;
    if (!whole || share.num_micro_batches != passes) {
      return base::corrupt(fmt::format("plan.shares: share of samples [{}, {}) does not follow {}",
                                       share.samples.begin, share.samples.end, next));
    }
    next = share.samples.end;
  }
  if (next != plan.config.train.global_batch) {
    return base::corrupt(fmt::format("plan.shares holds {} of {}", next,
                                     base::counted(plan.config.train.global_batch, "sample")));
  }
  return {};
}

topology::WaitChoice read_waits(JsonFields& fields) {
  const std::string name = fields.text("policy");
  const auto policy = topology::wait_policy_of(name);
  if (!policy) fields.fail("policy", "is '" + name + "', no policy of waiting threads");
  return {policy.value_or(topology::WaitPolicy::kRuntime), fields.text("why")};
}

void read_decisions(JsonFields& fields, int64_t format, Plan& plan) {
  plan.data = read_part(fields, "data", read_data);
  plan.ranks = static_cast<int>(fields.integer("ranks", 1, base::kMaxRanks));
  plan.threads = static_cast<int>(fields.integer("threads", 1, 1024));
  const auto axes = read_list(fields, "mesh", 8, read_axis);
  const auto lines = read_list(fields, "shares", base::kMaxRanks, read_line_of_rank);
  if (auto mesh = layout::MeshShape::create(axes, plan.ranks); mesh.ok()) {
    plan.mesh = *std::move(mesh);
    fields.merge(gather_shares(lines, plan));
  } else {
    fields.fail("mesh", "does not hold plan.ranks");
  }
  plan.micro_batch = fields.integer("micro_batch", 1, kMaxBytes);
  plan.kernels =
      read_part(fields, "kernels", [&](JsonFields& part) { return read_kernels(part, format); });
  if (fields.has("times")) plan.times = read_part(fields, "times", read_operation_times);
  plan.num_buckets = fields.integer("buckets", 1, kMaxBytes);
  plan.memory = read_list(fields, "memory", 64, read_line);
  if (fields.has("process")) plan.process = read_part(fields, "process", read_process);
  if (fields.has("waits")) plan.waits = read_part(fields, "waits", read_waits);
  if (fields.has("micro_batch_wanted")) {
    plan.micro_batch_wanted = fields.integer("micro_batch_wanted", 1, kMaxBytes);
  }
  if (fields.has("load")) plan.load = fields.real("load", 0, 1);
  plan.hosts = read_part(fields, "hosts", read_hosts);
  plan.predicted = read_part(fields, "predicted",
                             [&](JsonFields& part) { return read_prediction(part, format); });
  plan.job_hash = fields.text("job_hash");
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json json;
  json["format"] = kFormat;
  json["job_hash"] = plan.job_hash;
  json["config"] = config_to_json(plan.config);
  if (needs_counting(plan.config)) json["model"] = to_value(plan.model);
  json["data"] = {{"vocabulary", plan.data.vocabulary},
                  {"train_samples", plan.data.num_train_samples},
                  {"validation_samples", plan.data.num_validation_samples}};
  if (plan.data.page_bytes > 0) json["data"]["page_bytes"] = plan.data.page_bytes;
  json["ranks"] = plan.ranks;
  json["threads"] = plan.threads;
  json["mesh"] = Json::array();
  for (const layout::Axis& axis : plan.mesh.axes()) {
    json["mesh"].push_back({{"name", axis.name}, {"degree", axis.degree}});
  }
  json["shares"] = Json::array();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    json["shares"].push_back(to_value(share_of(plan, rank), plan.cpus[rank]));
  }
  if (plan.threads > 1) {
    json["waits"] = {{"policy", name_of(plan.waits.policy)}, {"why", plan.waits.why}};
  }
  json["micro_batch"] = plan.micro_batch;
  json["kernels"] = to_value(plan.kernels);
  if (plan.times.samples > 0) json["times"] = to_value(plan.times);
  json["buckets"] = plan.num_buckets;
  json["memory"] = memory_to_value(plan.memory);
  if (plan.process.private_bytes > 0) {
    json["process"] = {{"private_bytes", plan.process.private_bytes},
                       {"library_bytes", plan.process.library_bytes}};
  }
  json["rates"] = Json::parse(cost::to_json(plan.rates));
  if (plan.micro_batch_wanted > 0) json["micro_batch_wanted"] = plan.micro_batch_wanted;
  if (plan.load > 0) json["load"] = plan.load;
  json["hosts"] = to_value(plan.hosts);
  json["predicted"] = to_value(plan.predicted);
  return base::dump(json, 2);
}

Result<Plan> plan_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 16, size_t{4} << 20));
  JsonFields fields(json, "plan");
  const int64_t format = fields.integer("format", 1, kFormat);
  Plan plan;
  read_decisions(fields, format, plan);
  HANJI_ASSIGN_OR_RETURN(plan.config, config_from_json(fields.object("config")));
  fields.object("rates");
  std::optional<ModelFacts> counted;
  if (needs_counting(plan.config)) counted = read_part(fields, "model", read_model_facts);
  plan.model = facts_of_model(plan.config, counted);
  HANJI_RETURN_IF_ERROR(fields.status());
  HANJI_ASSIGN_OR_RETURN(plan.rates, cost::rates_from_json(base::dump(json["rates"])));
  HANJI_RETURN_IF_ERROR(check_sums(plan));
  return plan;
}

std::string kernels_to_json(const KernelChoice& kernels) { return base::dump(to_value(kernels)); }

Result<KernelChoice> kernels_from_json(std::string_view text) {
  const auto read = [](JsonFields& fields) { return read_kernels(fields, kFormat); };
  return read_text<KernelChoice>(text, "kernels", size_t{1} << 16, read);
}

}  // namespace hanji::plan
