#include "hanji/comm/mpi/internal/call.h"

#include <fmt/format.h>

#include <array>

#include "hanji/base/status.h"

namespace hanji::comm::mpi {
namespace {

Code code_of(int error_class) {
  switch (error_class) {
    case MPI_ERR_TRUNCATE: return Code::kMismatch;
    case MPI_ERR_NO_MEM: return Code::kOutOfMemory;
    case MPI_ERR_UNSUPPORTED_OPERATION: return Code::kUnsupported;
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_COMM:
    case MPI_ERR_RANK:
    case MPI_ERR_ROOT:
    case MPI_ERR_GROUP:
    case MPI_ERR_OP:
    case MPI_ERR_ARG: return Code::kInvalidArgument;
    default: return Code::kInternal;
  }
}

}  // namespace

void check(int error, std::string_view call) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> words{};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_string(error, words.data(), &length);
  MPI_Error_class(error, &error_class);
  throw Error(Status(code_of(error_class), fmt::format("{}: {}", call, words.data())));
}

}  // namespace hanji::comm::mpi
