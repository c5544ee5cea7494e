#include "hanji/compute/measure.h"

#include <algorithm>
#include <cmath>

namespace hanji::compute {
namespace {

std::string percent_faster(const Candidate& winner, const Candidate& loser) {
  const double ratio = winner.seconds > 0 ? loser.seconds / winner.seconds : 1;
  return std::to_string(static_cast<int>(std::lround((ratio - 1) * 100))) + " %";
}

/// "gemm.mkl (12 % faster than gemm.onednn)"; says why where nothing was compared.
std::string reason(const Candidate& winner, const std::vector<Candidate>& candidates, bool asked) {
  if (asked) return winner.name + " as asked";
  for (const Candidate& other : candidates) {
    if (other.name == winner.name) continue;
    if (!other.accepted) return winner.name + " (" + other.name + " is too inaccurate)";
    if (other.seconds < winner.seconds) {
      return winner.name + " as before (" + other.name + " is only " +
             percent_faster(other, winner) + " faster)";
    }
    return winner.name + " (" + percent_faster(winner, other) + " faster than " + other.name + ")";
  }
  return winner.name;
}

Result<Candidate> fastest(const std::vector<Candidate>& candidates) {
  const Candidate* best = nullptr;
  for (const Candidate& one : candidates) {
    if (one.accepted && (best == nullptr || one.seconds < best->seconds)) best = &one;
  }
  if (best != nullptr) return *best;
  std::string errors;
  for (const Candidate& one : candidates) {
    errors += " " + one.name + " has an error of " + std::to_string(one.error) + ";";
  }
  return base::unsupported("no kernel is accurate enough for this dtype here:" + errors +
                           " set compute.dtype to one of less precision, or float64");
}

/// What decides between choices besides their measurement.
template <class Choice>
struct Wanted {
  std::optional<Choice> asked;
  std::optional<Choice> before;
};

/// Measures the choices, or only the one asked for, and appends them to those of `result`.
template <class Choices, class Choice, class Measure>
Result<Choice> choose(const Choices& choices, const Wanted<Choice>& wanted, double allowed,
                      const Measure& measure_one, KernelChoice& result) {
  std::vector<Candidate> measured;
  std::vector<Choice> order;
  for (const Choice choice : choices) {
    if (wanted.asked && *wanted.asked != choice) continue;
    Candidate one = measure_one(choice);
    one.accepted = one.error <= allowed;
    measured.push_back(std::move(one));
    order.push_back(choice);
  }
  HANJI_ASSIGN_OR_RETURN(const Candidate fast, fastest(measured));
  size_t winner = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    if (measured[i].name == fast.name) winner = i;
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    const bool is_near = fast.seconds >= kClearlyFaster * measured[i].seconds;
    if (wanted.before == order[i] && measured[i].accepted && is_near) winner = i;
  }
  if (!result.why.empty()) result.why += ", ";
  result.why += reason(measured[winner], measured, wanted.asked.has_value());
  result.candidates.insert(result.candidates.end(), measured.begin(), measured.end());
  return order[winner];
}

const Candidate& named(const KernelChoice& choice, const std::string& name) {
  return *std::find_if(choice.candidates.begin(), choice.candidates.end(),
                       [&](const Candidate& one) { return one.name == name; });
}

/// Of the fastest accurate products in float32; 0 if there are none.
double float32_rate(MeasureOptions options, const Measurer& measurer) {
  options.dtype = Dtype::kFloat32;
  double best = 0;
  for (const Gemm gemm : kGemms) {
    const Candidate one = measurer.gemm(gemm, options);
    if (one.error <= allowed_error(options.dtype, options.shapes.width)) {
      best = std::max(best, one.rate);
    }
  }
  return best;
}

}  // namespace

double allowed_error(Dtype dtype, int64_t width) {
  const double half_epsilon = dtype == Dtype::kFloat64    ? std::ldexp(1.0, -53)
                              : dtype == Dtype::kBFloat16 ? std::ldexp(1.0, -9)
                                                          : std::ldexp(1.0, -24);
  return static_cast<double>(width) * half_epsilon;
}

Result<KernelChoice> measure(const MeasureOptions& options, const Measurer& measurer) {
  KernelChoice result;
  result.dtype = options.dtype;
  HANJI_ASSIGN_OR_RETURN(result.simd, base::simd_in_use());
  const double allowed = allowed_error(options.dtype, options.shapes.width);
  // oneDNN multiplies no float64, whatever the switch says.
  const bool only_blas = options.dtype == Dtype::kFloat64 && !options.gemm;
  Wanted<Gemm> gemms{only_blas ? Gemm::kMkl : options.gemm, {}};
  Wanted<Attention> attentions{options.attention, {}};
  if (options.before) gemms.before = options.before->gemm;
  if (options.before) attentions.before = options.before->attention;
  const auto measure_gemm = [&](Gemm gemm) { return measurer.gemm(gemm, options); };
  HANJI_ASSIGN_OR_RETURN(result.gemm, choose(kGemms, gemms, allowed, measure_gemm, result));
  if (options.dtype == Dtype::kBFloat16) {
    result.float32_flops_per_second = float32_rate(options, measurer);
  }
  const auto measure_attention = [&](Attention a) {
    return measurer.attention(a, result.gemm, options);
  };
  HANJI_ASSIGN_OR_RETURN(result.attention,
                         choose(kAttentions, attentions, allowed, measure_attention, result));
  const Candidate& gemm = named(result, "gemm." + std::string(name_of(result.gemm)));
  const Candidate& attention = named(result, "attention." + std::string(name_of(result.attention)));
  result.gemm_flops_per_second = gemm.rate;
  result.gemm_error = gemm.error;
  result.attention_flops_per_second = attention.rate;
  result.attention_error = attention.error;
  const Overheads overheads = measurer.overheads(result.gemm, options);
  result.seconds_per_operation = overheads.seconds_per_operation;
  result.elementwise_bytes_per_second = overheads.elementwise_bytes_per_second;
  return result;
}

}  // namespace hanji::compute
