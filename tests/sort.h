/* sort.h: sort measurements in ascending order. */
#ifndef GP_TEST_SORT_H
#define GP_TEST_SORT_H

#include <stdint.h>
#include <stdlib.h>

static inline int sort_compare_double(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static inline int sort_compare_int64(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static inline void sort_doubles(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), sort_compare_double);
}

static inline void sort_int64s(int64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), sort_compare_int64);
}

#endif
