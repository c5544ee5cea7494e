#include "hanji/cli/capacity_options.h"

#include <algorithm>
#include <numeric>

namespace hanji::cli {
namespace {

constexpr const char* kGroup = "A model on devices that need not be there";

}  // namespace

void CapacityOptions::add_to(Verb verb) {
  const Option model =
      verb.add_option("--model", &model_,
                      "gpt:7B, gpt:124M or a preset: what it needs with every strategy, on --ranks "
                      "times --device (h100-80, 24GB, cpu-64GB)")
          .type_name("NAME")
          .group(kGroup);
  const auto add = [&](const char* flag, Target value, const char* words, const char* type) {
    return verb.add_option(flag, value, words).type_name(type).group(kGroup).needs(model);
  };
  add("--ranks-per-host", &ranks_per_host_, "default 8", "N");
  add("--fsdp", &fsdp_, "ranks of a group within which hsdp shards; default: those of a host", "N");
  add("--servers", &servers_, "parameter servers beside the ranks; default 1", "N");
  add("--micro-batch", &micro_batch_, "samples of one forward; default 1", "N");
  add("--block", &block_, "tokens of a sample; default: the model's", "N");
  add("--states", &states_, "mixed: bf16 with an fp32 copy, Adam (default); fp32: all fp32, Adam",
      "KIND")
      .one_of({"mixed", "fp32"});
  verb.add_flag("--recompute", &recompute_, "blocks keep their input and compute twice")
      .group(kGroup)
      .needs(model);
  add("--svg", &svg_, "the bars as a drawing", "FILE");
}

Result<plan::CapacityQuery> CapacityOptions::query(Verb verb) const {
  std::string wrong;
  const auto refuse = [&](const std::string& words) {
    wrong += (wrong.empty() ? "" : "; ") + words;
  };
  for (const char* flag : {"--config", "--text", "--tokens", "--steps", "--seed", "--out", "--set",
                           "--hosts", "--print-config", "--keys"}) {
    if (verb.was_given(flag))
      refuse(std::string(flag) + " is of a job and means nothing to --model");
  }
  plan::CapacityQuery query;
  const auto model = plan::find_model(model_);
  if (!model.ok()) refuse(model.status().message());
  if (!verb.was_given("--device")) {
    refuse("--model needs a --device, such as h100-80 or 24GB");
  } else if (const auto device = plan::find_device(verb.text_of("--device")); device.ok()) {
    query.device = *device;
  } else {
    refuse(device.status().message());
  }
  const std::string ranks = verb.was_given("--ranks") ? verb.text_of("--ranks") : "1";
  const auto num_ranks = parse_int(ranks);
  if (!num_ranks) refuse("--ranks " + ranks + " is not a number");
  if (!wrong.empty()) return base::invalid_argument(wrong);
  query.model = *model;
  query.ranks.ranks = *num_ranks;
  if (block_ != 0) query.model.spec.block = block_;
  query.ranks_per_host = ranks_per_host_;
  const int in_host = std::gcd(std::max(1, query.ranks.ranks), std::max(1, ranks_per_host_));
  query.ranks.hybrid_ranks = fsdp_ != 0 ? fsdp_ : in_host;
  query.ranks.servers = servers_;
  query.micro_batch = micro_batch_;
  query.recompute = recompute_;
  if (states_ == "fp32") {
    query.widths = plan::kFloat32Adam;
    query.precision = plan::Precision::kFloat32;
  }
  HANJI_RETURN_IF_ERROR(plan::check(query));
  return query;
}

}  // namespace hanji::cli
