/* tensor/device_tile_sizes.h - the sizes of tiles; tensor/device_tiles.h says what a tile is. */
#ifndef TENSOR_DEVICE_TILE_SIZES_H
#define TENSOR_DEVICE_TILE_SIZES_H

/* name; rows and columns of a tile; how much of the summed index is brought to shared memory at a time;
 * rows and columns of one thread. All threads bring equally many elements of A, and of B, four at least. Small
 * tiles are deep: few of them run beside each other, so each phase must outlast what is asked for in it. */
#define DEV_TILE_SIZES(S)                                                                                    \
    S(8, 8, 16, 64, 1, 2)                                                                                    \
    S(16, 16, 16, 64, 2, 2)                                                                                  \
    S(32, 32, 32, 16, 2, 4)                                                                                  \
    S(64, 64, 64, 16, 4, 4)                                                                                  \
    S(128, 128, 64, 8, 8, 8)

#define TILE_NUMBERS(name, rows, cols, depth, high, wide)                                                    \
    TILE_ROWS_##name = (rows), TILE_COLS_##name = (cols), TILE_DEPTH_##name = (depth),                       \
    TILE_HIGH_##name = (high), TILE_WIDE_##name = (wide),                                                    \
    TILE_THREADS_##name = (rows) / (high) * ((cols) / (wide)),
enum { DEV_TILE_SIZES(TILE_NUMBERS) };
#undef TILE_NUMBERS

#define TILE_ONE(name, rows, cols, depth, high, wide) +1
enum { DEV_TILE_COUNT = 0 DEV_TILE_SIZES(TILE_ONE) };
#undef TILE_ONE

#endif
