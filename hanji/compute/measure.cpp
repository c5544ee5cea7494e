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

/// The fastest but one; of those that are too inaccurate only if there are no others.
const Candidate* next_to(const Candidate& winner, const std::vector<Candidate>& candidates) {
  const Candidate* next = nullptr;
  for (const Candidate& other : candidates) {
    if (other.name == winner.name || (next != nullptr && next->accepted && !other.accepted))
      continue;
    const bool better = next == nullptr || (other.accepted && !next->accepted);
    if (better || other.seconds < next->seconds) next = &other;
  }
  return next;
}

/// "gemm.mkl (12 % faster than gemm.onednn)"; says why where nothing was compared.
std::string reason(const Candidate& winner, const std::vector<Candidate>& candidates, bool asked) {
  if (asked) return winner.name + " as asked";
  const Candidate* const other = next_to(winner, candidates);
  if (other == nullptr) return winner.name;
  if (!other->accepted) return winner.name + " (" + other->name + " is too inaccurate)";
  if (other->seconds < winner.seconds) {
    const bool is_less_accurate = other->within != winner.within;
    return winner.name + (is_less_accurate ? " (" : " as before (") + other->name +
           (is_less_accurate ? ", less accurate," : "") + " is only " +
           percent_faster(*other, winner) + " faster)";
  }
  return winner.name + " (" + percent_faster(winner, *other) + " faster than " + other->name + ")";
}

/// The errors of the tolerances. Only with takes_medium is kMedium one, for paths that repeat their bits.
struct Allowed {
  double highest = 0;
  double medium = 0;
  bool takes_medium = false;

  bool is_medium(const Candidate& one) const { return one.error <= medium && one.repeats; }
};

/// nullptr: none of this tolerance is accepted.
const Candidate* fastest_within(Products tolerance, const std::vector<Candidate>& candidates) {
  const Candidate* best = nullptr;
  for (const Candidate& one : candidates) {
    const bool is_one = one.accepted && one.within == tolerance;
    if (is_one && (best == nullptr || one.seconds < best->seconds)) best = &one;
  }
  return best;
}

/// `allowed`: of each candidate.
Result<Candidate> fastest(const std::vector<Candidate>& candidates,
                          const std::vector<Allowed>& allowed) {
  const Candidate* const exact = fastest_within(Products::kHighest, candidates);
  const Candidate* const rounded = fastest_within(Products::kMedium, candidates);
  const bool pays =
      rounded != nullptr && (!exact || rounded->seconds < kClearlyFaster * exact->seconds);
  if (pays) return *rounded;
  if (exact != nullptr) return *exact;
  std::string errors;
  std::string advice = "set compute.dtype to one of less precision, or float64";
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& one = candidates[i];
    errors += fmt::format(" {} has an error of {:.1e}{}; {:.1e} is allowed;", one.name, one.error,
                          one.repeats ? "" : " and other bits in each call",
                          allowed[i].takes_medium ? allowed[i].medium : allowed[i].highest);
    if (!allowed[i].takes_medium && allowed[i].is_medium(one)) {
      advice =
          fmt::format("set compute.products = \"medium\", which allows {:.1e}", allowed[i].medium);
    }
  }
  return base::unsupported(
      fmt::format("no kernel is accurate enough for this dtype here:{} {}", errors, advice));
}

std::string figures(const Candidate& one) {
  return fmt::format("{} {:.3g} GF/s with error {:.1e}", one.name, one.rate / 1e9, one.error);
}

/// Why a path that was measured is nothing that kMedium adds.
std::string_view why_not(const Candidate& other, double medium) {
  if (other.within == Products::kHighest) return "within highest";
  if (other.error > medium) return "more than medium allows";
  return other.repeats ? "less accurate and not clearly faster" : "other bits in each call";
}

/// What compute.products = medium does here, of the paths that were measured for it.
std::string describe_products(const Candidate& chosen, const std::vector<Candidate>& candidates,
                              const Allowed& allowed) {
  const double medium = allowed.medium;
  const Candidate* const exact = fastest_within(Products::kHighest, candidates);
  if (chosen.within == Products::kMedium) {
    const std::string other = exact == nullptr
                                  ? "no path that was measured is within highest"
                                  : fmt::format("highest would be {:.1e} at {:.3g} GF/s",
                                                exact->error, exact->rate / 1e9);
    return fmt::format(
        "medium, one bf16 product with float32 sums, error {:.1e} (at most {:.1e}); {}",
        chosen.error, medium, other);
  }
  std::string text = "medium changes nothing here:";
  for (const Candidate& one : candidates) {
    text += fmt::format("{} {} ({})", &one == candidates.data() ? "" : ",", figures(one),
                        why_not(one, medium));
  }
  if (candidates.size() == 1) text += ", the only path that compute.gemm leaves";
  return text + fmt::format("; highest allows {:.1e}, medium {:.1e}", allowed.highest, medium);
}

constexpr std::array kGemms = {Gemm::kMkl, Gemm::kOneDnn};

/// Those that compute in the precision here.
std::vector<Attention> offered_attentions(Precision precision, const Measurer& measurer) {
  std::vector<Attention> offered = {Attention::kFlash, Attention::kMath};
  const bool has_tiles =
      measurer.check_attention && measurer.check_attention(Attention::kTiles, precision).ok();
  if (has_tiles) offered.push_back(Attention::kTiles);
  return offered;
}

/// What decides between choices besides their measurement; kAuto: nothing.
template <class Choice>
struct Wanted {
  Choice asked;
  Choice before;
  std::vector<Choice> offered;
};

/// Measures the choices, or only the one asked for, and appends them to those of `result`.
template <class Choice, class AllowedOf, class Measure>
Result<Choice> choose(const Wanted<Choice>& wanted, const AllowedOf& allowed_of,
                      const Measure& measure_one, MeasuredKernels& result) {
  std::vector<Candidate> measured;
  std::vector<Choice> order;
  std::vector<Allowed> allowed;
  const bool is_asked = wanted.asked != Choice::kAuto;
  for (const Choice choice : wanted.offered) {
    if (is_asked && wanted.asked != choice) continue;
    Candidate one = measure_one(choice);
    const Allowed& errors = allowed.emplace_back(allowed_of(choice));
    one.within = one.error <= errors.highest ? Products::kHighest : Products::kMedium;
    one.accepted =
        one.within == Products::kHighest || (errors.takes_medium && errors.is_medium(one));
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
  for (const Gemm gemm : kGemms) {
    const Candidate one = measurer.gemm(gemm, options);
    if (one.error <= allowed_error(options.precision, roundings_of_products(options.shapes))) {
      best = std::max(best, one.rate);
    }
  }
  return best;
}

Status choose_gemm(const MeasureOptions& options, const Measurer& measurer,
                   MeasuredKernels& result) {
  KernelChoice& choice = result.choice;
  const double sums = roundings_of_products(options.shapes);
  Allowed allowed{allowed_error(options.precision, sums)};
  if (options.precision == Precision::kFloat32) {
    allowed.medium = medium_error(1, sums);
    allowed.takes_medium = options.products == Products::kMedium;
  }
  // oneDNN multiplies no float64, whatever the switch says.
  const bool only_blas = options.precision == Precision::kFloat64 && options.gemm == Gemm::kAuto;
  Wanted<Gemm> wanted{
      only_blas ? Gemm::kMkl : options.gemm, Gemm::kAuto, {kGemms.begin(), kGemms.end()}};
  if (options.before) wanted.before = options.before->gemm;
  const auto allowed_of = [&](Gemm) { return allowed; };
  const auto measure_one = [&](Gemm gemm) { return measurer.gemm(gemm, options); };
  HANJI_ASSIGN_OR_RETURN(choice.gemm, choose(wanted, allowed_of, measure_one, result));
  const Candidate& chosen = named(result, "gemm." + std::string(name_of(choice.gemm)));
  choice.gemm_flops_per_second = chosen.rate;
  choice.gemm_error = chosen.error;
  if (!allowed.takes_medium) return {};
  choice.products = chosen.within;
  choice.products_why = describe_products(chosen, result.candidates, allowed);
  return {};
}

/// The products of libtorch's and hanji's attention are those of the gemm.
Allowed allowed_of_attention(Attention attention, const MeasureOptions& options,
                             Products products) {
  if (attention == Attention::kTiles) {
    return {allowed_error(options.precision, roundings_of_tiles(options.shapes))};
  }
  const double roundings = roundings_of_attention(options.shapes);
  Allowed allowed{allowed_error(options.precision, roundings)};
  if (products == Products::kMedium) {
    allowed.medium = medium_error(products_of_attention(options.shapes), roundings);
    allowed.takes_medium = true;
  }
  return allowed;
}

Status choose_attention(const MeasureOptions& options, const Measurer& measurer,
                        MeasuredKernels& result) {
  KernelChoice& choice = result.choice;
  Wanted<Attention> wanted{options.attention, Attention::kAuto,
                           offered_attentions(options.precision, measurer)};
  if (options.before) wanted.before = options.before->attention;
  const auto allowed_of = [&](Attention a) {
    return allowed_of_attention(a, options, choice.products);
  };
  const auto measure_one = [&](Attention a) { return measurer.attention(a, choice.gemm, options); };
  HANJI_ASSIGN_OR_RETURN(choice.attention, choose(wanted, allowed_of, measure_one, result));
  const Candidate& chosen = named(result, "attention." + std::string(name_of(choice.attention)));
  choice.attention_flops_per_second = chosen.rate;
  choice.attention_error = chosen.error;
  return {};
}

/// Rates of the plan are those of gemm: what this saves is in the times of operations.
Status choose_weight_gradient(const MeasureOptions& options, const Measurer& measurer,
                              MeasuredKernels& result) {
  if (options.precision != Precision::kBFloat16 || !measurer.weight_gradient) return {};
  Wanted<WeightGradient> wanted{WeightGradient::kAuto,
                                WeightGradient::kAuto,
                                {WeightGradient::kRounded, WeightGradient::kFloat32}};
  if (options.before) wanted.before = options.before->weight_gradient;
  const Allowed allowed{allowed_error(options.precision, roundings_of_products(options.shapes))};
  const auto allowed_of = [&](WeightGradient) { return allowed; };
  const auto measure_one = [&](WeightGradient one) {
    return measurer.weight_gradient(one, result.choice.gemm, options);
  };
  HANJI_ASSIGN_OR_RETURN(result.choice.weight_gradient,
                         choose(wanted, allowed_of, measure_one, result));
  return {};
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

double roundings_of_tiles(const Shapes& shapes) {
  const double of_head = static_cast<double>(shapes.width) / static_cast<double>(shapes.heads);
  return 4 * std::sqrt(of_head) + 3 + std::ldexp(roundings_of_attention(shapes), -15);
}

double allowed_error(Precision precision, double roundings) {
  const double half_epsilon = precision == Precision::kFloat64    ? std::ldexp(1.0, -53)
                              : precision == Precision::kBFloat16 ? std::ldexp(1.0, -8)
                                                                  : std::ldexp(1.0, -24);
  return roundings * half_epsilon;
}

double medium_error(double products, double roundings) {
  return allowed_error(Precision::kBFloat16, products) +
         allowed_error(Precision::kFloat32, roundings);
}

double products_of_attention(const Shapes& shapes) {
  const double of_head = static_cast<double>(shapes.width) / static_cast<double>(shapes.heads);
  return 2 * std::sqrt(of_head) + 1;
}

Status check_products(const KernelChoice& choice, const std::function<double(Gemm)>& error_of) {
  if (choice.precision != Precision::kFloat32 || choice.gemm != Gemm::kOneDnn) return {};
  const double highest = allowed_error(Precision::kFloat32, roundings_of_products(kSmallShapes));
  const double error = error_of(choice.gemm);
  const Products here = error <= highest ? Products::kHighest : Products::kMedium;
  if (here == choice.products) return {};
  return base::unsupported(fmt::format(
      "the float32 products of gemm.onednn have an error of {:.1e} on this processor, which is not "
      "compute.products = {}, with which they were planned; use processors of the kind that made "
      "the plan, or begin a new run with compute.gemm = mkl",
      error, name_of(choice.products)));
}

Result<MeasuredKernels> measure(const MeasureOptions& asked, const Measurer& measurer) {
  MeasureOptions options = asked;
  options.shapes = within_limits(asked.shapes);
  MeasuredKernels result;
  KernelChoice& choice = result.choice;
  choice.precision = options.precision;
  HANJI_ASSIGN_OR_RETURN(choice.simd, base::simd_in_use());
  if (measurer.check_attention) {
    HANJI_RETURN_IF_ERROR(measurer.check_attention(options.attention, options.precision));
  }
  HANJI_RETURN_IF_ERROR(choose_gemm(options, measurer, result));
  if (options.precision == Precision::kBFloat16) {
    choice.float32_flops_per_second = float32_rate(options, measurer);
  }
  HANJI_RETURN_IF_ERROR(choose_weight_gradient(options, measurer, result));
  HANJI_RETURN_IF_ERROR(choose_attention(options, measurer, result));
  return result;
}

}  // namespace hanji::compute
