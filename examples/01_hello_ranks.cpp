// Two copies of this very program meet in shared memory and add up what each of them has: no
// launcher, no address, no port.
//
//   01_hello_ranks [RANKS]
#include <hanji/hanji.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  try {
    hanji::spawn(ranks, [](hanji::World& world) {
      auto mine = torch::full({4}, world.rank() + 1.0);
      hanji::comm::all_reduce(mine, world.group()).wait();
      const double sum = mine[0].item<double>();
      std::printf("rank %d of %d: all of us together have %g\n", world.rank(), world.size(), sum);
      TORCH_CHECK(sum == world.size() * (world.size() + 1) / 2.0, "the ranks cannot add");
    });
  } catch (const std::exception& error) {  // what the first failing rank threw
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
