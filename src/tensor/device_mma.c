/* device_mma.c - convolutions and dense products as products on tensor cores: their sizes and their parts. */
#include "tensor/device_mma.h"

enum {
    SIZE_COUNT = 2,
    BLOCKS_WANTED = 132, /* multiprocessors that are to be filled, of whichever GPU */
    SLABS_LEAST = 4, /* of a part: a part costs as much as that to begin and to add */
    SPLITS_MOST = 128,
    SIDE_MOST = 1 << 13, /* of maps, kernels and strides: two of them are packed into one word */
};

static const int tile_rows[SIZE_COUNT] = {MMA_ROWS_64, MMA_ROWS_128};
static const int tile_cols[SIZE_COUNT] = {MMA_COLS_64, MMA_COLS_128};

static dev_divisor divisor_of(int64_t by)
{
    uint64_t d = by > 1 ? (uint64_t)by : 1;
    dev_divisor v = {.shift = 31};

    while ((uint64_t)1 << (v.shift - 31) < d) v.shift++;
    v.times = (uint32_t)((((uint64_t)1 << v.shift) + d - 1) / d);
    return v;
}

/* Kernels count in 32 bits, up to a tile beyond the last element. */
static bool count_fits(int64_t elements)
{
    return elements < INT32_MAX - 256;
}

static bool shape_fits(const conv_shape *s)
{
    const int64_t sides[] = {s->h,  s->w,  s->oh, s->ow, s->kh,  s->kw,
                             s->sh, s->sw, s->dh, s->dw, s->top, s->left};

    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        if (sides[i] >= SIDE_MOST) return false;
    }
    /* Padding behind the map is not bounded by its sides: the place of the last output is. */
    return s->groups == 1 && s->h > 0 && s->w > 0 && s->kh * s->dh < SIDE_MOST && s->kw * s->dw < SIDE_MOST &&
           (s->oh - 1) * s->sh < 2 * SIDE_MOST && (s->ow - 1) * s->sw < 2 * SIDE_MOST &&
           count_fits(s->n * s->h * s->w * s->c) && count_fits(s->n * s->oh * s->ow * s->oc) &&
           count_fits(s->kh * s->kw * s->c * s->oc) && s->n * s->oh * s->ow > 0 && s->c > 0 && s->oc > 0;
}

/* The taps of k along one axis that meet an input of some output: [*first, *first + count). */
static int64_t find_live(int64_t k, int64_t dilation, int64_t stride, int64_t before, int64_t in, int64_t out,
                         int64_t *first)
{
    int64_t lo = k, hi = 0;

    for (int64_t i = 0; i < k; i++) {
        bool meets = false;
        for (int64_t o = 0; o < out && !meets; o++) {
            int64_t at = o * stride - before + i * dilation;
            meets = at >= 0 && at < in;
        }
        if (!meets) continue;
        if (i < lo) lo = i;
        hi = i + 1;
    }
    *first = hi ? lo : 0;
    return hi ? hi - lo : 0;
}

/* All but the addresses. */
static mma_args shape_args(mma_op op, const conv_shape *s)
{
    int64_t first_h, first_w;
    int64_t down = find_live(s->kh, s->dh, s->sh, s->top, s->h, s->oh, &first_h);
    int64_t across = find_live(s->kw, s->dw, s->sw, s->left, s->w, s->ow, &first_w);
    bool data = op == MMA_DATA;
    mma_args a = {.h = (int32_t)(data ? s->oh : s->h),
                  .w = (int32_t)(data ? s->ow : s->w),
                  .channels = (int32_t)(data ? s->oc : s->c),
                  .cols = (int32_t)(data ? s->c : s->oc),
                  .sh = (int32_t)s->sh,
                  .sw = (int32_t)s->sw,
                  .dh = (int32_t)s->dh,
                  .dw = (int32_t)s->dw,
                  .top = (int32_t)s->top,
                  .left = (int32_t)s->left,
                  .kw = (int32_t)s->kw,
                  .first_h = (int32_t)first_h,
                  .first_w = (int32_t)first_w,
                  .across = (int32_t)across,
                  .taps = (int32_t)(down * across),
                  .walk_h = (int32_t)(data ? s->h : s->oh),
                  .walk_w = (int32_t)(data ? s->w : s->ow)};
    int64_t places = s->n * a.walk_h * a.walk_w;

    if (op == MMA_WEIGHTS) {
        a.first_h = a.first_w = 0;
        a.across = a.kw;
        a.rows = (int32_t)(s->kh * s->kw * s->c);
        a.depth = (int32_t)places;
    } else {
        a.rows = (int32_t)places;
        a.depth = (int32_t)(down * across * a.channels);
    }
    a.by_channels = divisor_of(a.channels);
    a.by_across = divisor_of(a.across);
    a.by_walk_h = divisor_of(a.walk_h);
    a.by_walk_w = divisor_of(a.walk_w);
    a.by_sh = divisor_of(a.sh);
    a.by_sw = divisor_of(a.sw);
    return a;
}

static bool on_four(dev_addr at, int64_t step)
{
    return at % 16 == 0 && step % 4 == 0;
}

static mma_args args_of(mma_op op, const conv_args *c)
{
    mma_args a = shape_args(op, &c->s);

    a.a = op == MMA_DATA ? c->dy : c->x;
    a.b = op == MMA_WEIGHTS ? c->dy : c->w;
    a.c = op == MMA_FORWARD ? c->y : op == MMA_DATA ? c->dx : c->dw;
    a.bias = op == MMA_FORWARD ? c->bias : 0;
    a.mask = op == MMA_DATA ? c->mask : 0;
    a.relu = op == MMA_FORWARD && c->relu;
    a.accumulate = op != MMA_FORWARD && c->accumulate;
    a.four_a = on_four(a.a, a.channels) && (op == MMA_WEIGHTS || a.taps <= MMA_TAPS);
    a.four_b = on_four(a.b, op == MMA_DATA ? a.channels : a.cols);
    return a;
}

static int64_t tiles_of(const mma_args *a, int size)
{
    return (int64_t)((a->rows + tile_rows[size] - 1) / tile_rows[size]) *
           ((a->cols + tile_cols[size] - 1) / tile_cols[size]);
}

static int32_t slabs_of(const mma_args *a)
{
    return (a->depth + MMA_DEPTH - 1) / MMA_DEPTH;
}

static int find_size(const mma_args *a)
{
    return tiles_of(a, 1) >= 2 * BLOCKS_WANTED ? 1 : 0;
}

/* As many parts as fill the device, and none shorter than SLABS_LEAST. */
static int find_splits(const mma_args *a, int size)
{
    int64_t n = BLOCKS_WANTED / tiles_of(a, size), most = slabs_of(a) / SLABS_LEAST;

    n = n < most ? n : most;
    return (int)(n < 1 ? 1 : n > SPLITS_MOST ? SPLITS_MOST : n);
}

static dev_mma product_of(mma_op op, mma_kind kind, mma_args a, int size, int splits)
{
    static const int first[2][3] = {{DEV_tf32_forward_64, DEV_tf32_data_64, DEV_tf32_weights_64},
                                    {DEV_bf16_forward_64, DEV_bf16_data_64, DEV_bf16_weights_64}};
    int32_t slabs = slabs_of(&a);
    dev_mma m = {.kernel = first[kind][op] + size};

    a.slabs = (slabs + splits - 1) / splits;
    if (a.slabs < 1) a.slabs = 1;
    a.splits = (slabs + a.slabs - 1) / a.slabs;
    if (a.splits < 1) a.splits = 1;
    m.blocks = tiles_of(&a, size) * a.splits;
    if (a.splits > 1) m.part_bytes = (size_t)a.splits * (size_t)a.rows * (size_t)a.cols * sizeof(float);
    m.args = a;
    return m;
}

dev_mma dev_mma_conv_by(mma_op op, mma_kind kind, const conv_args *c, int size, int splits)
{
    if (!shape_fits(&c->s)) return (dev_mma){.kernel = DEV_COUNT};
    return product_of(op, kind, args_of(op, c), size, splits);
}

dev_mma dev_mma_conv(mma_op op, mma_kind kind, const conv_args *c)
{
    mma_args a;
    int size;

    if (!shape_fits(&c->s)) return (dev_mma){.kernel = DEV_COUNT};
    a = args_of(op, c);
    size = find_size(&a);
    return product_of(op, kind, a, size, find_splits(&a, size));
}

conv_shape dev_mma_dense(int64_t m, int64_t n, int64_t k)
{
    return (conv_shape){.n = m,
                        .h = 1,
                        .w = 1,
                        .c = k,
                        .oh = 1,
                        .ow = 1,
                        .oc = n,
                        .kh = 1,
                        .kw = 1,
                        .sh = 1,
                        .sw = 1,
                        .dh = 1,
                        .dw = 1,
                        .groups = 1};
}

/* ---- shared memory ---- */

static size_t size_of_deep(int lines)
{
    return (size_t)lines * (MMA_DEPTH + MMA_GAP_DEEP);
}

static size_t size_of_flat(int lines)
{
    return (size_t)MMA_DEPTH * (size_t)(lines + MMA_GAP_FLAT);
}

size_t dev_kernel_shared(int kernel)
{
    int first = DEV_tf32_forward_64, size = (kernel - first) % SIZE_COUNT;
    mma_op op = (mma_op)((kernel - first) / SIZE_COUNT % 3);
    static const int slabs[SIZE_COUNT] = {MMA_SLABS_64, MMA_SLABS_128};
    size_t a, b;

    if (kernel < first || kernel > DEV_bf16_weights_128) return 0;
    a = op == MMA_WEIGHTS ? size_of_flat(tile_rows[size]) : size_of_deep(tile_rows[size]);
    b = op == MMA_DATA ? size_of_deep(tile_cols[size]) : size_of_flat(tile_cols[size]);
    return (size_t)slabs[size] * (a + b) * sizeof(float);
}

/* ---- sums ---- */

int64_t dev_sum_chunk(int64_t rows, int64_t c)
{
    int64_t tiles = (c + SUM_ACROSS - 1) / SUM_ACROSS, chunks = 2 * BLOCKS_WANTED / (tiles > 0 ? tiles : 1);
    int64_t chunk = chunks > 0 ? (rows + chunks - 1) / chunks : rows;

    chunk = (chunk + SUM_DOWN - 1) / SUM_DOWN * SUM_DOWN;
    return chunk < 4 * SUM_DOWN ? 4 * SUM_DOWN : chunk;
}

int64_t dev_sum_blocks(int64_t rows, int64_t c)
{
    int64_t chunk = dev_sum_chunk(rows, c), chunks = rows > 0 ? (rows + chunk - 1) / chunk : 1;

    return chunks * ((c + SUM_ACROSS - 1) / SUM_ACROSS);
}
