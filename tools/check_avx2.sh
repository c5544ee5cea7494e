# The part avx2 of ./dev check; sourced by dev, which provides the functions used here: every test
# at the level of a processor with AVX2 alone, of our kernels and of the libraries'.
(
  export HANJI_SIMD=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
  test_all
)
