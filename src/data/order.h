/* order.h - stages that only the loader adds. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <manta/data.h>

/* Begins again from the first elements until the count, which must be known,
 * is a multiple of `multiple`. Takes d. */
manta_dataset *order_pad(manta_dataset *d, int64_t multiple);

#endif
