/* files.c - bench_files [--mb N] [--rounds R] [FOLDER]: how fast weights come
 * from the file cache and go to the disk, beside what the disk itself takes
 * (plain writes of 1 MiB and one fsync, as dd conv=fsync does).
 *
 * Every figure is the median of the rounds; ways of writing alternate, so that
 * a disk that slows down slows all of them. What was read is checked. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/file.h>
#include <manta/layer.h>

#include "base/clock.h"
#include "base/mem.h"
#include "format/safetensors/safetensors.h"
#include "format/torch/pt.h"

enum { TENSORS = 64, MOST_ROUNDS = 31 };

typedef struct job {
    int n;
    manta_column columns[TENSORS];
    char names[TENSORS][16];
    size_t bytes;
    manta_model *model; /* whose weights the same arrays are */
    manta_column weights[TENSORS];
    double sum; /* of the first element of every page's worth: what a reader must find */
    char path[4096];
} job;

static void end(const char *what)
{
    fprintf(stderr, "bench_files: %s\n", what);
    exit(1);
}

static double sample_sum(const manta_array *a)
{
    const float *x = a->data;
    double sum = 0;

    for (int64_t i = 0; i < manta_array_count(a); i += 1024) sum += (double)x[i];
    return sum;
}

static void make(job *j, int64_t mb)
{
    int64_t n = mb * (1 << 20) / 4 / TENSORS;
    uint32_t h = 1;

    for (int i = 0; i < TENSORS; i++) {
        float *x = mem_try_raw((size_t)n * 4);
        if (!x) end("no memory for the arrays");
        for (int64_t k = 0; k < n; k++) {
            h = h * 1664525 + 1013904223;
            x[k] = (float)(h >> 8) * 0x1p-24f;
        }
        snprintf(j->names[i], sizeof j->names[i], "layer%02d", i);
        j->columns[i] = (manta_column){j->names[i], manta_array_of(MANTA_DTYPE_F32, 1, &n, x)};
        j->sum += sample_sum(&j->columns[i].array);
    }
    j->n = TENSORS;
    j->bytes = (size_t)n * 4 * TENSORS;
}

/* A chain of dense layers, wide and narrow in turn, each with as many weights as an array has. */
static void make_model(job *j)
{
    const int64_t narrow = 1024, wide = manta_array_count(&j->columns[0].array) / narrow;

    j->model = manta_model_new("chain");
    manta_input(j->model, "x", MANTA_DTYPE_F32, 1, &narrow);
    for (int i = 0; i < TENSORS; i++) {
        manta_model_add(j->model, manta_dense(j->model, (manta_dense_options){.units = i % 2 ? narrow : wide,
                                                                              .no_bias = true}));
    }
    if (manta_model_build(j->model)) end(manta_error_text());
    for (int i = 0; i < TENSORS; i++) {
        manta_variable_info v = manta_model_variable(j->model, i);
        j->weights[i] = (manta_column){
            v.name, manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, j->columns[i].array.data)};
    }
}

static void write_keras(job *j)
{
    manta_contents c = {.model = j->model, .n_arrays = TENSORS, .arrays = j->weights};

    if (manta_file_write(j->path, "keras", &c)) end(manta_error_text());
}

static void read_keras(job *j)
{
    manta_saved *s = NULL;
    double sum = 0;

    if (manta_file_read(j->path, &(manta_read_options){.format = "keras"}, &s)) end(manta_error_text());
    for (int i = 0; i < manta_saved_arrays(s); i++) sum += sample_sum(&manta_saved_at(s, i)->array);
    if (sum != j->sum) end("keras: what was read is not what was written");
    manta_saved_free(s);
}

static void write_plain(job *j)
{
    int fd = open(j->path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd < 0) end(strerror(errno));
    for (int i = 0; i < j->n; i++) {
        const char *p = j->columns[i].array.data;
        size_t left = manta_array_bytes(&j->columns[i].array);
        while (left) {
            ssize_t put = write(fd, p, left < 1 << 20 ? left : 1 << 20);
            if (put < 0) end(strerror(errno));
            p += put;
            left -= (size_t)put;
        }
    }
    if (fsync(fd) || close(fd)) end(strerror(errno));
}

static void write_safetensors(job *j)
{
    if (safetensors_write(j->path, j->n, j->columns, 0, NULL)) end(manta_error_text());
}

static void write_pt(job *j)
{
    if (pt_write(j->path, j->n, j->columns)) end(manta_error_text());
}

/* All elements of a mapping are asked for, or it would cost nothing. */
static void read_safetensors(job *j, manta_status (*way)(const char *, safetensors *))
{
    safetensors s = {0};
    double sum = 0;

    if (way(j->path, &s)) end(manta_error_text());
    for (int i = 0; i < s.n; i++) {
        manta_array a;
        if (safetensors_array(&s, i, &a)) end(manta_error_text());
        sum += sample_sum(&a);
    }
    if (sum != j->sum) end("safetensors: what was read is not what was written");
    safetensors_release(&s);
}

static void read_copy(job *j)
{
    read_safetensors(j, safetensors_read);
}

static void read_map(job *j)
{
    read_safetensors(j, safetensors_map);
}

static void read_pt(job *j)
{
    pt_file f = {0};
    double sum = 0;

    if (pt_read(j->path, &f)) end(manta_error_text());
    for (int i = 0; i < (int)f.tensors.n; i++) {
        manta_array a;
        if (pt_array(&f, i, &a)) end(manta_error_text());
        sum += sample_sum(&a);
    }
    if (sum != j->sum) end("pt: what was read is not what was written");
    pt_release(&f);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double time_of(job *j, void (*fn)(job *))
{
    int64_t start = clock_now_ns();

    fn(j);
    return (double)(clock_now_ns() - start) * 1e-9;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(job *);
        void (*read[2])(job *);
        const char *read_names[2];
    } ways[] = {{"plain, as dd conv=fsync", write_plain, {NULL, NULL}, {NULL, NULL}},
                {"safetensors", write_safetensors, {read_copy, read_map}, {"read", "map"}},
                {"pt", write_pt, {read_pt, NULL}, {"read, checksums checked", NULL}},
                {"keras", write_keras, {read_keras, NULL}, {"read, checksums checked", NULL}}};
    enum { WAYS = sizeof ways / sizeof *ways };
    double took[WAYS][3][MOST_ROUNDS] = {0}, base = 0;
    const char *folder = ".";
    int64_t mb = 256;
    int rounds = 5;
    job *j = mem_new(sizeof *j);

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--mb") && i + 1 < argc) {
            mb = strtoll(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc) {
            rounds = (int)strtol(argv[++i], NULL, 10);
        } else {
            folder = argv[i];
        }
    }
    if (mb < 1 || rounds < 1 || rounds > MOST_ROUNDS)
        end("usage: bench_files [--mb N] [--rounds 1..31] [FOLDER]");
    snprintf(j->path, sizeof j->path, "%s/bench_files.%ld", folder, (long)getpid());
    make(j, mb);
    make_model(j);
    for (int r = 0; r < rounds; r++) {
        for (int w = 0; w < WAYS; w++) {
            unlink(j->path); /* the same work for all: none replaces a file */
            took[w][0][r] = time_of(j, ways[w].write);
            for (int k = 0; k < 2; k++) {
                if (ways[w].read[k]) took[w][1 + k][r] = time_of(j, ways[w].read[k]);
            }
        }
    }
    unlink(j->path);
    for (int w = 0; w < WAYS; w++) {
        for (int k = 0; k < 3; k++) {
            double rate;
            if (k > 0 && !ways[w].read[k - 1]) continue;
            qsort(took[w][k], (size_t)rounds, sizeof(double), by_value);
            rate = (double)j->bytes / took[w][k][rounds / 2] * 1e-9;
            if (w == 0) base = rate;
            printf("%-24s %-24s %6.2f GB/s", ways[w].name, k ? ways[w].read_names[k - 1] : "write", rate);
            if (k == 0 && w > 0) printf("  %3.0f %% of the plain write", 100 * rate / base);
            printf("\n");
        }
    }
    manta_model_free(j->model);
    for (int i = 0; i < j->n; i++) mem_try_free(j->columns[i].array.data);
    mem_free(j);
    return 0;
}
