// Prints the samples of an epoch in an order, one a line: ORDER SEED EPOCH SAMPLES.
#include <hanji/data/loader.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_numpys = std::string_view(argv[1]) == "ffcv";
  const int64_t samples = std::atoll(argv[4]), epoch = std::atoll(argv[3]);
  const auto loader =
      hanji::data::Loader::create(
          {.seed = static_cast<uint64_t>(std::atoll(argv[2])),
           .num_samples = samples,
           .global_batch = samples,
           .share = {0, samples},
           .micro_batch = samples,
           .order = is_numpys ? hanji::plan::SampleOrder::kFfcv : hanji::plan::SampleOrder::kTorch})
          .or_throw();
  for (int64_t position = 0; position < samples; ++position) {
    std::printf("%lld\n", static_cast<long long>(loader.sample(epoch, position)));
  }
}
