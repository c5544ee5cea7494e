/* Ranks of an MPI that `hanji bench --peer` times beside ours: each answers the requests that come
 * to FOLDER/request.RANK; hanji/report/bench_request.h says what their words mean. Requests come
 * from a pipe per rank and not from stdin, which launchers give to rank 0 only. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPeriod = 997, kLine = 64 };

struct request {
  char routine[32], dtype[16], op[16], engine[16], placement[16], table[4096];
  long count, slots, scrub, calls, warmup;
  int root, in_place, refill, check, corrupt;
};

static int rank, ranks;
static struct request r;
static MPI_Datatype type;
static MPI_Op op;
static size_t width;
static double table[65][kPeriod];
static char *memory, *scrubbed;
static size_t memory_bytes, scrubbed_bytes;
/* Elements of this rank's buffers, and where the shorter one lies in the longer one in place. */
static long num_in, num_out, offset;

static int is(const char *routine) { return strcmp(r.routine, routine) == 0; }

static long most(long a, long b) { return a > b ? a : b; }

static int parse(const char *line) {
  return sscanf(line, "measure %31s %ld %15s %15s %d %d %d %ld %ld %ld %ld %d %15s %15s %d %4095s",
                r.routine, &r.count, r.dtype, r.op, &r.root, &r.in_place, &r.refill, &r.slots,
                &r.scrub, &r.calls, &r.warmup, &r.check, r.engine, r.placement, &r.corrupt,
                r.table) == 16;
}

/* What MPI has no word for is an answer too. */
static const char *understand(void) {
  const struct {
    const char *name;
    MPI_Datatype type;
  } types[] = {{"float32", MPI_FLOAT},    {"float64", MPI_DOUBLE},   {"int32", MPI_INT32_T},
               {"int64", MPI_INT64_T}, {"uint8", MPI_UINT8_T},
               {"int8", MPI_INT8_T}};
  const struct {
    const char *name;
    MPI_Op op;
  } ops[] = {{"sum", MPI_SUM},      {"min", MPI_MIN},     {"max", MPI_MAX},     {"prod", MPI_PROD},
             {"bit_and", MPI_BAND}, {"bit_or", MPI_BOR}, {"bit_xor", MPI_BXOR}};
  type = MPI_DATATYPE_NULL;
  op = MPI_OP_NULL;
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i)
    if (strcmp(types[i].name, r.dtype) == 0) type = types[i].type;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i)
    if (strcmp(ops[i].name, r.op) == 0) op = ops[i].op;
  if (type == MPI_DATATYPE_NULL) return "MPI has no such type";
  if (op == MPI_OP_NULL) return "MPI has no such reduction";
  if (r.count * (long)ranks > INT32_MAX) return "MPI counts to 2^31 - 1 elements";
  int bytes;
  MPI_Type_size(type, &bytes);
  width = (size_t)bytes;
  return NULL;
}

static const char *read_table(void) {
  FILE *file = fopen(r.table, "rb");
  if (file == NULL) return "the table of values cannot be read";
  const size_t rows = fread(table, sizeof *table, (size_t)ranks + 1, file);
  fclose(file);
  return rows == (size_t)ranks + 1 ? NULL : "the table of values is short";
}

static void shape(void) {
  const long all = r.count * ranks;
  const int is_root = rank == r.root;
  num_in = num_out = r.count;
  offset = 0;
  if (is("reduce")) num_out = is_root ? r.count : 0;
  if (is("all_gather") || (is("gather") && is_root)) num_out = all, offset = rank * r.count;
  if (is("gather") && !is_root) num_out = 0;
  if (is("reduce_scatter") || (is("scatter") && is_root)) num_in = all, offset = rank * r.count;
  if (is("scatter") && !is_root) num_in = 0;
  if (is("all_to_all")) num_in = num_out = all;
  if (is("send")) {
    num_in = is_root ? r.count : 0;
    num_out = rank == (r.root + 1) % ranks ? r.count : 0;
  }
  if (is("barrier")) num_in = num_out = 0;
  if (is("reduce_scatter") && r.in_place) offset = 0; /* MPI leaves the result at the start */
}

static void store(char *to, double value) {
  if (type == MPI_FLOAT) { float v = (float)value; memcpy(to, &v, sizeof v); }
  if (type == MPI_DOUBLE) memcpy(to, &value, sizeof value);
  if (type == MPI_INT32_T) { int32_t v = (int32_t)value; memcpy(to, &v, sizeof v); }
  if (type == MPI_INT64_T) { int64_t v = (int64_t)value; memcpy(to, &v, sizeof v); }
  if (type == MPI_INT8_T) { int8_t v = (int8_t)value; memcpy(to, &v, sizeof v); }
  if (type == MPI_UINT8_T) { uint8_t v = (uint8_t)value; memcpy(to, &v, sizeof v); }
}

static char tile[64 * kPeriod * 8];
static int tile_row = -1;
static MPI_Datatype tile_type;
static char tile_table[4096];

static const char *tile_of(int row) {
  if (row != tile_row || type != tile_type || strcmp(tile_table, r.table) != 0) {
    for (long i = 0; i < 64 * kPeriod; ++i) store(tile + i * width, table[row][i % kPeriod]);
    tile_row = row;
    tile_type = type;
    strcpy(tile_table, r.table);
  }
  return tile;
}

static void fill(char *to, long count, int row) {
  const char *from = tile_of(row);
  while (count > 0) {
    const long piece = count < 64 * kPeriod ? count : 64 * kPeriod;
    memcpy(to, from, piece * width);
    to += piece * width;
    count -= piece;
  }
}

static long num_wrong(const char *values, long count, int row, long phase) {
  const char *due = tile_of(row);
  long wrong = 0;
  long at = phase % kPeriod;
  while (count > 0) {
    const long piece = count < 64 * kPeriod - at ? count : 64 * kPeriod - at;
    if (memcmp(values, due + at * width, piece * width) != 0)
      for (long i = 0; i < piece; ++i)
        wrong += memcmp(values + i * width, due + (at + i) * width, width) != 0;
    values += piece * width;
    count -= piece;
    at = 0;
  }
  return wrong;
}

static long check(const char *out) {
  const long n = r.count;
  if (num_out == 0) return 0;
  if (is("all_reduce") || is("reduce")) return num_wrong(out, n, ranks, 0);
  if (is("reduce_scatter")) return num_wrong(out, n, ranks, rank * n);
  if (is("broadcast") || is("send")) return num_wrong(out, n, r.root, 0);
  if (is("scatter")) return num_wrong(out, n, r.root, rank * n);
  long wrong = 0;
  for (int from = 0; from < ranks; ++from)
    wrong += num_wrong(out + from * n * width, n, from, is("all_to_all") ? rank * n : 0);
  return wrong;
}

static void call(char *in, char *out) {
  const int n = (int)r.count;
  const MPI_Comm world = MPI_COMM_WORLD;
  const int is_root = rank == r.root;
  void *in_place = r.in_place ? MPI_IN_PLACE : in;
  if (is("all_reduce")) MPI_Allreduce(in_place, out, n, type, op, world);
  if (is("broadcast")) MPI_Bcast(out, n, type, r.root, world);
  if (is("reduce")) MPI_Reduce(is_root ? in_place : in, out, n, type, op, r.root, world);
  if (is("all_gather")) MPI_Allgather(in_place, n, type, out, n, type, world);
  if (is("gather")) MPI_Gather(is_root ? in_place : in, n, type, out, n, type, r.root, world);
  if (is("scatter"))
    MPI_Scatter(in, n, type, is_root && r.in_place ? MPI_IN_PLACE : out, n, type, r.root, world);
  if (is("reduce_scatter")) MPI_Reduce_scatter_block(in_place, out, n, type, op, world);
  if (is("all_to_all")) MPI_Alltoall(in_place, n, type, out, n, type, world);
  if (is("send")) {
    const int to = (r.root + 1) % ranks;
    if (is_root) MPI_Ssend(in, n, type, to, 0, world);
    if (rank == to) MPI_Recv(out, n, type, r.root, 0, world, MPI_STATUS_IGNORE);
  }
  if (is("barrier")) MPI_Barrier(world);
}

static char *grow(char *block, size_t *have, size_t want) {
  if (*have >= want) return block;
  free(block);
  block = aligned_alloc(kLine, (want + kLine - 1) / kLine * kLine);
  if (block == NULL) MPI_Abort(MPI_COMM_WORLD, 4);
  memset(block, 0, want);
  *have = want;
  return block;
}

static void measure(FILE *answers) {
  const size_t lines = (num_in * width + kLine - 1) / kLine * kLine;
  const size_t second = r.in_place ? 0 : lines;
  const size_t stride =
      (most(lines, second + most(num_in * r.in_place, num_out) * width) + kLine) / kLine * kLine;
  memory = grow(memory, &memory_bytes, stride * (size_t)r.slots);
  const size_t inset = r.in_place ? offset * width : 0;
  const size_t in_at = num_in < num_out ? inset : 0;
  const size_t out_at = second + (num_in < num_out ? 0 : inset);
  for (long slot = 0; slot < r.slots; ++slot) {
    char *base = memory + slot * stride;
    if (r.check) memset(base + out_at, 0xA5, num_out * width);
    fill(base + in_at, num_in, rank);
  }
  if (r.scrub > 0) {
    scrubbed = grow(scrubbed, &scrubbed_bytes, (size_t)r.scrub);
    memset(scrubbed, scrubbed[0] + 1, (size_t)r.scrub);
  }
  char *base = memory;
  for (long i = 0; i < r.warmup + r.calls; ++i) {
    base = memory + i % r.slots * stride;
    if (r.refill && i > 0) fill(base + in_at, num_in, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    call(base + in_at, base + out_at);
    const double seconds = MPI_Wtime() - start;
    if (i >= r.warmup) fprintf(answers, "%.9f ", seconds);
  }
  fprintf(answers, "wrong %ld\n", r.check ? check(base + out_at) : 0);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char path[4096];
  if (argc != 2 || ranks > 64) return 2;
  snprintf(path, sizeof path, "%s/request.%d", argv[1], rank);
  FILE *requests = fopen(path, "r");
  snprintf(path, sizeof path, "%s/answer.%d", argv[1], rank);
  FILE *answers = fopen(path, "w");
  if (requests == NULL || answers == NULL) return 2;
  static char line[8192];
  while (fgets(line, sizeof line, requests) != NULL) {
    const char *trouble = parse(line) ? understand() : "no request of a bench";
    if (trouble == NULL) trouble = read_table();
    if (trouble == NULL) shape();
    if (trouble == NULL)
      measure(answers);
    else
      fprintf(answers, "error %s\n", trouble);
    fflush(answers);
  }
  MPI_Finalize();
  return 0;
}
