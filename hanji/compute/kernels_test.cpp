#include "hanji/compute/kernels.h"

#include <gmock/gmock.h>

namespace hanji::compute {
namespace {

using testing::HasSubstr;

TEST(KernelChoice, ReturnsFromJson) {
  KernelChoice choice;
  choice.gemm = Gemm::kOneDnn;
  choice.attention = Attention::kFlash;
  choice.dtype = Dtype::kBFloat16;
  choice.simd = base::Simd::kAvx2;
  choice.gemm_flops_per_second = 1e11;
  choice.float32_flops_per_second = 7e10;
  choice.candidates.push_back({"gemm.mkl", 0.5, 9e10, 1e-7, true});
  choice.why = "gemm.onednn (9 % faster than gemm.mkl)";
  const auto back = choice_from_json(to_json(choice));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->gemm, Gemm::kOneDnn);
  EXPECT_EQ(back->attention, Attention::kFlash);
  EXPECT_EQ(back->dtype, Dtype::kBFloat16);
  EXPECT_EQ(back->simd, base::Simd::kAvx2);
  EXPECT_EQ(back->float32_flops_per_second, 7e10);
  EXPECT_EQ(back->candidates[0].rate, 9e10);
  EXPECT_EQ(to_json(*back), to_json(choice));
}

TEST(KernelChoice, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "{}", R"({"gemm":"fast"})", R"({"gemm":1})", "[1,2"}) {
    EXPECT_FALSE(choice_from_json(text).ok()) << text;
  }
  EXPECT_THAT(parse_gemm("cublas").status().message(), HasSubstr("mkl, onednn"));
}

}  // namespace
}  // namespace hanji::compute
