// The peer of bench/all_reduce: MPI_Allreduce in place, on request. Requests come from a file per
// rank and not from stdin, which mpirun gives to rank 0 only.
//   BYTES CALLS  ->  "seconds seconds ... wrong N"
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string folder = argv[1];
  std::ifstream requests(folder + "/request." + std::to_string(rank));
  std::ofstream answers(folder + "/answer." + std::to_string(rank));
  std::vector<float> values;
  long bytes = 0;
  long calls = 0;
  while (requests >> bytes >> calls) {
    const long count = bytes / 4;
    values.resize(std::max<size_t>(values.size(), count));
    long wrong = 0;
    for (; calls > 0; --calls) {
      for (long i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000 + rank);
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, values.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      answers << MPI_Wtime() - start << " ";
      for (long i = 0; i < count; ++i) {
        wrong += values[i] != static_cast<float>(i % 1000 * ranks + ranks * (ranks - 1) / 2);
      }
    }
    answers << "wrong " << wrong << std::endl;
  }
  MPI_Finalize();
}
