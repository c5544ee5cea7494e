#include "hanji/parallel/fsdp/internal/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/agreement.h"

namespace hanji::parallel {
namespace {

constexpr std::array kDtypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};

struct Choice {
  const char* option;
  std::optional<at::ScalarType> dtype;
};

std::array<Choice, 4> choices_of(const MixedPrecisionPolicy& policy) {
  return {{{"param_dtype", policy.param_dtype},
           {"reduce_dtype", policy.reduce_dtype},
           {"output_dtype", policy.output_dtype},
           {"buffer_dtype", policy.buffer_dtype}}};
}

Mistakes mistakes_of(const MixedPrecisionPolicy& policy, bool sees_calls,
                     const std::string& caller) {
  Mistakes mistakes;
  const auto add = [&](const std::string& option, const std::string& why) {
    mistakes.add(option, option,
                 base::invalid_argument(caller + ": precision." + option + " " + why));
  };
  for (const auto& [option, dtype] : choices_of(policy)) {
    if (!dtype || std::ranges::find(kDtypes, *dtype) != kDtypes.end()) continue;
    add(option, std::string("is ") + c10::toString(*dtype) +
                    "; choose float64, float32, float16 or bfloat16");
  }
  const std::string why = sees_calls
                              ? std::string()
                              : "needs units that are called by name, and nobody sees calls here; "
                                "use fully_shard with UnitCalls::kExplicit, or cast in forward()";
  if (!sees_calls && policy.output_dtype) add("output_dtype", why);
  if (policy.cast_forward_inputs != true) return mistakes;
  if (!sees_calls) add("cast_forward_inputs", why);
  if (!policy.param_dtype) {
    add("cast_forward_inputs", "has no param_dtype to cast to; give one, or leave it out");
  }
  return mistakes;
}

}  // namespace

UnitDtypes dtypes_of(at::ScalarType own, const MixedPrecisionPolicy& policy) {
  if (!c10::isFloatingType(own)) return {own, own, own};
  const at::ScalarType compute = policy.param_dtype.value_or(own);
  return {own, compute, policy.reduce_dtype.value_or(compute)};
}

MixedPrecisionPolicy agree_on_precision(MixedPrecisionPolicy policy, bool sees_calls,
                                        const ShardingOptions& options, const comm::Group& group,
                                        const std::string& caller) {
  const Mistakes mistakes = mistakes_of(policy, sees_calls, caller);
  if (!policy.cast_forward_inputs) policy.cast_forward_inputs = sees_calls;
  const std::string words = to_string(policy);
  if (options.replicas) check_same_words("precision", words, *options.replicas, mistakes);
  check_same_words("precision", words, group, mistakes);
  return policy;
}

void cast_buffers(const torch::nn::Module& module, const MixedPrecisionPolicy& policy) {
  if (!policy.buffer_dtype) return;
  for (const NamedParameter& entry : buffers_of(module)) {
    if (!entry.tensor.is_floating_point()) continue;
    entry.tensor.set_data(entry.tensor.detach().to(*policy.buffer_dtype));
  }
}

std::string to_string(const MixedPrecisionPolicy& policy) {
  std::string text;
  for (const auto& [option, dtype] : choices_of(policy)) {
    if (!dtype) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option, c10::toString(*dtype));
  }
  if (policy.param_dtype && policy.cast_forward_inputs.value_or(false)) {
    text += ", inputs of units are cast";
  }
  return text;
}

}  // namespace hanji::parallel
