/* What the kernels share. An array argument is followed by its shape; a number is 64 bits wide. */
#ifndef DOVETAIL_KERNELS_H
#define DOVETAIL_KERNELS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t number;

enum { NONE = -1 };
enum { OUT_OF_MEMORY = -1 }; /* what functions without a result return; those with a float one return NAN */

/* Stable order by ascending keys: `order` gets the places of the keys. 0, or OUT_OF_MEMORY. */
number sort_by(const double *keys, number n, number *order);

/* Sort in place. 0, or OUT_OF_MEMORY. */
number sort_doubles(double *values, number n);

/* The next whole number from 0 to below `below`; `chance` is the counter's state. */
static inline number draw(uint64_t *chance, number below) {
    *chance = *chance * 6364136223846793005u + 1442695040888963407u;
    return (number)((*chance >> 33) & 0x7FFFFFFF) % below;
}

#endif
