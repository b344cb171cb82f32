/* A stable merge sort, as NumPy's "mergesort" orders. */
#include "kernels.h"

number sort_by(const double *keys, number n, number *order) {
    number *other = malloc(sizeof(number) * (size_t)(n + 1)), *from = order, *to = other;
    if (!other) return OUT_OF_MEMORY;
    for (number i = 0; i < n; i++) order[i] = i;
    for (number width = 1; width < n; width *= 2) {
        for (number low = 0; low < n; low += 2 * width) {
            number middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            number a = low, b = middle;
            for (number k = low; k < high; k++)
                to[k] = a < middle && (b == high || keys[from[a]] <= keys[from[b]]) ? from[a++] : from[b++];
        }
        number *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) memcpy(order, from, sizeof(number) * (size_t)n);
    free(other);
    return 0;
}

number sort_doubles(double *values, number n) {
    number *order = malloc(sizeof(number) * (size_t)(n + 1));
    double *copy = malloc(sizeof(double) * (size_t)(n + 1));
    number status = order && copy ? sort_by(values, n, order) : OUT_OF_MEMORY;
    if (!status) {
        memcpy(copy, values, sizeof(double) * (size_t)n);
        for (number i = 0; i < n; i++) values[i] = copy[order[i]];
    }
    free(order);
    free(copy);
    return status;
}
