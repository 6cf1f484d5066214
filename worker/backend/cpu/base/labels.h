/* Check of the labels of a batch, before a kernel uses them as indices. */
#ifndef GP_CPU_LABELS_H
#define GP_CPU_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "worker/backend/backend.h"

/* Check that each label is a class, or -1: none. labels NULL: no sample has a label. */
static inline gp_status labels_check(const int32_t *labels, uint32_t count, size_t classes, gp_error *err)
{
    for (uint32_t n = 0; labels != NULL && n < count; n++)
        if (labels[n] < -1 || (labels[n] >= 0 && (size_t)labels[n] >= classes))
            return gp_fail(err, GP_EINVAL, "sample %u has label %d; the network has %zu classes", n,
                           labels[n], classes);
    return GP_OK;
}

#endif
