/* mpi_allreduce.c - Open MPI's all-reduce between two processes, timed as
 * `manta bench comm` times ours: one JSON object a line.
 *
 *     mpicc -O3 mpi_allreduce.c -o mpi_allreduce && mpirun -np 2 ./mpi_allreduce */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM = 3 };

static int time_size(int n, int rounds, int rank)
{
    float *in = malloc(sizeof *in * (size_t)n), *out = malloc(sizeof *out * (size_t)n);
    double begin = 0, ms;
    int wrong = 0;

    for (int i = 0; i < n; i++) in[i] = (float)(i % 1000 + rank);
    for (int i = -WARM; i < rounds; i++) {
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    ms = (MPI_Wtime() - begin) * 1e3 / rounds;
    for (int i = 0; i < n; i++) wrong |= out[i] != (float)(2 * (i % 1000) + 1);
    if (rank == 0) printf("{\"row\": \"all-reduce\", \"floats\": %d, \"ms\": %.6f}\n", n, ms);
    free(in);
    free(out);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    wrong |= time_size(1024, 20000, rank);
    wrong |= time_size(256 * 1024, 500, rank);
    wrong |= time_size(2779658, 60, rank);
    wrong |= time_size(11181642, 30, rank);
    MPI_Finalize();
    return wrong;
}
