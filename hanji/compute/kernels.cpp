#include "hanji/compute/kernels.h"

#include <nlohmann/json.hpp>

namespace hanji::compute {
namespace {

using Json = nlohmann::ordered_json;

template <class T, size_t N>
Result<T> parse(std::string_view what, std::string_view name, const std::array<T, N>& choices) {
  std::string offered;
  for (T choice : choices) {
    if (name_of(choice) == name) return choice;
    offered += (offered.empty() ? "" : ", ") + std::string(name_of(choice));
  }
  return base::invalid_argument(std::string(what) + " is '" + std::string(name) +
                                "'; the choices are " + offered);
}

}  // namespace

std::string_view name_of(Gemm gemm) { return gemm == Gemm::kMkl ? "mkl" : "onednn"; }

std::string_view name_of(Attention attention) {
  return attention == Attention::kFlash ? "flash" : "math";
}

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32: return "float32";
    case Dtype::kBFloat16: return "bf16";
    case Dtype::kFloat64: return "float64";
  }
  return "unknown";
}

Result<Gemm> parse_gemm(std::string_view name) { return parse("compute.gemm", name, kGemms); }

Result<Attention> parse_attention(std::string_view name) {
  return parse("compute.attention", name, kAttentions);
}

Result<Dtype> parse_dtype(std::string_view name) {
  constexpr std::array kDtypes{Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat64};
  return parse("compute.dtype", name, kDtypes);
}

std::string to_json(const KernelChoice& choice) {
  Json candidates = Json::array();
  for (const auto& c : choice.candidates) {
    candidates.push_back(Json{{"name", c.name},
                              {"seconds", c.seconds},
                              {"rate", c.rate},
                              {"error", c.error},
                              {"accepted", c.accepted}});
  }
  return Json{{"gemm", name_of(choice.gemm)},
              {"attention", name_of(choice.attention)},
              {"dtype", name_of(choice.dtype)},
              {"simd", choice.simd ? base::name_of(*choice.simd) : ""},
              {"gemm_flops_per_second", choice.gemm_flops_per_second},
              {"attention_flops_per_second", choice.attention_flops_per_second},
              {"gemm_error", choice.gemm_error},
              {"attention_error", choice.attention_error},
              {"float32_flops_per_second", choice.float32_flops_per_second},
              {"seconds_per_operation", choice.seconds_per_operation},
              {"elementwise_bytes_per_second", choice.elementwise_bytes_per_second},
              {"candidates", candidates},
              {"why", choice.why}}
      .dump();
}

Result<KernelChoice> choice_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    KernelChoice choice;
    HANJI_ASSIGN_OR_RETURN(choice.gemm, parse_gemm(json.at("gemm").get<std::string>()));
    HANJI_ASSIGN_OR_RETURN(choice.attention,
                           parse_attention(json.at("attention").get<std::string>()));
    HANJI_ASSIGN_OR_RETURN(choice.dtype, parse_dtype(json.at("dtype").get<std::string>()));
    if (const auto simd = json.at("simd").get<std::string>(); !simd.empty()) {
      HANJI_ASSIGN_OR_RETURN(choice.simd, base::parse_simd(simd));
    }
    choice.gemm_flops_per_second = json.at("gemm_flops_per_second").get<double>();
    choice.attention_flops_per_second = json.at("attention_flops_per_second").get<double>();
    choice.gemm_error = json.at("gemm_error").get<double>();
    choice.attention_error = json.at("attention_error").get<double>();
    choice.float32_flops_per_second = json.at("float32_flops_per_second").get<double>();
    choice.seconds_per_operation = json.at("seconds_per_operation").get<double>();
    choice.elementwise_bytes_per_second = json.at("elementwise_bytes_per_second").get<double>();
    for (const auto& c : json.at("candidates")) {
      choice.candidates.push_back(
          {c.at("name"), c.at("seconds"), c.at("rate"), c.at("error"), c.at("accepted")});
    }
    choice.why = json.at("why").get<std::string>();
    return choice;
  } catch (const nlohmann::json::exception& error) {
    return base::corrupt(std::string("kernel choice: ") + error.what());
  }
}

}  // namespace hanji::compute
