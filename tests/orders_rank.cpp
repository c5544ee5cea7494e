// Prints the samples of epochs in an order, an epoch a line: ORDER, then SEED EPOCH SAMPLES of each.
#include <hanji/data/loader.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

void print_epoch(hanji::plan::SampleOrder order, int64_t seed, int64_t epoch, int64_t samples) {
  const auto loader = hanji::data::Loader::create({.seed = static_cast<uint64_t>(seed),
                                                   .num_samples = samples,
                                                   .global_batch = samples,
                                                   .share = {0, samples},
                                                   .micro_batch = samples,
                                                   .order = order})
                          .or_throw();
  for (int64_t position = 0; position < samples; ++position) {
    std::printf("%lld ", static_cast<long long>(loader.sample(epoch, position)));
  }
  std::puts("");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc % 3 != 2) return 2;
  const auto order = std::string_view(argv[1]) == "ffcv" ? hanji::plan::SampleOrder::kFfcv
                                                         : hanji::plan::SampleOrder::kTorch;
  for (int i = 2; i < argc; i += 3) {
    print_epoch(order, std::atoll(argv[i]), std::atoll(argv[i + 1]), std::atoll(argv[i + 2]));
  }
}
