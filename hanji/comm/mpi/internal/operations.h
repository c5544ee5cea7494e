#pragma once

#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/comm/mpi/internal/call.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm::mpi {

/// Element types and reductions in the words of MPI. Where MPI has no type (16-bit floats), or an
/// operation that may lose a NaN (min and max), by operations of our own over shm::reduce().
class Operations {
 public:
  Operations();
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  MPI_Datatype type(DType dtype) const;
  /// kAvg is summed here; who asked for it divides.
  MPI_Op op(schedule::ReduceOp op, DType dtype) const;

 private:
  struct Own {
    DType dtype;
    schedule::ReduceOp op;
    MPI_Op handle;
  };

  MPI_Datatype half_ = MPI_DATATYPE_NULL;  ///< Two bytes that only our operations read.
  std::vector<Own> own_;
};

}  // namespace hanji::comm::mpi
