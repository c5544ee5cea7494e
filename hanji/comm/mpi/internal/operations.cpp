#include "hanji/comm/mpi/internal/operations.h"

#include "hanji/base/status.h"
#include "hanji/shm/reduce.h"

namespace hanji::comm::mpi {
namespace {

using schedule::ReduceOp;

template <DType kType, ReduceOp kOp>
void combine(void* in, void* in_and_out, int* count, MPI_Datatype* /*type*/) {
  constexpr int kPair[] = {0, 1, -1};
  const void* const from[] = {in, in_and_out};
  void* const to[] = {in_and_out};
  shm::reduce(kType, kOp, from, kPair, to, *count);
}

struct Definition {
  DType dtype;
  ReduceOp op;
  MPI_User_function* function;
};

template <DType kType, ReduceOp kOp>
constexpr Definition define() {
  return {kType, kOp, combine<kType, kOp>};
}

constexpr Definition kDefinitions[] = {
    define<DType::kBFloat16, ReduceOp::kSum>(),  define<DType::kFloat16, ReduceOp::kSum>(),
    define<DType::kBFloat16, ReduceOp::kProd>(), define<DType::kFloat16, ReduceOp::kProd>(),
    define<DType::kBFloat16, ReduceOp::kMin>(),  define<DType::kFloat16, ReduceOp::kMin>(),
    define<DType::kBFloat16, ReduceOp::kMax>(),  define<DType::kFloat16, ReduceOp::kMax>(),
    define<DType::kFloat32, ReduceOp::kMin>(),   define<DType::kFloat64, ReduceOp::kMin>(),
    define<DType::kFloat32, ReduceOp::kMax>(),   define<DType::kFloat64, ReduceOp::kMax>(),
};

MPI_Op predefined(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return MPI_SUM;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kBitAnd: return MPI_BAND;
    case ReduceOp::kBitOr: return MPI_BOR;
    case ReduceOp::kBitXor: return MPI_BXOR;
    case ReduceOp::kPremulSum: break;  // choose() refuses it
  }
  throw Error(base::internal("unknown reduction"));
}

}  // namespace

Operations::Operations() {
  check(MPI_Type_contiguous(2, MPI_BYTE, &half_), "MPI_Type_contiguous");
  check(MPI_Type_commit(&half_), "MPI_Type_commit");
  for (const Definition& one : kDefinitions) {
    own_.push_back({one.dtype, one.op, MPI_OP_NULL});
    check(MPI_Op_create(one.function, 1, &own_.back().handle), "MPI_Op_create");
  }
}

Operations::~Operations() {
  for (Own& own : own_) MPI_Op_free(&own.handle);
  MPI_Type_free(&half_);
}

MPI_Datatype Operations::type(DType dtype) const {
  switch (dtype) {
    case DType::kFloat64: return MPI_DOUBLE;
    case DType::kFloat32: return MPI_FLOAT;
    case DType::kBFloat16:
    case DType::kFloat16: return half_;
    case DType::kInt32: return MPI_INT32_T;
    case DType::kInt64: return MPI_INT64_T;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return MPI_UINT8_T;  // moved only; choose() reduces them by our lists
  }
  throw Error(base::internal("unknown DType"));
}

MPI_Op Operations::op(ReduceOp op, DType dtype) const {
  const ReduceOp wanted = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
  for (const Own& own : own_) {
    if (own.dtype == dtype && own.op == wanted) return own.handle;
  }
  return predefined(op);
}

}  // namespace hanji::comm::mpi
