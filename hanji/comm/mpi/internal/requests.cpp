#include "hanji/comm/mpi/internal/requests.h"

#include <utility>

namespace hanji::comm::mpi {

Requests::~Requests() {
  if (handles_.empty()) --*open_;
}

bool Requests::done() {
  if (handles_.empty()) return true;
  int all = 0;
  check(MPI_Testall(static_cast<int>(handles_.size()), handles_.data(), &all, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  if (!all) return false;
  handles_.clear();
  if (after_) std::exchange(after_, {})();
  return true;
}

std::vector<int>& Requests::keep(std::vector<int> numbers) {
  return *numbers_.emplace_back(std::make_unique<std::vector<int>>(std::move(numbers)));
}

}  // namespace hanji::comm::mpi
