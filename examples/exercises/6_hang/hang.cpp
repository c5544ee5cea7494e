// Exercise 6: this job hangs. Find out why, fill in the two `____`, and mend it.
//
// Who is absent (its number), and which call do the others wait in (its name, as broadcast)?  Command: hanji debug logs
// absent_rank=____
// absent_call=____
#include <hanji/hanji.h>
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

constexpr int kBatches = 7;  // of all ranks: rank r has r, r + 2, r + 4, ...

/// What a batch gives: its number, from 1.
at::Tensor read_batch(int batch) { return torch::full({1000}, batch + 1.0); }

double train(const hanji::world::World& world) {
  double total = 0;
  for (int batch = world.rank(); batch < kBatches; batch += world.size()) {
    auto sum = read_batch(batch);
    hanji::comm::all_reduce(sum, world.group()).wait();
    total += sum[0].item<double>();
  }
  return total;
}

int main(int argc, char** argv) {
  hanji::world::ConnectOptions options;
  options.group.deadline = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 300);
  try {
    const auto world = hanji::connect(options);
    const double total = train(world);
    // Rank 0 saves what was trained, and the others wait for the file.
    const std::string file = "trained-" + std::to_string(getppid());
    if (world.rank() == 0) std::ofstream(file) << total << "\n";
    while (!std::filesystem::exists(file))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::printf("rank %d total %g\n", world.rank(), total);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 5;
  }
}
