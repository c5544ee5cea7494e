// Rank 1 waits for a batch that never comes, so the others wait for it in step 3: a hang for
// docs/learn/6_profiling.md. The deadline ends it after SECONDS, 300 unless given.
//
//   hanji run --ranks 2 04_hangs_on_purpose [SECONDS]
#include <hanji/hanji.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

/// What a loader does whose file server is gone.
void load_batch(int rank, int step) {
  while (rank == 1 && step == 3) ::pause();
}

int main(int argc, char** argv) {
  hanji::world::ConnectOptions options;
  options.group.deadline = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 300);
  try {
    auto world = hanji::connect(options);
    auto gradients = torch::ones({1000});
    for (int step = 1; step <= 4; ++step) {
      load_batch(world.rank(), step);
      hanji::comm::all_reduce(gradients, world.group()).wait();
    }
  } catch (const std::exception& error) {  // names the rank that is missing, and its last call
    std::fprintf(stderr, "%s\n", error.what());
    return 5;
  }
}
