/* device_tiles.c - how operations are cut into tiles, and which size of tile is taken. */
#include "tensor/device_tiles.h"

/* What a tile costs, in tenths of nanoseconds as they were measured on one H200: to begin, and for each element of
 * its chains; where it has a multiprocessor for itself and waits for its own chains, and where many share one. */
typedef struct tile_cost {
    int lone_start, lone_step, shared_start, shared_step;
} tile_cost;

typedef struct tile_size {
    int rows, cols, depth, threads;
} tile_size;

enum {
    TILES_ABREAST = 128, /* multiprocessors that are to be filled, of whichever GPU */
    TILE_LEAST_SAMPLES = 4, /* rows of a tile: with fewer, single outputs are as good */
};

static const tile_cost costs[DEV_TILE_COUNT] = {{62000, 65, 6700, 25},
                                                {64600, 80, 7900, 31},
                                                {91100, 204, 12400, 82},
                                                {99100, 287, 32700, 301},
                                                {176100, 636, 39500, 697}};

static const tile_size sizes[] = {
#define SIZE(name, rows, cols, depth, high, wide) {rows, cols, depth, TILE_THREADS_##name},
    DEV_TILE_SIZES(SIZE)
#undef SIZE
};

static const dev_tiling none = {DEV_COUNT, 0};

/* Products that lie side by side, all of one shape. */
typedef struct tile_product {
    int64_t rows, cols, depth, n;
} tile_product;

static int64_t count_blocks(const tile_product *p, int size)
{
    const tile_size *t = &sizes[size];

    return p->n * ((p->rows + t->rows - 1) / t->rows) * ((p->cols + t->cols - 1) / t->cols);
}

/* Tenths of nanoseconds until all blocks are done. */
static int64_t estimate_cost(const tile_product *p, int size)
{
    const tile_size *t = &sizes[size];
    const tile_cost *c = &costs[size];
    int64_t depth = (p->depth + t->depth - 1) / t->depth * t->depth;
    int64_t lone = c->lone_start + depth * c->lone_step;
    int64_t together = (c->shared_start + depth * c->shared_step) * count_blocks(p, size) / TILES_ABREAST;

    return lone > together ? lone : together;
}

static int find_cheapest(const tile_product *p)
{
    int best = 0;

    for (int i = 1; i < DEV_TILE_COUNT; i++) {
        if (estimate_cost(p, i) < estimate_cost(p, best)) best = i;
    }
    return best;
}

static bool fits_index(int64_t elements)
{
    return elements < INT32_MAX;
}

static dev_tiling tile_by(const tile_product *p, int first_kernel, int size)
{
    int64_t blocks = count_blocks(p, size);

    return fits_index(blocks) ? (dev_tiling){first_kernel + size, blocks} : none;
}

/* ---- gemm ---- */

static tile_product gemm_product(const gemm_args *a)
{
    return (tile_product){.rows = a->m, .cols = a->n, .depth = a->k, .n = 1};
}

static bool gemm_fits(const gemm_args *a)
{
    return !(a->ta && a->tb) && fits_index((a->ta ? a->k : a->m) * a->lda) &&
           fits_index((a->tb ? a->n : a->k) * a->ldb) && fits_index(a->m * a->ldc);
}

dev_tiling dev_gemm_by(const gemm_args *a, int size)
{
    tile_product p = gemm_product(a);

    if (!gemm_fits(a)) return none;
    return tile_by(&p, a->ta ? DEV_gemm_ta_8 : a->tb ? DEV_gemm_tb_8 : DEV_gemm_8, size);
}

dev_tiling dev_gemm_tiling(const gemm_args *a)
{
    tile_product p = gemm_product(a);
    dev_tiling t = dev_gemm_by(a, find_cheapest(&p));

    return t.kernel == DEV_COUNT ? (dev_tiling){DEV_gemm, a->m * a->n} : t;
}

/* ---- convolutions ---- */

static int64_t weight_count(const conv_shape *s)
{
    return s->kh * s->kw * (s->c / s->groups) * s->oc;
}

static bool conv_fits(const conv_shape *s)
{
    return s->groups == 1 && fits_index(s->n * s->h * s->w * s->c) &&
           fits_index(s->n * s->oh * s->ow * s->oc) && fits_index(weight_count(s));
}

static tile_product forward_product(const conv_shape *s)
{
    return (tile_product){.rows = s->n, .cols = s->oc, .depth = s->kh * s->kw * s->c, .n = s->oh * s->ow};
}

dev_tiling dev_conv_forward_by(const conv_args *a, int size)
{
    tile_product p = forward_product(&a->s);

    return conv_fits(&a->s) ? tile_by(&p, DEV_conv_forward_8, size) : none;
}

dev_tiling dev_conv_forward_tiling(const conv_args *a)
{
    const conv_shape *s = &a->s;
    tile_product p = forward_product(s);
    dev_tiling t = s->n < TILE_LEAST_SAMPLES ? none : dev_conv_forward_by(a, find_cheapest(&p));

    return t.kernel == DEV_COUNT ? (dev_tiling){DEV_conv_forward, s->n * s->oh * s->ow * s->oc} : t;
}

/* Strides share the taps out among the places of x. */
static tile_product data_product(const conv_shape *s)
{
    int64_t taps = s->kh * s->kw / (s->sh * s->sw);

    return (tile_product){
        .rows = s->n, .cols = s->c, .depth = (taps > 1 ? taps : 1) * s->oc, .n = s->h * s->w};
}

dev_tiling dev_conv_data_by(const conv_args *a, int size)
{
    tile_product p = data_product(&a->s);

    return conv_fits(&a->s) ? tile_by(&p, DEV_conv_data_8, size) : none;
}

dev_tiling dev_conv_data_tiling(const conv_args *a)
{
    const conv_shape *s = &a->s;
    tile_product p = data_product(s);
    dev_tiling t = s->n < TILE_LEAST_SAMPLES ? none : dev_conv_data_by(a, find_cheapest(&p));

    return t.kernel == DEV_COUNT ? (dev_tiling){DEV_conv_data, s->n * s->h * s->w * s->c} : t;
}

static tile_product weights_product(const conv_args *a)
{
    const conv_shape *s = &a->s;

    int64_t taps = s->kh * s->kw;

    return (tile_product){.rows = a->counts_padding ? taps * s->c : s->c,
                          .cols = s->oc,
                          .depth = (s->n < a->chunk ? s->n : a->chunk) * s->oh * s->ow,
                          .n = a->counts_padding ? a->chunks : a->chunks * taps};
}

/* Whether no tap meets padding. */
static bool has_its_padding(const conv_shape *s)
{
    return s->top == 0 && s->left == 0 && (s->oh - 1) * s->sh + (s->kh - 1) * s->dh < s->h &&
           (s->ow - 1) * s->sw + (s->kw - 1) * s->dw < s->w;
}

dev_tiling dev_conv_weights_by(const conv_args *a, int size)
{
    tile_product p = weights_product(a);

    if (!conv_fits(&a->s) || (a->counts_padding && !has_its_padding(&a->s))) return none;
    return tile_by(&p, DEV_conv_weights_8, size);
}

dev_tiling dev_conv_weights_tiling(const conv_args *a)
{
    tile_product p = weights_product(a);
    dev_tiling t = dev_conv_weights_by(a, find_cheapest(&p));

    return t.kernel == DEV_COUNT ? (dev_tiling){DEV_conv_weights, a->chunks * weight_count(&a->s)} : t;
}

/* ---- launching ---- */

int dev_kernel_threads(int kernel)
{
    static const int mma[] = {MMA_THREADS_64, MMA_THREADS_128};
    int tiles = DEV_gemm_8, products = DEV_tf32_forward_64, sums = DEV_quick_moments;

    if (kernel < tiles || kernel >= DEV_COUNT) return 0;
    if (kernel < products) return sizes[(kernel - tiles) % DEV_TILE_COUNT].threads;
    return kernel < sums ? mma[(kernel - products) % 2] : SUM_THREADS;
}
