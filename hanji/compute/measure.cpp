#include "hanji/compute/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace hanji::compute {
namespace {

std::string percent_faster(const Candidate& winner, const Candidate& loser) {
  const double ratio = winner.seconds > 0 ? loser.seconds / winner.seconds : 1;
  return std::to_string(static_cast<int>(std::lround((ratio - 1) * 100))) + " %";
}

/// The weight of the products: values of it in float64, twice while the second is made, and in the precision.
double weight_bytes(const Shapes& s) {
  return 20 * 4.0 * static_cast<double>(s.width) * static_cast<double>(s.width);
}

/// Beside the weight, those of rows of width: of products a float64 and its copy of the inputs, and two
/// times four outputs; of attention three of each with their gradients, and scores of all pairs of rows, of one
/// sample in float64 as well.
double measured_bytes(const Shapes& s) {
  const auto batch = static_cast<double>(s.batch), block = static_cast<double>(s.block);
  const double products = 44 * batch * block * static_cast<double>(s.width) + weight_bytes(s);
  const double rows = 68 * batch * block * static_cast<double>(s.width);
  const double scores = (16 * batch + 32) * static_cast<double>(s.heads) * block * block;
  return std::max(products, rows + scores);
}

double measured_flops(const Shapes& s) {
  const auto width = static_cast<double>(s.width);
  return 3 * 2.0 * static_cast<double>(s.batch * s.block) * 4 * width * width;
}

void halve_width(Shapes& shapes) {
  const int64_t of_head = shapes.width / shapes.heads;
  shapes.width = shapes.heads > 1 ? shapes.heads / 2 * of_head : (shapes.width + 1) / 2;
  shapes.heads = std::max<int64_t>(1, shapes.heads / 2);
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

Result<Candidate> fastest(const std::vector<Candidate>& candidates, double allowed) {
  const Candidate* best = nullptr;
  for (const Candidate& one : candidates) {
    if (one.accepted && (best == nullptr || one.seconds < best->seconds)) best = &one;
  }
  if (best != nullptr) return *best;
  std::string errors;
  for (const Candidate& one : candidates) {
    errors += fmt::format(" {} has an error of {:.1e};", one.name, one.error);
  }
  return base::unsupported(
      fmt::format("no kernel is accurate enough for this dtype here:{} {:.1e} is allowed; "
                  "set compute.dtype to one of less precision, or float64",
                  errors, allowed));
}

/// Every choice but kAuto, which is the first.
template <class Choice>
constexpr std::array<Choice, 2> all_of() {
  return {static_cast<Choice>(1), static_cast<Choice>(2)};
}

/// What decides between choices besides their measurement; kAuto: nothing.
template <class Choice>
struct Wanted {
  Choice asked;
  Choice before;
};

/// Measures the choices, or only the one asked for, and appends them to those of `result`.
template <class Choice, class Measure>
Result<Choice> choose(const Wanted<Choice>& wanted, double allowed, const Measure& measure_one,
                      MeasuredKernels& result) {
  std::vector<Candidate> measured;
  std::vector<Choice> order;
  const bool is_asked = wanted.asked != Choice::kAuto;
  for (const Choice choice : all_of<Choice>()) {
    if (is_asked && wanted.asked != choice) continue;
    Candidate one = measure_one(choice);
    one.accepted = one.error <= allowed;
    measured.push_back(std::move(one));
    order.push_back(choice);
  }
  HANJI_ASSIGN_OR_RETURN(const Candidate fast, fastest(measured, allowed));
  size_t winner = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    if (measured[i].name == fast.name) winner = i;
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    const bool is_near = fast.seconds >= kClearlyFaster * measured[i].seconds;
    if (wanted.before == order[i] && measured[i].accepted && is_near) winner = i;
  }
  std::string& why = result.choice.why;
  if (!why.empty()) why += ", ";
  why += reason(measured[winner], measured, is_asked);
  result.candidates.insert(result.candidates.end(), measured.begin(), measured.end());
  return order[winner];
}

const Candidate& named(const MeasuredKernels& found, const std::string& name) {
  return *std::find_if(found.candidates.begin(), found.candidates.end(),
                       [&](const Candidate& one) { return one.name == name; });
}

/// Of the fastest accurate products in float32; 0 if there are none.
double float32_rate(MeasureOptions options, const Measurer& measurer) {
  options.precision = Precision::kFloat32;
  double best = 0;
  for (const Gemm gemm : all_of<Gemm>()) {
    const Candidate one = measurer.gemm(gemm, options);
    if (one.error <= allowed_error(options.precision, roundings_of_products(options.shapes))) {
      best = std::max(best, one.rate);
    }
  }
  return best;
}

}  // namespace

Shapes within_limits(Shapes shapes) {
  constexpr int64_t kMinBlock = 64;
  const auto limit = static_cast<double>(kMaxMeasuredBytes);
  while (weight_bytes(shapes) > limit) halve_width(shapes);
  while (measured_bytes(shapes) > limit || measured_flops(shapes) > kMaxMeasuredFlops) {
    if (shapes.batch > 1) {
      shapes.batch /= 2;
    } else if (shapes.block > kMinBlock) {
      shapes.block /= 2;
    } else {
      halve_width(shapes);
    }
  }
  return shapes;
}

double roundings_of_products(const Shapes& shapes) { return static_cast<double>(shapes.width); }

double roundings_of_attention(const Shapes& shapes) {
  const double of_head = static_cast<double>(shapes.width) / static_cast<double>(shapes.heads);
  return 2 * (of_head + 2) * std::sqrt(of_head) + 2 * static_cast<double>(shapes.block) + 8;
}

double allowed_error(Precision precision, double roundings) {
  const double half_epsilon = precision == Precision::kFloat64    ? std::ldexp(1.0, -53)
                              : precision == Precision::kBFloat16 ? std::ldexp(1.0, -9)
                                                                  : std::ldexp(1.0, -24);
  return roundings * half_epsilon;
}

Result<MeasuredKernels> measure(const MeasureOptions& asked, const Measurer& measurer) {
  MeasureOptions options = asked;
  options.shapes = within_limits(asked.shapes);
  MeasuredKernels result;
  KernelChoice& choice = result.choice;
  choice.precision = options.precision;
  HANJI_ASSIGN_OR_RETURN(choice.simd, base::simd_in_use());
  const auto allowed = [&options](double roundings) {
    return allowed_error(options.precision, roundings);
  };
  // oneDNN multiplies no float64, whatever the switch says.
  const bool only_blas = options.precision == Precision::kFloat64 && options.gemm == Gemm::kAuto;
  Wanted<Gemm> gemms{only_blas ? Gemm::kMkl : options.gemm, Gemm::kAuto};
  Wanted<Attention> attentions{options.attention, Attention::kAuto};
  if (options.before) gemms.before = options.before->gemm;
  if (options.before) attentions.before = options.before->attention;
  const auto measure_gemm = [&](Gemm gemm) { return measurer.gemm(gemm, options); };
  HANJI_ASSIGN_OR_RETURN(choice.gemm, choose(gemms, allowed(roundings_of_products(options.shapes)),
                                             measure_gemm, result));
  if (options.precision == Precision::kBFloat16) {
    choice.float32_flops_per_second = float32_rate(options, measurer);
  }
  const auto measure_attention = [&](Attention a) {
    return measurer.attention(a, choice.gemm, options);
  };
  HANJI_ASSIGN_OR_RETURN(choice.attention,
                         choose(attentions, allowed(roundings_of_attention(options.shapes)),
                                measure_attention, result));
  const Candidate& gemm = named(result, "gemm." + std::string(name_of(choice.gemm)));
  const Candidate& attention = named(result, "attention." + std::string(name_of(choice.attention)));
  choice.gemm_flops_per_second = gemm.rate;
  choice.gemm_error = gemm.error;
  choice.attention_flops_per_second = attention.rate;
  choice.attention_error = attention.error;
  return result;
}

}  // namespace hanji::compute
