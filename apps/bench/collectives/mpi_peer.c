/* The MPI side of `rondo bench collectives`: a program under mpiexec that does what it is told. Built as rondo-bench-openmpi for
 * the MPI that the build found, and by bench/best_mpi.py for others.
 *
 *   rondo-bench-openmpi DIRECTORY
 *
 * Rank r reads one command a line from the FIFO DIRECTORY/command.r, so that it sleeps while another system is measured; rank 0
 * answers each with one line in DIRECTORY/answer. All values are float32.
 *   prepare OPERATION BYTES FRESH    answer: 1 or 0 (results were right), and a rough time of one operation in us
 *   run BATCH SAMPLES                answer: done
 *   finish                           answer: p50 and minimum in us of the slowest rank, number of samples
 *   quit
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRESH_SETS = 4, WARM_UPS = 5, LINE = 256 };

static int rank, ranks;
static char operation[64];
static int fresh, sets, next_set, total, part;
static float *input[FRESH_SETS], *output[FRESH_SETS];
static double *samples;
static int sample_count, sample_room;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int is(const char* name) { return strcmp(operation, name) == 0; }

/* Rank r stays on the r-th processor it may use, as rondo's own ranks do. */
static void pin(void) {
  cpu_set_t allowed, mine;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof(mine), &mine);
    return;
  }
}

static void operate(int set) {
  float *in = input[set], *out = output[set];
  if (is("all_reduce")) {
    MPI_Allreduce(MPI_IN_PLACE, in, total, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is("broadcast")) {
    MPI_Bcast(in, total, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is("reduce")) {
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : in, in, total, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  } else if (is("all_gather")) {
    MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is("reduce_scatter")) {
    MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is("all_to_all")) {
    MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is("gather")) {
    MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is("scatter")) {
    MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is("send_recv")) {
    int peer = rank ^ 1;
    if (peer >= ranks) return;
    if (rank < peer) MPI_Send(in, total, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(in, total, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank > peer) MPI_Send(in, total, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
  } else if (is("barrier")) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static float pattern(int of_rank, int place) { return (float)(place % 7 + of_rank + 1); }

static float summed(int place) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += pattern(r, place);
  return sum;
}

/* The value that place i of this rank's result must have; `found` where the operation leaves it open. */
static float expected(int i, float found) {
  if (is("all_reduce") || (is("reduce") && rank == 0)) return summed(i);
  if (is("broadcast")) return pattern(0, i);
  if (is("all_gather") || (is("gather") && rank == 0)) return pattern(i / part, i % part);
  if (is("reduce_scatter")) return summed(rank * part + i);
  if (is("all_to_all")) return pattern(i / part, rank * part + i % part);
  if (is("scatter")) return pattern(0, rank * part + i);
  if (is("send_recv") && (rank ^ 1) < ranks) return pattern(rank & ~1, i);
  return found;
}

static int correct(int set) {
  for (int i = 0; i < total; ++i) input[set][i] = pattern(rank, i);
  operate(set);
  int in_place = is("all_reduce") || is("broadcast") || is("reduce") || is("send_recv") || is("barrier");
  int one_part = is("reduce_scatter") || is("scatter");
  const float* result = in_place ? input[set] : output[set];
  int right = 1;
  for (int i = 0; i < (one_part ? part : total); ++i) right &= result[i] == expected(i, result[i]);
  memset(input[set], 0, (size_t)total * sizeof(float));
  return right;
}

static void free_buffers(void) {
  for (int set = 0; set < sets; ++set) {
    free(input[set]);
    free(output[set]);
  }
  sets = 0;
}

static void prepare(long bytes, FILE* answer) {
  free_buffers();
  total = (int)(bytes / (long)sizeof(float));
  part = total / ranks;
  sets = fresh ? FRESH_SETS : 1;
  int right = 1;
  for (int set = 0; set < sets; ++set) {
    input[set] = calloc((size_t)total + 1, sizeof(float));
    output[set] = calloc((size_t)total + 1, sizeof(float));
    if (input[set] == NULL || output[set] == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    right &= correct(set);
  }
  for (int i = 0; i < WARM_UPS; ++i) operate(0);
  double start = now_us();
  for (int i = 0; i < 3; ++i) operate(0);
  double estimate = (now_us() - start) / 3;
  int all_right = 0;
  MPI_Reduce(&right, &all_right, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) fprintf(answer, "%d %.3f\n", all_right, estimate);
}

static void run(int batch, int count) {
  if (sample_count + count > sample_room) {
    sample_room = 2 * (sample_count + count);
    samples = realloc(samples, (size_t)sample_room * sizeof(double));
    if (samples == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int sample = 0; sample < count; ++sample) {
    double start;
    int operations = fresh ? 1 : batch;
    if (fresh) {
      int set = next_set++ % sets;
      for (int i = 0; i < total; ++i) input[set][i] = 1;
      MPI_Barrier(MPI_COMM_WORLD);
      start = now_us();
      operate(set);
    } else {
      start = now_us();
      for (int i = 0; i < batch; ++i) operate(0);
    }
    samples[sample_count++] = (now_us() - start) / operations * (is("send_recv") ? 0.5 : 1);
  }
}

static int ascending(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void finish(FILE* answer) {
  double mine[2] = {0, 0}, slowest[2];
  if (sample_count > 0) {
    qsort(samples, (size_t)sample_count, sizeof(double), ascending);
    mine[0] = samples[sample_count / 2];
    mine[1] = samples[0];
  }
  MPI_Reduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) fprintf(answer, "%.4f %.4f %d\n", slowest[0], slowest[1], sample_count);
  sample_count = 0;
  free_buffers();
}

static FILE* open_fifo(const char* directory, const char* name, int number, const char* mode) {
  char path[4096];
  if (number >= 0) {
    snprintf(path, sizeof(path), "%s/%s.%d", directory, name, number);
  } else {
    snprintf(path, sizeof(path), "%s/%s", directory, name);
  }
  FILE* file = fopen(path, mode);
  if (file == NULL) {
    perror(path);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return file;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 2) {
    if (rank == 0) fprintf(stderr, "rondo-bench-openmpi is started by `rondo bench collectives --peers`\n");
    MPI_Finalize();
    return 2;
  }
  pin();
  FILE* commands = open_fifo(argv[1], "command", rank, "r");
  FILE* answer = rank == 0 ? open_fifo(argv[1], "answer", -1, "w") : NULL;
  char line[LINE];
  while (fgets(line, sizeof(line), commands) != NULL && strncmp(line, "quit", 4) != 0) {
    long bytes;
    int batch, count;
    if (sscanf(line, "prepare %63s %ld %d", operation, &bytes, &fresh) == 3) {
      prepare(bytes, answer);
    } else if (sscanf(line, "run %d %d", &batch, &count) == 2) {
      run(batch, count);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) fprintf(answer, "done\n");
    } else if (strncmp(line, "finish", 6) == 0) {
      finish(answer);
    }
    if (rank == 0) fflush(answer);
  }
  free_buffers();
  free(samples);
  MPI_Finalize();
  return 0;
}
